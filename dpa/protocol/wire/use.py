"""What tasks use of the machines that they are on: what placements are made by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpa.measure.traffic import Traffic
from dpa.protocol.wire.addresses import Address


@dataclass(frozen=True)
class TaskUse:
    """What a task used of the machine that it was on.

    Attributes:
        node: the number of its node, as Ray gives it.
        peak_memory: the largest resident set of its process, in bytes.
        cpu_seconds: processor time of its process since the job began, its messages' among it.
        sent: to each other task of a stage: pushed and forwarded records, acknowledgements, states.
    """

    node: str = ""
    peak_memory: int = 0
    cpu_seconds: float = 0.0
    sent: Mapping[Address, Traffic] = field(default_factory=dict)
