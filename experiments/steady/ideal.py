"""The shortest time in which reducers can do the work of a stream: the bound of a fluid that is never misplaced.

All work waits in one queue, and any share of any reducer may be given to it. So a reducer that is slowed adds less, and
a stream that its source paces ends no earlier than its last record comes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.steady.streams import Floats


@dataclass(frozen=True)
class Slowdown:
    """A reducer that takes `factor` times as long for what it begins from `begin` on and before `end`, in seconds."""

    reducer: int
    factor: float
    begin: float = 0.0
    end: float = math.inf

    def at(self, now: float) -> float:
        """The factor at a moment."""
        return self.factor if self.begin <= now < self.end else 1.0


@dataclass(frozen=True)
class Capacity:
    """Seconds of work a second that some reducers do together, each of them 1 unless it is slowed."""

    reducers: float
    slowed: Sequence[Slowdown] = ()

    def rate(self, now: float) -> float:
        """What they do at a moment."""
        return self.reducers - sum(1 - 1 / slowdown.at(now) for slowdown in self.slowed)

    def done_by(self, moments: Floats) -> Floats:
        """The work that could have been done by each moment, shape (moments,)."""
        times, done = self._course(float(moments.max(initial=0.0)))
        return np.interp(moments, times, done)

    def seconds_for(self, work: float) -> float:
        """The moment by which so much work could have been done."""
        last_change = max((end for each in self.slowed for end in (each.begin, each.end) if end < math.inf), default=0)
        times, done = self._course(last_change + work / self.rate(last_change))
        return float(np.interp(work, done, times))

    def _course(self, until: float) -> tuple[Floats, Floats]:
        """Moments between which the rate is the same, and the work that could have been done by each."""
        changes = {moment for each in self.slowed for moment in (each.begin, each.end) if 0 < moment < until}
        times = np.array([0.0, *sorted(changes), until])
        rates = np.array([self.rate(moment) for moment in times[:-1]])
        return times, np.concatenate([[0.0], np.cumsum(np.diff(times) * rates)])


def ideal_seconds(arrivals: Floats, work: Floats, capacity: Capacity) -> float:
    """Seconds from the first moment to the end of the last record.

    Args:
        arrivals: when each record comes, ascending, in seconds, shape (records,).
        work: seconds of a reducer that each one takes, shape (records,).
        capacity: what does it.
    """
    if not len(work):
        return 0.0
    left = np.cumsum(work[::-1])[::-1]  # from each record on: Lindley's recursion, unrolled
    return capacity.seconds_for(float((capacity.done_by(arrivals) + left).max()))
