"""Derives from the snapshots of a run what its observers look at: totals, rates, loads, and what is new; and for the
report, what tasks did with all of their time.

No clock and no output: times are those of the snapshots.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dpa.balance.decision import Decision, Outcome
from dpa.measure.bottleneck import Bottleneck, StageLoad, bottleneck
from dpa.measure.skew import mean_part, part_of
from dpa.protocol.wire.metrics import RecordCounts, Snapshot, StageSnapshot, TaskChange, TaskStats

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
    load: StageLoad
    tasks: int = 0
    is_source: bool = False
    records: int = 0
    rate: float = 0.0
    queue: int = 0
    redistributions: int = 0


@dataclass(frozen=True)
class Totals(RecordCounts):
    """The counts of a run so far, as its report will have them, and what is shown only while it runs. Rates are in
    records/s over the last few seconds, `at` is in seconds of the stream, decisions are counted by outcome. The
    latency, in seconds from source to processed, is that of the slowest task."""

    at: float = 0.0
    rows: int = 0
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
        return len(self.stages) > 2

    @property
    def focus(self) -> str | None:
        """The operator stage whose queues are shown: the one that limits the run, else the one with the most records
        queued; None if there is none."""
        if self.bottleneck.kind == "stage":
            return self.bottleneck.stage
        operators = [stage for stage in self.stages if not stage.is_source]
        return max(operators, key=lambda stage: stage.queue).name if operators else None

    @property
    def share_read(self) -> float | None:
        """Of the input rows (0 to 1); None while their number is unknown."""
        return min(self.read / self.rows, 1.0) if self.rows else None

    @property
    def all_read(self) -> bool:
        """False while the number of input rows is unknown."""
        return 0 < self.rows <= self.read

    @property
    def share_processed(self) -> float:
        """Of the records emitted so far (0 to 1)."""
        return min(self.handled / self.emitted, 1.0) if self.emitted else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until all records are processed; None before there is an estimate.

        The longer of two times: of the rows left at the mean rate of reading, and of the records left (with those of
        unread rows) at the latest rate of processing. With several operator stages it is the time of reading alone: how
        many records later stages will get is not known.
        """
        share = self.share_read
        if not share or self.at < 1 or not self.processed_rate:
            return None
        reading = self.at * (1 / share - 1)
        if self.is_graph:
            return reading or None
        processing = (self.emitted / share - self.handled) / self.processed_rate
        return max(reading, processing)

    @property
    def in_flight(self) -> int:
        return max(self.emitted - self.handled, 0)


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
        self._seen: Counter[str] = Counter()
        self._history: deque[TrackedSnapshot] = deque()

    def update(self, snapshot: Snapshot) -> TrackedSnapshot:
        news: list[News] = []
        news += [Redistribution(stage.name, decision) for stage in snapshot.stages for decision in self._new(stage)]
        news += [step for step in snapshot.steps if step.number > self._steps]
        self._steps = max((step.number for step in snapshot.steps), default=self._steps)
        self.totals = self._sum(snapshot)
        tracked = TrackedSnapshot(**vars(snapshot), totals=self.totals, news=tuple(news))
        self._history.append(tracked)
        # The oldest that stays is RATE_SECONDS old or older, so that rates are over no less; only a young run has less.
        while len(self._history) > 2 and self.totals.at - self._history[1].at >= RATE_SECONDS:
            self._history.popleft()
        return tracked

    def _new(self, stage: StageSnapshot) -> list[Decision]:
        # A snapshot repeats decisions that earlier ones held, and may have dropped some that they held.
        last = self._versions.get(stage.name, -1)
        applied = [
            decision
            for decision in stage.decisions
            if decision.outcome is Outcome.APPLIED and decision.version is not None and decision.version > last
        ]
        self._seen[stage.name] += len(applied)
        self._versions[stage.name] = max([last, *(decision.version or 0 for decision in applied)])
        return applied

    def _sum(self, snapshot: Snapshot) -> Totals:
        before = self._history[0] if self._history else TrackedSnapshot("", 0.0, 0, ())
        stages = tuple(self._stage(snapshot, stage, before) for stage in snapshot.stages)
        tasks = [task for stage in snapshot.stages for task in stage.every_task]
        longest = max(tasks, key=lambda task: task.queue, default=None)
        records, since, elapsed = snapshot.records, before.totals, snapshot.at - before.at
        return Totals(
            **vars(records),
            at=snapshot.at,
            rows=snapshot.rows,
            left_out=sum(found.records for found in snapshot.errors),
            mapped_rate=_rate(records.mapped - since.mapped, elapsed, self.totals.mapped_rate),
            processed_rate=_rate(records.handled - since.handled, elapsed, self.totals.processed_rate),
            redistributions=sum(stage.redistributions for stage in stages),
            decisions=sum((Counter(stage.decision_counts) for stage in snapshot.stages), Counter()),
            latency_p99=max((task.latency_p99 for task in tasks if task.latency_p99 is not None), default=None),
            longest=longest if longest is not None and longest.queue > 0 else None,
            stages=stages,
            bottleneck=bottleneck([stage.load for stage in stages], snapshot.edges),
        )

    def _stage(self, snapshot: Snapshot, stage: StageSnapshot, before: TrackedSnapshot) -> StageTotals:
        none = StageTotals(stage.name, StageLoad(stage.name, 0.0, 0.0, 0.0))
        last = next((found for found in self.totals.stages if found.name == stage.name), none)
        earlier = next((found for found in before.totals.stages if found.name == stage.name), none)
        known = next((found for found in before.stages if found.name == stage.name), None)
        elapsed, is_source = snapshot.at - before.at, stage in snapshot.sources
        records = stage.records.read if is_source else stage.records.handled
        return StageTotals(
            name=stage.name,
            tasks=len(stage.present),
            is_source=is_source,
            records=records,
            rate=_rate(records - earlier.records, elapsed, last.rate),
            queue=sum(task.queue for task in stage.tasks),
            redistributions=max(stage.decision_counts.get(Outcome.APPLIED.value, 0), self._seen[stage.name]),
            load=load_since(stage, known, snapshot.at, elapsed) if elapsed > 0 else last.load,
        )


def _rate(more: int, elapsed: float, last: float) -> float:
    """Records/s; the `last` if no time has passed. Counts may go back from one snapshot to the next; a rate is never
    below zero."""
    return max(more, 0) / elapsed if elapsed > 0 else last


def load_of(stage: StageSnapshot, seconds: float) -> StageLoad:
    """The load in a stream of `seconds` seconds, of all tasks that there have been. Forgotten tasks count as one, which
    is not named as the busiest."""
    lived = [stage.life(task.index).seconds(seconds) for task in stage.tasks]
    if stage.forgotten is not None:
        lived.append(stage.forgotten.seconds)
    return _load(stage.name, stage.every_task, lived, seconds, len(stage.tasks))


def load_since(stage: StageSnapshot, before: StageSnapshot | None, at: float, elapsed: float) -> StageLoad:
    """The load in the last `elapsed` seconds of the tasks that there are, `at` seconds after the stream began. `before`
    is the stage `elapsed` seconds earlier; None: nothing had been done."""
    known = {} if before is None else {task.index: task for task in before.tasks}
    tasks = [_since(task, known.get(task.index)) for task in stage.tasks if task.index in stage.present]
    lived = [min(stage.life(task.index).seconds(at), elapsed) for task in tasks]
    return _load(stage.name, tasks, lived, elapsed, len(tasks))


def _since(task: TaskStats, before: TaskStats | None) -> TaskStats:
    if before is None:
        return task
    names = ("busy_seconds", "blocked_seconds", "waiting_seconds")
    return replace(task, **{name: max(getattr(task, name) - getattr(before, name), 0.0) for name in names})


def _load(stage: str, tasks: Sequence[TaskStats], lived: Sequence[float], seconds: float, named: int) -> StageLoad:
    """The load of tasks that took part for `lived` of `seconds` seconds. The busiest is one of the first `named`."""
    busy = [task.busy_seconds for task in tasks]
    parts = list(map(part_of, busy, lived))
    return StageLoad(
        stage,
        busy=mean_part(busy, lived, seconds),
        blocked=mean_part([task.blocked_seconds for task in tasks], lived, seconds),
        waiting=mean_part([task.waiting_seconds for task in tasks], lived, seconds),
        busiest=max(parts, default=0.0),
        task=tasks[max(range(named), key=parts.__getitem__)].index if named else 0,
    )
