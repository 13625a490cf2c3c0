"""What is kept of a stage: its records, counted, its queues over time, and the decisions about it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, zip_longest

from dpa.balance.decision import Decision
from dpa.errors import ProtocolError
from dpa.measure.latency import LatencyReport, LatencySketch
from dpa.protocol.coordinator._roster import Roster
from dpa.protocol.wire.metrics import LoadSample, TaskStats

_LOST_SECONDS = 60.0
"""A record unaccounted for this long (seconds), with all senders done and all queues empty, is considered lost."""


class Ledger:
    """Sums of the reports of all tasks that a stage has had. They are kept because every message asks for them while a
    cut is made.

    Attributes:
        began_at: when it was known to have processed its first record, a source to have read its first row; None
            before.
        drained_at: when all its records were processed, of a source when all rows were read and all records emitted;
            None before.
        changed_at: when it was last known to have come further; lost records are missed from then on.
        last_task: the task that was the last to have come further.
    """

    def __init__(self, stage: str, roster: Roster, feeders: Iterable[tuple[Ledger, int]]) -> None:
        """`feeders`: for each edge that enters the stage, who feeds it, and the edge's position among those that leave
        the feeder."""
        self.began_at: float | None = None
        self.drained_at: float | None = None
        self.changed_at = 0.0
        self.last_task = 0
        self.read = self.processed = 0
        self._emitted: tuple[int, ...] = ()
        self._stage = stage
        self._roster = roster
        self._feeders = [*feeders]
        self._started_at = 0.0

    @property
    def emitted_to(self) -> int:
        """Records emitted to the stage, on all edges that enter it; final once those that feed it are done."""
        return sum(feeder.emitted_on(position) for feeder, position in self._feeders)

    def emitted_on(self, position: int) -> int:
        """Records emitted on the edge at this position among those that leave the stage; final once it is done."""
        return self._emitted[position] if self._emitted else 0

    @property
    def is_settled(self) -> bool:
        """Whether all that was emitted to the stage is processed; final once its feeders emit no more. ProtocolError if
        more was processed than was emitted."""
        emitted, processed = self.emitted_to, self.processed
        if processed > emitted:
            raise ProtocolError(f"{self._stage}: {processed} records were processed, but only {emitted} were emitted")
        return processed == emitted

    def start(self, now: float) -> None:
        self._started_at = self.changed_at = now

    def moment(self, now: float) -> tuple[float, int]:
        """Seconds since the stream began, and the records processed by now."""
        return self.since_start(now), self.processed

    def since_start(self, at: float) -> float:
        return at - self._started_at

    @property
    def span(self) -> tuple[float | None, float | None]:
        """`began_at` and `drained_at` in seconds since the stream began."""
        began, drained = (None if at is None else self.since_start(at) for at in (self.began_at, self.drained_at))
        return began, drained

    def note(self, stats: TaskStats, now: float) -> None:
        before = self._roster.tasks[stats.index]
        if stats.processed > before.processed:
            self.changed_at, self.last_task = now, stats.index
        self.read += stats.read - before.read
        self.processed += stats.processed - before.processed
        if stats.emitted != before.emitted:
            more = (new - old for new, old in zip_longest(stats.emitted, before.emitted, fillvalue=0))
            self._emitted = tuple(map(sum, zip_longest(self._emitted, more, fillvalue=0)))
        if self.began_at is None and (stats.read or stats.processed):
            self.began_at = now
        self._roster.note(stats, now)

    def watch(self, now: float, *, is_draining: bool) -> None:
        """Fail with a ProtocolError rather than wait for ever for records that were lost."""
        roster = self._roster
        if not is_draining or roster.change is not None or any(stats.queue for stats in roster.tasks.values()):
            self.changed_at = now
        elif roster.heard_at - self.changed_at > _LOST_SECONDS:
            lost = f"{self.emitted_to - self.processed} of {self.emitted_to} records to {self._stage} were lost"
            raise ProtocolError(f"{lost}: no task has had any for {_LOST_SECONDS:g} s")


_REFUSALS_KEPT = 2_000  # refusals kept in full; all are counted
_APPLIED_KEPT = 1_000  # the same of applied decisions
_RECENT, _RECENT_REFUSALS = 100, 20  # applied decisions, and refusals, in a snapshot without history


class Decisions:
    """Applied decisions and refusals.

    Attributes:
        version: of the newest routing table that they published.
        counts: all of them, by outcome.
    """

    def __init__(self) -> None:
        self.version = 0
        self.counts: Counter[str] = Counter()
        self._applied: deque[Decision] = deque(maxlen=_APPLIED_KEPT)
        self._refused: deque[Decision] = deque(maxlen=_REFUSALS_KEPT)

    def note(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self.counts[decision.outcome.value] += 1
            if decision.version is None:
                self._refused.append(decision)
            else:
                self.version = decision.version
                self._applied.append(decision)

    def recent(self, *, history: bool) -> tuple[Decision, ...]:
        """Those that are kept, in order; without `history` the newest of each kind, refusals without loads."""
        applied, refused = [*self._applied], [*self._refused]
        if not history:
            applied = applied[-_RECENT:]
            refused = [replace(decision, loads=(), reducers=()) for decision in refused[-_RECENT_REFUSALS:]]
        return tuple(sorted([*applied, *refused], key=lambda decision: decision.at))


_LATENCY_SECONDS = 10.0


class RecentLatency:
    """Of the records that tasks have reported in the last 10 to 20 seconds: two sketches take turns."""

    def __init__(self) -> None:
        self._before, self._newest = LatencySketch(), LatencySketch()
        self._began = 0.0

    def add(self, found: LatencySketch, now: float) -> None:
        if now - self._began >= _LATENCY_SECONDS:
            self._before, self._newest, self._began = self._newest, LatencySketch(), now
        self._newest.merge(found)

    def report(self, now: float) -> LatencyReport | None:
        """None if there were no records."""
        both = LatencySketch.union([self._before, self._newest])
        return both.report if now - self._began < 2 * _LATENCY_SECONDS else None


_MAX_SAMPLES = 1_024


class LoadHistory:
    """Keeps at most `_MAX_SAMPLES` samples, evenly spaced over the time so far, each of the tasks that there were."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, dict[int, tuple[int, int]]]] = []
        self._every = 1
        self._seen = 0

    def add(self, at: float, tasks: Sequence[TaskStats]) -> None:
        if self._seen % self._every == 0:
            self._samples.append((at, {stats.index: (stats.queue, stats.processed) for stats in tasks}))
        self._seen += 1
        if len(self._samples) > _MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2

    def samples(self, tasks: Mapping[int, TaskStats]) -> tuple[LoadSample, ...]:
        """The samples, in order, each with a number for each of these tasks that there was yet. A task that is gone has
        none queued, and has processed what it had in all."""
        newest = list(accumulate((max(found, default=-1) for _, found in self._samples), max))
        shown = [stats for index, stats in tasks.items() if newest and index <= newest[-1]]
        made = []
        for (at, found), came in zip(self._samples, newest, strict=True):
            numbers = [found.get(stats.index, (0, stats.processed * (stats.index <= came))) for stats in shown]
            made.append(LoadSample(at, tuple(queue for queue, _ in numbers), tuple(done for _, done in numbers)))
        return tuple(made)
