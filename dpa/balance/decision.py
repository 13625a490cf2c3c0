"""What a policy decided about one load report, and why; decisions not to act are recorded too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Outcome(str, Enum):
    """How a decision came out."""

    APPLIED = "applied"
    BELOW_THRESHOLD = "below_threshold"
    ROUNDS_USED_UP = "rounds_used_up"
    COOL_DOWN = "cool_down"
    NO_TARGET = "no_target"
    UNSPLITTABLE = "unsplittable"


@dataclass(frozen=True)
class Decision:
    """One look at the trigger.

    Attributes:
        at: seconds since the stream began.
        reducer: the reducer whose load was judged.
        outcome: what was decided.
        reason: one sentence with the numbers that decided.
        loads: the queue length of each reducer as last reported, in records; 0 before its first report.
        reducers: the numbers of these reducers, ascending; empty means all from 0 on.
        version: number of the routing table that the decision published; None if it published none.
        round: number of redistributions that this reducer's load has caused, this one included.
        moved: `adaptive`: the share of the measured load that changed owners, 0 to 1.
        split: `adaptive`: the share of the measured load that goes to reducers other than the owner, 0 to 1.
    """

    at: float
    reducer: int
    outcome: Outcome
    reason: str
    loads: tuple[int, ...]
    version: int | None
    round: int
    moved: float = 0.0
    split: float = 0.0
    reducers: tuple[int, ...] = ()

    @property
    def load_of(self) -> dict[int, int]:
        return dict(zip(self.reducers or range(len(self.loads)), self.loads, strict=True))

    @staticmethod
    def of(
        at: float,
        reducer: int,
        outcome: Outcome,
        reason: str,
        load_of: Mapping[int, int],
        version: int | None,
        round: int,
    ) -> Decision:
        """`load_of`: queue lengths, by ascending number of the reducer."""
        reducers = () if list(load_of) == list(range(len(load_of))) else tuple(load_of)
        return Decision(at, reducer, outcome, reason, tuple(load_of.values()), version, round, reducers=reducers)
