"""When a reducer counts as overloaded (DPA paper, section 4.1, equation 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """Whether to act on a report, and the numbers that decided, in words."""

    overloaded: bool
    reason: str


@dataclass(frozen=True)
class QueueLengthTrigger:
    """Overloaded if Q_max > Q_s * (1 + tau): the longest queue against the second longest.

    Attributes:
        tau: threshold, at least 0; the comparison is strict.
        least_queue: a shorter queue than this, in records, is never overloaded.
    """

    tau: float
    least_queue: int = 1

    def judge(self, reducer: int, queues: Mapping[int, int]) -> Verdict:
        """Look at `reducer`'s queue, in records, against all others; reducers that never reported count as 0."""
        own = queues[reducer]
        second = max((length for other, length in queues.items() if other != reducer), default=0)
        limit = second * (1 + self.tau)
        if own < self.least_queue:
            return Verdict(
                False, f"queue {own:,} of reducer {reducer} is below the least queue of {self.least_queue:,}"
            )
        relation = "exceeds" if own > limit else "does not exceed"
        reason = f"queue {own:,} of reducer {reducer} {relation} {second:,} x {1 + self.tau:g}"
        return Verdict(own > limit, reason)
