"""What is known of each reducer's load: its last report, what has become of that since, and its waits for a
processor."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpa.balance.adaptive._arrivals import Arrivals
from dpa.balance.adaptive.demand import smoothed
from dpa.measure.load import KeySample, Load
from dpa.measure.timing import HALF_LIFE
from dpa.routing.table import RoutingTable

_OVERDUE = 8.0
"""After this many report periods without a report from a reducer, the others are judged without it: user code that
holds the interpreter keeps even reports from being sent."""

_NOISE = 3.0  # standard errors from that of all at which a share is half believed
_MOST = 0.95  # no reducer waits for more than this share of its busy time for long


@dataclass
class _Waits:
    """Busy seconds, older ones counting less; and over these, the sum of the shares waited, and of their squares."""

    seconds: float = 0.0
    shares: float = 0.0
    squares: float = 0.0

    def add(self, seconds: float, share: float, fading: float) -> None:
        self.seconds = self.seconds * fading + seconds
        self.shares = self.shares * fading + seconds * share
        self.squares = self.squares * fading + seconds * share**2

    @property
    def mean(self) -> float:
        return self.shares / self.seconds

    def error(self, report_seconds: float) -> float:
        """The standard error of the mean; each report is a measurement."""
        reports = self.seconds / report_seconds
        if reports <= 1.5:
            return math.inf
        return math.sqrt(max(self.squares / self.seconds - self.mean**2, 0.0) / (reports - 1))


class Waiting:
    """How much of their busy time a stage's reducers wait for a processor, of late, by their reports.

    A wait is the machine's more than the reducer's. Where tasks share processors, who waits for whom changes from
    moment to moment, and a reducer that is seldom busy finds one at once; where a machine is crowded, its reducers wait
    long."""

    def __init__(self, report_seconds: float) -> None:
        self._report_seconds = report_seconds
        self._waits: dict[int, _Waits] = {}
        self._reported_at: dict[int, float] = {}

    def add(self, reducer: int, load: Load, now: float) -> None:
        elapsed = now - self._reported_at.get(reducer, now - self._report_seconds)
        self._reported_at[reducer] = now
        busy = load.busy * elapsed
        if busy > 0:
            fading = 2.0 ** (-busy / HALF_LIFE)
            self._waits.setdefault(reducer, _Waits()).add(busy, load.waited, fading)

    def follow(self, members: Collection[int]) -> None:
        self._waits = {reducer: waits for reducer, waits in self._waits.items() if reducer in members}
        self._reported_at = {reducer: at for reducer, at in self._reported_at.items() if reducer in members}

    def measured(self, reducer: int) -> float:
        """The share of its busy time in which a reducer waited, 0 to 1; 0 of one that was never busy."""
        waits = self._waits.get(reducer)
        return min(waits.mean, _MOST) if waits else 0.0

    def believed(self) -> dict[int, float]:
        """Of each reducer that has reported, shrunk to the share of all where chance explains the difference."""
        seconds = sum(waits.seconds for waits in self._waits.values())
        if not seconds:
            return {}
        of_all = min(sum(waits.shares for waits in self._waits.values()) / seconds, _MOST)
        return {reducer: of_all + self._apart(reducer, of_all) for reducer in self._reported_at}

    def _apart(self, reducer: int, of_all: float) -> float:
        waits = self._waits.get(reducer)
        if waits is None:
            return 0.0
        apart, error = min(waits.mean, _MOST) - of_all, _NOISE * waits.error(self._report_seconds)
        return apart**3 / (apart**2 + error**2) if apart and math.isfinite(error) else 0.0


class _Report(NamedTuple):
    """A load, when it was measured, and how many records had been the last of a sender by then."""

    load: Load
    at: float
    last_words: float


class KnownLoads:
    """The last report of each reducer, and which of them are new since the last look."""

    def __init__(
        self, members: Sequence[int], arrivals: Arrivals, *, measure_seconds: float, check_seconds: float
    ) -> None:
        self._members = members
        self._arrivals = arrivals
        self._check_seconds = check_seconds
        self._overdue_seconds = _OVERDUE * measure_seconds
        self._reports: dict[int, _Report] = {}
        self._waiting = Waiting(measure_seconds)
        self._fresh: set[int] = set()
        self._began: float | None = None
        self._looked_at: float | None = None

    def add(self, reducer: int, load: Load, version: int, now: float) -> None:
        """`version`: of the newest table; only what was measured under it is new."""
        # A reducer that waits for its first records says nothing: they may be on their way.
        waits = reducer not in self._reports and not load.queue and load.service_seconds is None
        if load.version == version and not waits:
            self._fresh.add(reducer)
        self._reports[reducer] = _Report(load, now, self._arrivals.last_words)
        self._waiting.add(reducer, load, now)
        if self._began is None:
            self._began = now

    def had_time(self, now: float) -> bool:
        """Whether silent reducers are waited for no longer."""
        return self._began is not None and now - self._began > self._overdue_seconds

    def is_time(self, now: float) -> bool:
        """Whether the last look is long enough ago, and all have reported since or are waited for no longer."""
        if self._began is None:
            return False
        waited = now - (self._began if self._looked_at is None else self._looked_at)
        if self._looked_at is not None and waited < self._check_seconds:
            return False
        return len(self._fresh) == len(self._members) or waited > self._overdue_seconds

    def look(self, now: float) -> set[int]:
        """Begin a look. Returns the reducers that have reported since the last one."""
        self._looked_at = now
        fresh, self._fresh = self._fresh, set()
        return fresh

    def outdate(self) -> None:
        self._fresh.clear()

    def follow(self, members: Sequence[int]) -> None:
        self._members = members
        self._reports = {reducer: report for reducer, report in self._reports.items() if reducer in members}
        self._fresh.clear()
        self._waiting.follow(members)

    @property
    def queues(self) -> dict[int, int]:
        """In records, by ascending number of the reducer; 0 before its first report."""
        reports = self._reports
        return {one: reports[one].load.queue if one in reports else 0 for one in sorted(self._members)}

    def under(self, version: int) -> set[int]:
        """The reducers whose last report was measured under this table."""
        return {reducer for reducer, report in self._reports.items() if report.load.version == version}

    def measured_once(self, reducers: Iterable[int]) -> list[int]:
        """Those with work whose speed has no standard error yet: it may be the time of an import. None if only one has
        been measured, as all are taken to be as fast as that."""
        last = {reducer: self._reports[reducer].load for reducer in sorted(reducers)}
        measured = {reducer: load for reducer, load in last.items() if load.evidence}
        once = [reducer for reducer, load in measured.items() if load.queue and not math.isfinite(load.error)]
        return once if len(measured) > 1 else []

    def unaccounted(self, reducers: Iterable[int]) -> float:
        """Last records of senders since the oldest report of these reducers; where they went is not known."""
        oldest = min(self._reports[reducer].last_words for reducer in reducers)
        return self._arrivals.last_words - oldest

    def expected(self, reducers: Iterable[int], table: RoutingTable, now: float) -> dict[int, Load]:
        """Their loads as expected by now, as no two were measured at the same moment. A record's time is that of its
        work and of the wait for a processor, both shrunk to the mean where chance explains the difference."""
        working = {reducer: self._working(reducer) for reducer in sorted(reducers)}
        waits = self._waiting.believed()
        loads = {reducer: _slowed(load, waits.get(reducer, 0.0)) for reducer, load in smoothed(working).items()}
        arrivals, offered = self._arrivals, by_owner(table, self._arrivals.sample)
        aged = {}
        for reducer, load in loads.items():
            _, at, last_words = self._reports[reducer]
            arrived = arrivals.rate * (now - at) + arrivals.last_words - last_words
            own = offered[reducer]
            aged[reducer] = load.aged(now - at, own.scaled(arrived * own.total / (arrivals.sample.total or 1.0)))
        return aged

    def _working(self, reducer: int) -> Load:
        """The last load, with times of records that leave out the wait for a processor, and that wait of late."""
        load, waited = self._reports[reducer].load, self._waiting.measured(reducer)
        if load.usual_seconds is not None or load.service_seconds is None:
            return replace(load, waited=waited)
        return replace(load, usual_seconds=load.service_seconds * (1 - waited), waited=waited)


def _slowed(load: Load, waited: float) -> Load:
    """The load with times of records that include the expected wait for a processor, the part `waited` of all."""
    if load.usual_seconds is None:
        return load
    factor = 1 / (1 - waited)
    return replace(load, usual_seconds=load.usual_seconds * factor, error=load.error * factor)


def by_owner(table: RoutingTable, sample: KeySample) -> dict[int, KeySample]:
    """Each member's part of a sample, without keys that are split."""
    owners = table.sole_owners[table.tokens_of(sample.hashes)]
    order = np.argsort(owners, kind="stable")  # so hashes stay ascending within each part
    starts, ends = (np.searchsorted(owners[order], table.members, side).tolist() for side in ("left", "right"))
    parts = zip(table.members, (order[start:end] for start, end in zip(starts, ends, strict=True)), strict=True)
    return {member: KeySample(sample.hashes[part], sample.records[part], sample.rows) for member, part in parts}
