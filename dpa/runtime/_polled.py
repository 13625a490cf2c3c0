"""What a coordinator says of its job when it is polled."""

from __future__ import annotations

from dataclasses import dataclass

from dpa.protocol.recovery import Death
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import TaskProcess


@dataclass(frozen=True)
class Polled:
    """What is new of a job.

    Attributes:
        snapshot: statistics, without their history unless the job has failed; None: it has not begun.
        warnings: those that have come since the last poll.
        processes: where all tasks are that there are.
        error: why the job has failed; None: it has not.
        death: the death that was the cause of that; None: there was another one.
        is_cancelled: whether it is to end without a result.
    """

    snapshot: Snapshot | None
    warnings: list[str]
    processes: dict[Address, TaskProcess]
    error: str | None
    death: Death | None
    is_cancelled: bool
