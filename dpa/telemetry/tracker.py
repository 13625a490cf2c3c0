"""Derives from the snapshots of a run what its observers look at: totals, rates, loads, and what is new.

No clock and no output: times are those of the snapshots.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dpa.balance.decision import Decision, Outcome
from dpa.measure.bottleneck import Bottleneck, StageLoad, bottleneck
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskChange, TaskStats
from dpa.telemetry.loads import load_since

RATE_SECONDS = 3.0
"""Rates are means over about this many seconds of the stream."""


@dataclass(frozen=True)
class Redistribution:
    """A decision that published a routing table of a stage."""

    stage: str
    decision: Decision


@dataclass(frozen=True)
class StageTotals:
    """One stage so far, summed over its tasks; the rate (records/s) and the load are of the last few seconds. A source
    processes nothing: its records are the rows that it has read."""

    name: str
    tasks: int = 0
    is_source: bool = False
    records: int = 0
    rate: float = 0.0
    queue: int = 0
    redistributions: int = 0
    load: StageLoad = field(default_factory=lambda: StageLoad("", 0.0, 0.0, 0.0))


@dataclass(frozen=True)
class Totals:
    """A run so far; rates in records/s over the last few seconds, `at` in seconds of the stream. Rows are read and
    records mapped by the sources; emitted, processed and forwarded by all stages; decisions are counted by outcome. The
    latency, in seconds from source to processed, is that of the slowest task."""

    at: float = 0.0
    rows: int = 0
    read: int = 0
    mapped: int = 0
    emitted: int = 0
    processed: int = 0
    forwarded: int = 0
    left_out: int = 0
    mapped_rate: float = 0.0
    processed_rate: float = 0.0
    redistributions: int = 0
    decisions: Mapping[str, int] = field(default_factory=dict)
    latency_p99: float | None = None
    longest: TaskStats | None = None
    stages: tuple[StageTotals, ...] = ()
    bottleneck: Bottleneck = field(default_factory=Bottleneck)

    @property
    def is_graph(self) -> bool:
        """Whether there is more than one source and one operator stage."""
        return len(self.stages) > 2

    @property
    def focus(self) -> str | None:
        """The operator stage whose queues are worth a look: the one that limits the run, else the one with the most
        records queued; None if there is none."""
        if self.bottleneck.kind == "stage":
            return self.bottleneck.stage
        operators = [stage for stage in self.stages if not stage.is_source]
        return max(operators, key=lambda stage: stage.queue).name if operators else None

    @property
    def share_read(self) -> float | None:
        """The share of the input rows that have been read (0 to 1); None while their number is unknown."""
        return min(self.read / self.rows, 1.0) if self.rows else None

    @property
    def all_read(self) -> bool:
        """Whether all input has been read; False while its size is unknown."""
        return 0 < self.rows <= self.read

    @property
    def share_processed(self) -> float:
        """The share of the records emitted so far that have been processed (0 to 1)."""
        return min(self.processed / self.emitted, 1.0) if self.emitted else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until all records are processed; None before there is an estimate.

        The longer of two times: that of the rows left at the mean rate of reading, and that of the records left
        (those of unread rows included) at the latest rate of processing. With several operator stages nobody knows how
        many records the later ones will get, so the time is that of reading alone.
        """
        share = self.share_read
        if not share or self.at < 1 or not self.processed_rate:
            return None
        reading = self.at * (1 / share - 1)
        if self.is_graph:
            return reading or None
        processing = (self.emitted / share - self.processed) / self.processed_rate
        return max(reading, processing)

    @property
    def in_flight(self) -> int:
        """Records emitted and not yet processed."""
        return max(self.emitted - self.processed, 0)


News: TypeAlias = "Redistribution | TaskChange"
"""What is shown as it happens: keys go to other tasks, or tasks come, go or move."""


@dataclass(frozen=True)
class TrackedSnapshot(Snapshot):
    """A snapshot with what follows from it and those before it.

    Attributes:
        totals: the sums, and rates of the last seconds.
        news: what no earlier snapshot held: redistributions, stage by stage in order, and changes of tasks.
    """

    totals: Totals = field(default_factory=Totals)
    news: tuple[News, ...] = ()


class RunTracker:
    """Follows a run through its snapshots, oldest first; `totals` are the sums and rates of the newest."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._steps = 0
        self._versions: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._history: deque[tuple[Snapshot, Totals]] = deque()

    def update(self, snapshot: Snapshot) -> TrackedSnapshot:
        """Take in a snapshot; returns it with what follows from it."""
        news: list[News] = []
        news += [Redistribution(stage.name, decision) for stage in snapshot.stages for decision in self._new(stage)]
        steps = [step for step in snapshot.steps if step.number > self._steps]
        self._steps = max((step.number for step in steps), default=self._steps)
        news += steps
        self.totals = self._sum(snapshot)
        self._history.append((snapshot, self.totals))
        while len(self._history) > 2 and self.totals.at - self._history[1][1].at >= RATE_SECONDS:
            self._history.popleft()
        return TrackedSnapshot(**vars(snapshot), totals=self.totals, news=tuple(news))

    def _new(self, stage: StageSnapshot) -> list[Decision]:
        last = self._versions.get(stage.name, -1)
        applied = [
            decision
            for decision in stage.decisions
            if decision.outcome is Outcome.APPLIED and decision.version is not None and decision.version > last
        ]
        self._versions[stage.name] = max([last, *(decision.version or 0 for decision in applied)])
        self._seen[stage.name] = self._seen.get(stage.name, 0) + len(applied)
        return applied

    def _sum(self, snapshot: Snapshot) -> Totals:
        before, since = self._history[0] if self._history else (None, Totals())
        elapsed = snapshot.at - since.at
        known = {stage.name: stage for stage in before.stages} if before else {}
        stages = tuple(self._stage(snapshot, stage, known.get(stage.name), elapsed) for stage in snapshot.stages)
        tasks = [task for stage in snapshot.stages for task in stage.every_task]
        longest = max(tasks, key=lambda task: task.queue, default=None)
        mapped = sum(task.mapped for stage in _sources(snapshot) for task in stage.every_task)
        processed = sum(task.processed for task in tasks)
        return Totals(
            at=snapshot.at,
            rows=snapshot.rows,
            read=sum(stage.records for stage in stages if stage.is_source),
            mapped=mapped,
            emitted=sum(sum(task.emitted) for task in tasks),
            processed=processed,
            forwarded=sum(task.forwarded for task in tasks),
            left_out=sum(found.records for found in snapshot.errors),
            mapped_rate=_rate(mapped - since.mapped, elapsed, self.totals.mapped_rate),
            processed_rate=_rate(processed - since.processed, elapsed, self.totals.processed_rate),
            redistributions=sum(stage.redistributions for stage in stages),
            decisions=sum((Counter(stage.decision_counts) for stage in snapshot.stages), Counter()),
            latency_p99=max((task.latency_p99 for task in tasks if task.latency_p99 is not None), default=None),
            longest=longest if longest is not None and longest.queue > 0 else None,
            stages=stages,
            bottleneck=bottleneck([stage.load for stage in stages], snapshot.edges),
        )

    def _stage(
        self, snapshot: Snapshot, stage: StageSnapshot, before: StageSnapshot | None, elapsed: float
    ) -> StageTotals:
        """The totals of a stage, of which `before` is known from `elapsed` seconds ago."""
        last = next((found for found in self.totals.stages if found.name == stage.name), StageTotals(stage.name))
        is_source = stage in _sources(snapshot)
        records = _records(stage, is_source)
        earlier = 0 if before is None else _records(before, is_source)
        has_passed = elapsed > 0
        load = load_since(stage, before, snapshot.at, elapsed) if has_passed else replace(last.load, name=stage.name)
        return StageTotals(
            name=stage.name,
            tasks=len(stage.present),
            is_source=is_source,
            records=records,
            rate=_rate(records - earlier, elapsed, last.rate),
            queue=sum(task.queue for task in stage.tasks),
            redistributions=max(stage.decision_counts.get(Outcome.APPLIED.value, 0), self._seen[stage.name]),
            load=load,
        )


def _sources(snapshot: Snapshot) -> tuple[StageSnapshot, ...]:
    fed = {target for _, target in snapshot.edges}
    return tuple(stage for stage in snapshot.stages if stage.name not in fed)


def _records(stage: StageSnapshot, is_source: bool) -> int:
    return sum(task.read if is_source else task.processed for task in stage.every_task)


def _rate(more: int, elapsed: float, last: float) -> float:
    """Records/s; the `last` if no time has passed. Counts may go back from one snapshot to the next; a rate is never
    below zero."""
    return max(more, 0) / elapsed if elapsed > 0 else last
