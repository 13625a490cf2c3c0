"""When a reducer counts as overloaded (DPA paper, section 4.1, equation 1), by its queue in records or in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, Protocol, TypeAlias

from dpa.measure.load import Load

Against: TypeAlias = Literal["second", "mean"]


@dataclass(frozen=True)
class Verdict:
    """Whether to act on a report, and the numbers that led to this, in words."""

    overloaded: bool
    reason: str


class Trigger(Protocol):
    """Decides whether a reducer is overloaded, and measures which reducer is the most loaded."""

    def measure(self, load: Load) -> float:
        """A load in the trigger's own unit; greater is worse."""
        ...

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> Verdict:
        """Look at `reducer`'s load against all others; reducers that never reported count as 0, but not in a mean."""
        ...


@dataclass(frozen=True)
class QueueLengthTrigger:
    """Overloaded if Q_max > Q_s * (1 + tau): the longest queue against the second longest, in records.

    Attributes:
        tau: threshold, at least 0; the comparison is strict.
        min_queue: a shorter queue than this, in records, is never overloaded.
        against: Q_s: the `second` longest queue, as in the paper, or the `mean` of all, which also finds two overloaded
            reducers beside idle ones.
    """

    tau: float
    min_queue: int = 1
    against: Against = "second"

    def measure(self, load: Load) -> float:
        """The queue length, in records."""
        return load.queue

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> Verdict:
        """Compare queue lengths."""
        own, limit = loads[reducer].queue, _reference(self, reducer, loads, self.against)
        if own < self.min_queue:
            return Verdict(False, f"queue {own:,} of task {reducer} is below the least queue of {self.min_queue:,}")
        overloaded = own > limit * (1 + self.tau)
        reason = f"queue {own:,} of task {reducer} {_relation(overloaded)} {round(limit, 3):,} x {1 + self.tau:g}"
        return Verdict(overloaded, reason)


@dataclass(frozen=True)
class QueueingDelayTrigger:
    """The same for the queueing delay: queue length times measured service time.

    Attributes:
        tau: threshold, at least 0; the comparison is strict.
        min_delay: a shorter delay than this, in seconds, is never overloaded.
        against: as for `QueueLengthTrigger`.
    """

    tau: float
    min_delay: float = 0.0
    against: Against = "second"

    def measure(self, load: Load) -> float:
        """The queueing delay, in seconds."""
        return load.delay

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> Verdict:
        """Compare queueing delays. Without a measured service time there is no delay to compare."""
        if loads[reducer].service_seconds is None:
            return Verdict(False, f"task {reducer} has not processed a record yet: its delay is not known")
        own, limit = loads[reducer].delay, _reference(self, reducer, loads, self.against)
        if own < self.min_delay:
            return Verdict(
                False, f"delay {own:.3g} s of task {reducer} is below the least delay of {self.min_delay:g} s"
            )
        overloaded = own > limit * (1 + self.tau)
        reason = f"delay {own:.3g} s of task {reducer} {_relation(overloaded)} {limit:.3g} s x {1 + self.tau:g}"
        return Verdict(overloaded, reason)


@dataclass(frozen=True)
class UtilisationTrigger:
    """Overloaded if busy nearly all the time, or if its queue is long: where queues are kept short, overload shows in
    busy tasks and blocked senders. Whether others have less to do is left to the plan.

    Attributes:
        busy: the part of the time from which on a reducer is busy nearly all of it.
        min_delay: a shorter delay than this, in seconds, is no overload in itself.
    """

    busy: float = 0.9
    min_delay: float = 0.0

    def measure(self, load: Load) -> float:
        """The part of the time in which it is busy, or more by the queueing delay, in seconds."""
        return load.busy + load.delay

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> Verdict:
        """Look at its own load."""
        own = loads[reducer]
        is_long = own.delay > 0 and own.delay >= self.min_delay
        found = f"task {reducer} is busy {own.busy:.0%} of the time and has {own.delay:.3g} s of work queued"
        return Verdict(own.busy >= self.busy or is_long, found)


@dataclass(frozen=True)
class BothTrigger:
    """Overloaded by queue length and by delay: neither a long queue of quick records nor a short one of slow records
    is enough."""

    length: QueueLengthTrigger
    delay: QueueingDelayTrigger

    def measure(self, load: Load) -> float:
        """The queueing delay, in seconds."""
        return self.delay.measure(load)

    def judge(self, reducer: int, loads: Mapping[int, Load]) -> Verdict:
        """Compare both."""
        verdicts = [self.length.judge(reducer, loads), self.delay.judge(reducer, loads)]
        against = [verdict for verdict in verdicts if not verdict.overloaded]
        reason = " and ".join(verdict.reason for verdict in against or verdicts)
        return Verdict(not against, reason)


def _reference(trigger: Trigger, reducer: int, loads: Mapping[int, Load], against: Against) -> float:
    """The load that a reducer's is compared with."""
    if against == "mean":
        return fmean(trigger.measure(load) for load in loads.values())
    return max((trigger.measure(load) for other, load in loads.items() if other != reducer), default=0)


def _relation(overloaded: bool) -> str:
    return "exceeds" if overloaded else "does not exceed"
