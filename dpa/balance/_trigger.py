"""When a reducer counts as overloaded: by its queue (DPA paper, section 4.1, equation 1), or by how busy it is."""

from collections.abc import Mapping
from dataclasses import dataclass

from dpa.measure.load import Load

_BUSY = 0.9  # the part of the time from which on a reducer is busy nearly all of it


@dataclass(frozen=True)
class Verdict:
    """Whether to act on a report, and the numbers that decided, in words."""

    overloaded: bool
    reason: str


@dataclass(frozen=True)
class QueueTrigger:
    """Overloaded if Q_max > Q_s * (1 + tau): the longest queue against the second longest. Reducers that never reported
    count as 0.

    Attributes:
        tau: threshold, at least 0; the comparison is strict.
        least: a shorter queue than this is never overloaded.
    """

    tau: float
    least: int = 1

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> Verdict:
        own = loads[reducer].queue
        found = f"queue {own:,} of task {reducer}"
        if own < self.least:
            return Verdict(False, f"{found} is below the least queue of {self.least:,}")
        limit = max((load.queue for other, load in loads.items() if other != reducer), default=0)
        overloaded = own > limit * (1 + self.tau)
        relation = "exceeds" if overloaded else "does not exceed"
        return Verdict(overloaded, f"{found} {relation} {limit:,} x {1 + self.tau:g}")


@dataclass(frozen=True)
class UtilisationTrigger:
    """Overloaded if busy nearly all the time, or if its queue is long: where queues are kept short, overload shows in
    busy tasks and blocked senders. Whether others have less to do is left to the plan. A delay below `min_delay`
    seconds is no overload in itself."""

    min_delay: float = 0.0

    def judge(self, reducer: int, own: Load) -> Verdict:
        is_long = own.delay > 0 and own.delay >= self.min_delay
        found = f"task {reducer} is busy {own.busy:.0%} of the time and has {own.delay:.3g} s of work queued"
        return Verdict(own.busy >= _BUSY or is_long, found)
