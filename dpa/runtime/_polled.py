"""What a coordinator says of its job when it is polled, and at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpa.protocol.plan import Times
from dpa.protocol.recovery import Death
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import TaskProcess
from dpa.sources.splits import Split
from dpa.tolerance import Letter


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
        commits: epochs whose results are to be committed by who polls.
    """

    snapshot: Snapshot | None
    warnings: list[str]
    processes: dict[Address, TaskProcess]
    error: str | None
    death: Death | None
    is_cancelled: bool
    commits: Sequence[Commit] = ()


class EndedJob(NamedTuple):
    """All of a finished job.

    Attributes:
        snapshot: all statistics.
        times: its moments.
        outputs: references to the outputs of operator tasks.
        used: references to what all tasks have used.
        letters: the dead letters.
        given: what polls of open inputs have given, where that is kept.
        staged: what was staged and not committed.
    """

    snapshot: Snapshot
    times: Times
    outputs: dict[Address, Any]
    used: dict[Address, Any]
    letters: Iterable[Letter]
    given: Mapping[str, tuple[Split, ...]]
    staged: Mapping[str, tuple[Any, ...]]
