"""What a report says of one stage: counts, tasks, skew, decisions, latency, keys, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dpa.balance.decision import Decision
from dpa.measure.lives import part_of
from dpa.protocol.wire.metrics import AggregationStats, LoadSample, PlanStep
from dpa.routing.groupings.options import RING
from dpa.routing.keys import Key


@dataclass(frozen=True)
class RecordCounts:
    """`read`: rows read: of the input by a source, of its own result by a stage that others follow. `mapped`: records
    that mappers made of them. `emitted`: records pushed to the next stages (fewer under a combiner). `processed`:
    records reduced. `forwarded`: records passed from one task of a stage to another, each time counted."""

    read: int = 0
    mapped: int = 0
    emitted: int = 0
    processed: int = 0
    forwarded: int = 0


@dataclass(frozen=True)
class TaskReport:
    """One task of a stage, by its number. A source processes nothing, the last stage emits nothing.

    Attributes:
        read, mapped, emitted, processed, forwarded: as in `RecordCounts`.
        share: of the records processed by all tasks of the stage, 0 to 1.
        even_share: what `share` would be, had all tasks processed equally many while they took part; the greatest of
            all tasks is that of those that took part throughout (`dpa.measure.lives.even_shares`).
        peak_queue: the longest that its queue has been, in records.
        keys: in its share of the result.
        states: keys that it held before states were merged.
        lived_seconds: of the stream, in which it took part; all of it unless tasks came or went.
        busy_seconds: in user code.
        blocked_seconds: without work because records wait for credit downstream.
        latency_p99: seconds that 99 % of its records did not exceed; None before the first.
        cpu_seconds: processor time of its process, from the start of the job to its end; 0 where tasks are no
            processes.
        peak_memory: the largest resident set of its process, in bytes; 0 where tasks are no processes.
        node: the node that it was on, as Ray numbers nodes; empty where tasks are no processes.
    """

    id: int
    read: int = 0
    mapped: int = 0
    emitted: int = 0
    processed: int = 0
    forwarded: int = 0
    share: float = 0.0
    even_share: float = 0.0
    peak_queue: int = 0
    keys: int = 0
    states: int = 0
    lived_seconds: float = 0.0
    busy_seconds: float = 0.0
    blocked_seconds: float = 0.0
    latency_p99: float | None = None
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    node: str = ""

    @property
    def busy(self) -> float:
        """The part of the time in which it took part that it was in user code, 0 to 1."""
        return part_of(self.busy_seconds, self.lived_seconds)


@dataclass(frozen=True)
class LoadReport:
    """What the tasks of a stage did with the time of the stream in which they took part, as parts of it (0 to 1), and
    what waited for them.

    Attributes:
        busy, blocked: in user code, and without work because records wait for credit downstream, on average over
            tasks, weighted by the time in which each took part: so `busy` is never above `busiest`.
        busiest: the busy part of the busiest task.
        mean_queue: the mean length of a task's queue over the samples, in records.
        peak_queue: the longest that a task's queue has been, in records.
    """

    busy: float = 0.0
    blocked: float = 0.0
    busiest: float = 0.0
    mean_queue: float = 0.0
    peak_queue: int = 0


@dataclass(frozen=True)
class GroupingReport:
    """How senders chose the reducer of a record. `replication`: how many reducers held a key on average before states
    were merged (the CG paper's memory cost), or None where nothing was processed, or rounds of aggregation merged
    states before. `moved`: how often a sender gave a part of the keys to another reducer because of their signals."""

    kind: str = RING
    replication: float | None = None
    moved: int = 0


@dataclass(frozen=True)
class SkewReport:
    """The paper's skew S (0 even, 1 all on one reducer) of this run; of the plain ring on the same records,
    or None if the job failed before its result was finished; of Spark's hash partitioning, or None if it was not
    requested."""

    dpa: float = 0.0
    static: float | None = None
    spark: float | None = None


@dataclass(frozen=True)
class ReferenceReport:
    """`checked`: whether a reference was computed. `matches`: None if not. `rows`: rows of the reference.
    `differences`: the first few, in words."""

    checked: bool = False
    matches: bool | None = None
    rows: int | None = None
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class LatencyReport:
    """Seconds of the processed records from source to processed. A record's source is the moment at which a source's
    task began the step that read its block's rows, so mapping, waiting for credit, transport, queueing and processing
    are in it. Quantiles within 1 %; longest and mean exactly, up to the difference of the machines' clocks."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float


@dataclass(frozen=True)
class HotKey:
    """A frequent key: `records` the mapper made of it, between `lower` and `upper` (equal where counted exactly), and
    their share of all mapped records."""

    key: Key
    records: int
    share: float
    lower: int
    upper: int


_ALONE = 1.0
"""A key with more than this part of a task's even share is hot, however many keys there are."""
_NOTICED, _TIMES_THE_MEAN = 0.1, 3.0
"""So is one with this part of it and so many times the records of the mean key."""


def hot(keys: Sequence[HotKey], distinct: int, even: float) -> tuple[HotKey, ...]:
    """Those of the most frequent keys that make a task uneven. `distinct` keys are there in all; `even`: a task's even
    share of the records, 0 to 1.

    Either a key has more records than a task's even share, so that no routing of whole keys is even; or it has a
    tenth of that share and three times the records of the mean key. Keys of equal frequency are not hot, unless
    there are fewer of them than tasks.
    """
    mean = 1 / distinct if distinct else 0.0
    return tuple(
        key
        for key in keys
        if key.share > _ALONE * even or (key.share >= _NOTICED * even and key.share >= _TIMES_THE_MEAN * mean)
    )


@dataclass(frozen=True)
class KeyDistribution:
    """How unequal the keys are: of `distinct` keys, the `ranks[i]` most frequent hold `cumulative_share[i]` of the
    mapped records."""

    distinct: int = 0
    ranks: tuple[int, ...] = ()
    cumulative_share: tuple[float, ...] = ()


@dataclass(frozen=True)
class OutputReport:
    """Where the result lies (`path` is None if it stayed in memory, or the job failed), in how many rows and files.
    `unpublished`: of a failed job, the directory in which nothing was published, or None if it has none."""

    path: str | None = None
    rows: int = 0
    files: tuple[str, ...] = ()
    unpublished: str | None = None


@dataclass(frozen=True)
class StageReport:
    """One stage: a `source`, whose tasks read the input, or an `operator`, whose tasks take records from queues.

    Attributes:
        began, ended: seconds from the begin of the stream until its first record was known to be processed, and until
            all were; of a source until its first row was read, and until all its records were emitted; None if that
            did not happen, or is not measured.
        tasks: by their number.
        grouping, skew: of the records of an operator; None for a source.
        redistributions: the decisions that published a routing table.
        decisions, decision_counts: those that were kept, and all by outcome.
        latency: from source to processed; None where nothing was processed, or the job failed before.
        stage_latency: the same from emitted, by the stage before, to processed.
        hot_keys, key_distribution: the most frequent keys, and how unequal all are.
        changes: of its tasks while it ran, in order.
        scaling_counts: how often their number stayed, by reason; empty where it does not follow the work.
        samples: all queues over time.
        aggregation: rounds of aggregation; None if there are none.
        reference: the comparison of this stage's result.
        output: where its result is; None if the result of this stage is not wanted.
        first_table: what the first routing table was planned from, or why it was the ring's; None where none was to be
            planned.
    """

    name: str
    kind: Literal["source", "operator"]
    began: float | None = None
    ended: float | None = None
    records: RecordCounts = RecordCounts()
    load: LoadReport = LoadReport()
    tasks: tuple[TaskReport, ...] = ()
    grouping: GroupingReport | None = None
    skew: SkewReport | None = None
    redistributions: tuple[Decision, ...] = ()
    decisions: tuple[Decision, ...] = ()
    decision_counts: dict[str, int] = field(default_factory=dict)
    latency: LatencyReport | None = None
    stage_latency: LatencyReport | None = None
    hot_keys: tuple[HotKey, ...] = ()
    key_distribution: KeyDistribution = KeyDistribution()
    changes: tuple[PlanStep, ...] = ()
    scaling_counts: dict[str, int] = field(default_factory=dict)
    samples: tuple[LoadSample, ...] = ()
    aggregation: AggregationStats | None = None
    reference: ReferenceReport = ReferenceReport()
    output: OutputReport | None = None
    first_table: str | None = None

    @property
    def peak_memory(self) -> int:
        """The largest resident set of a task's process, in bytes; 0 where tasks are no processes."""
        return max((task.peak_memory for task in self.tasks), default=0)

    @property
    def present(self) -> int:
        """How many tasks it had at the end."""
        return len(self.tasks) - sum(len(step.stopped) for step in self.changes)

    @property
    def static_skew(self) -> float | None:
        """`skew.static`; None where it is not known, or no record was processed."""
        return self.skew.static if self.skew and self.records.processed else None

    @property
    def hot(self) -> tuple[HotKey, ...]:
        """Those of `hot_keys` that make a task uneven, by the rule of `hot`: what screens show. The even share is the
        greatest of a task: of one that took part throughout, if there is one."""
        even = max((task.even_share for task in self.tasks), default=0.0) or 1.0
        return hot(self.hot_keys, self.key_distribution.distinct, even)


@dataclass(frozen=True)
class EdgeReport:
    """The records emitted from one stage to another. `blocked`: whether they are why the sender was blocked, as far as
    can be known (`dpa.measure.bottleneck.held_up`)."""

    source: str
    target: str
    records: int = 0
    blocked: bool = False


@dataclass(frozen=True)
class TrafficReport:
    """Messages from the tasks of one stage to those of another, or of the same: pushed records downstream,
    acknowledgements upstream, forwarded records and states within.

    Attributes:
        messages, records, bytes: how many, and what was in them.
        pairs: bytes from each task of `source` (row) to each of `target` (column); a process to itself sends nothing.
    """

    source: str
    target: str
    messages: int
    records: int
    bytes: int
    pairs: tuple[tuple[int, ...], ...]
