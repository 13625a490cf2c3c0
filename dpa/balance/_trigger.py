"""When a reducer counts as overloaded (DPA paper, section 4.1, equation 1), by its queue in records or in time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dpa.measure.load import Load

_BUSY = 0.9
"""The part of the time from which on a reducer is busy nearly all of it."""


@dataclass(frozen=True)
class Verdict:
    """Whether to act on a report, and the numbers that decided, in words."""

    overloaded: bool
    reason: str


@dataclass(frozen=True)
class QueueTrigger:
    """Overloaded if Q_max > Q_s * (1 + tau): the longest queue against the second longest.

    Attributes:
        tau: threshold, at least 0; the comparison is strict.
        least: a shorter queue than this is never overloaded.
        in_seconds: whether a queue is measured by its delay, queue length times measured service time, not in records.
    """

    tau: float
    least: float = 1
    in_seconds: bool = False

    def measure(self, load: Load) -> float:
        return load.delay if self.in_seconds else load.queue

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> Verdict:
        if self.in_seconds and loads[reducer].service_seconds is None:
            return Verdict(False, f"task {reducer} has not processed a record yet: its delay is not known")
        own, what = self.measure(loads[reducer]), "delay" if self.in_seconds else "queue"
        found = f"{what} {self._in_words(own)} of task {reducer}"
        if own < self.least:
            return Verdict(False, f"{found} is below the least {what} of {self._in_words(self.least)}")
        limit = max((self.measure(load) for other, load in loads.items() if other != reducer), default=0)
        overloaded = own > limit * (1 + self.tau)
        relation = "exceeds" if overloaded else "does not exceed"
        return Verdict(overloaded, f"{found} {relation} {self._in_words(limit)} x {1 + self.tau:g}")

    def _in_words(self, queue: float) -> str:
        return f"{queue:.3g} s" if self.in_seconds else f"{round(queue, 3):,}"


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


@dataclass(frozen=True)
class BothTrigger:
    """Overloaded by queue length and by delay: neither a long queue of quick records nor a short one of slow records
    is enough."""

    length: QueueTrigger
    delay: QueueTrigger

    def measure(self, load: Load) -> float:
        return self.delay.measure(load)

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> Verdict:
        verdicts = [self.length.judge(reducer, loads), self.delay.judge(reducer, loads)]
        against = [verdict for verdict in verdicts if not verdict.overloaded]
        reason = " and ".join(verdict.reason for verdict in against or verdicts)
        return Verdict(not against, reason)


Trigger: TypeAlias = QueueTrigger | BothTrigger
"""Those of the paper's methods: `judge` says whether a reducer is overloaded beside all others, `measure` ranks
reducers by load, greater is worse. Reducers that never reported count as 0."""
