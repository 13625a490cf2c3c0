"""What is known of each reducer's load: what it said last and when, and what has become of that since."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpa.balance.adaptive._arrivals import Arrivals
from dpa.balance.adaptive._waiting import Waiting
from dpa.balance.adaptive.demand import smoothed
from dpa.measure.load import KeySample, Load
from dpa.routing.table import RoutingTable

_OVERDUE = 8.0
"""After this many report periods without a report from a reducer, the others are judged without it: user code that
holds the interpreter keeps even reports from being sent."""


class _Report(NamedTuple):
    """A load, when it was measured, and how many records had been the last of a sender by then."""

    load: Load
    at: float
    last_words: float


class KnownLoads:
    """The last report of each reducer, and which of them are new since the last look."""

    def __init__(
        self,
        members: Sequence[int],
        arrivals: Arrivals,
        *,
        half_life: float,
        measure_seconds: float,
        check_seconds: float,
    ) -> None:
        """Of these reducers, each of which is to report every `measure_seconds`; a wait counts half after `half_life`
        busy seconds, and looks are `check_seconds` apart at least."""
        self._members = members
        self._arrivals = arrivals
        self._check_seconds = check_seconds
        self._overdue_seconds = _OVERDUE * measure_seconds
        self._reports: dict[int, _Report] = {}
        self._waiting = Waiting(half_life, measure_seconds)
        self._fresh: set[int] = set()
        self._began: float | None = None
        self._looked_at: float | None = None

    def add(self, reducer: int, load: Load, version: int, now: float) -> None:
        """Take in a report. It is new if it was measured under the newest table, numbered `version`, and says more than
        that the reducer waits for its first records, which may be on their way."""
        waits = reducer not in self._reports and not load.queue and load.service_seconds is None
        if load.version == version and not waits:
            self._fresh.add(reducer)
        self._reports[reducer] = _Report(load, now, self._arrivals.last_words)
        self._waiting.add(reducer, load, now)
        if self._began is None:
            self._began = now

    def had_time(self, now: float) -> bool:
        """Whether the grace period for silent reducers is over."""
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
        """Begin a look: the reducers that have reported since the last one."""
        self._looked_at = now
        fresh, self._fresh = self._fresh, set()
        return fresh

    def outdate(self) -> None:
        """There is a newer table: nothing that was reported is new any more."""
        self._fresh.clear()

    def follow(self, members: Sequence[int]) -> None:
        """Others than these reducers are gone, and those that are new have not reported."""
        self._members = members
        self._reports = {reducer: report for reducer, report in self._reports.items() if reducer in members}
        self._fresh.clear()
        self._waiting.follow(members)

    @property
    def queues(self) -> dict[int, int]:
        """The queue of each reducer as last reported, in records, by ascending number; 0 before its first report."""
        reports = self._reports
        return {one: reports[one].load.queue if one in reports else 0 for one in sorted(self._members)}

    def under(self, version: int) -> set[int]:
        """The reducers whose last report was measured under this table."""
        return {reducer for reducer, report in self._reports.items() if report.load.version == version}

    def measured_once(self, reducers: Iterable[int]) -> list[int]:
        """Those of these reducers that have work and whose speed has no standard error yet: it may be the time of an
        import. None if only one has been measured, as all are taken to be as fast as that."""
        last = {reducer: self._reports[reducer].load for reducer in sorted(reducers)}
        measured = {reducer: load for reducer, load in last.items() if load.evidence}
        once = [reducer for reducer, load in measured.items() if load.queue and not math.isfinite(load.error)]
        return once if len(measured) > 1 else []

    def unaccounted(self, reducers: Iterable[int]) -> float:
        """Last records of senders that have come since the oldest report of these reducers: where is not known."""
        oldest = min(self._reports[reducer].last_words for reducer in reducers)
        return self._arrivals.last_words - oldest

    def expected(self, reducers: Iterable[int], table: RoutingTable, now: float) -> dict[int, Load]:
        """The loads of these reducers as expected by now: no two were measured at the same moment. A record's time is
        that of its work and of the waiting for a processor, each as far as chance does not explain it."""
        working = {reducer: self._working(reducer) for reducer in sorted(reducers)}
        waits = self._waiting.believed()
        loads = {reducer: _waiting(load, waits.get(reducer, 0.0)) for reducer, load in smoothed(working).items()}
        arrivals, offered = self._arrivals, by_owner(table, self._arrivals.sample)
        aged = {}
        for reducer, load in loads.items():
            _, at, last_words = self._reports[reducer]
            arrived = arrivals.rate * (now - at) + arrivals.last_words - last_words
            own = offered[reducer]
            aged[reducer] = load.aged(now - at, own.scaled(arrived * own.total / (arrivals.sample.total or 1.0)))
        return aged

    def _working(self, reducer: int) -> Load:
        """The last load, with the time of a usual record without any waiting for a processor, and that waiting as it
        has been of late."""
        load, waited = self._reports[reducer].load, self._waiting.measured(reducer)
        if load.usual_seconds is not None or load.service_seconds is None:
            return replace(load, waited=waited)
        return replace(load, usual_seconds=load.service_seconds * (1 - waited), waited=waited)


def _waiting(load: Load, waited: float) -> Load:
    """The load with the part of its time in which it is expected to wait for a processor, which its times of records
    leave out."""
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
