"""What a report says of one stage: counts, tasks, skew, decisions, latency, keys, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dpa.balance.decision import Decision
from dpa.measure.latency import LatencyReport
from dpa.measure.skew import part_of
from dpa.protocol.wire.metrics import AggregationStats, EventTimeStats, LoadSample, RecordCounts, TaskChange
from dpa.routing.groupings.options import RING
from dpa.routing.keys import Key


@dataclass(frozen=True)
class TaskReport:
    """One task of a stage. A source processes nothing, the last stage emits nothing.

    Attributes:
        id: task number, from 0.
        read: rows read.
        mapped: records made of these rows.
        emitted: records pushed to the next stages.
        processed: records processed.
        forwarded: forwards of a record to its new owner.
        share: share of all records that the stage processed, 0 to 1.
        even_share: what `share` would be if all tasks had processed equally many records while they were members.
        peak_queue: longest queue, in records.
        keys: keys in its share of the result.
        states: most keys held before states of other tasks were merged in, in partial results or at the end.
        lived_seconds: time of the stream in which the task was a member: all of it unless tasks came or went.
        busy_seconds: time in user code and in reading the input.
        blocked_seconds: time without work because records wait for credit downstream.
        waiting_seconds: time in which a source waits for more input, or for a place to answer.
        idle_seconds: the remaining time.
        latency_p99: seconds that 99 % of its records did not exceed; None before the first.
        cpu_seconds: processor time of the process, from the start of the job to its end; 0 if tasks are not processes.
            If the job failed, as last reported, up to a second before.
        peak_memory: largest resident set of the process, in bytes; 0 if tasks are not processes.
        state_memory: most bytes of memory that states took, as `limits.state_mb` counts them; 0 without it.
        spilled: bytes of states written to local disk.
        node: number of the node in Ray; empty if tasks are not processes.
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
    waiting_seconds: float = 0.0
    idle_seconds: float = 0.0
    latency_p99: float | None = None
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    state_memory: int = 0
    spilled: int = 0
    node: str = ""

    @property
    def busy(self) -> float:
        """The part (0 to 1) of its time in which it was in user code."""
        return part_of(self.busy_seconds, self.lived_seconds)


@dataclass(frozen=True)
class LoadShares:
    """What the tasks of a stage did with their time, as parts of it (0 to 1), and how long their queues were.

    Attributes:
        busy: share of the tasks' time in user code: the sum of `busy_seconds` divided by the sum of `lived_seconds`.
        blocked: share without work because records wait for credit downstream.
        waiting: share in which sources wait for their input.
        idle: the remaining share.
        busiest: busy share of the busiest task.
        mean_queue: mean length of a task's queue over the samples, in records.
        peak_queue: longest queue of a task, in records.
    """

    busy: float = 0.0
    blocked: float = 0.0
    waiting: float = 0.0
    idle: float = 0.0
    busiest: float = 0.0
    mean_queue: float = 0.0
    peak_queue: int = 0


@dataclass(frozen=True)
class RecordTimes:
    """The mean time of a stage's records from source to processed, in four parts. Their sum is `latency.mean`, unless
    the machines' clocks differ.

    Attributes:
        made: seconds from the source until the sender had made the record: reading, mapping, and all earlier stages.
        credit: seconds waiting at the sender for credit.
        queued: seconds in transport and in queues, forwards included.
        work: seconds in the quantum that processed the record.
    """

    made: float
    credit: float
    queued: float
    work: float


@dataclass(frozen=True)
class GroupingReport:
    """How senders chose the reducer of a record.

    Attributes:
        kind: name of the grouping.
        replication: reducers that held a key, on average, before states were merged (the CG paper's memory cost); None
            if nothing was processed, the job failed earlier, or partial results merged states earlier.
        moved: how often a sender moved a part of the keys, a virtual worker or a slot, to another reducer because of
            signals from reducers.
    """

    kind: str = RING
    replication: float | None = None
    moved: int = 0


@dataclass(frozen=True)
class SkewReport:
    """The DPA paper's skew S: 0 is even, 1 is all records on one reducer.

    Attributes:
        dpa: S of this run.
        static: S of the same records on the plain ring with the first tasks, without balancing or a planned first
            table; None if the job failed before its result was finished.
        spark: S of the same records with Spark's hash partitioning; None if it was not requested.
    """

    dpa: float = 0.0
    static: float | None = None
    spark: float | None = None


@dataclass(frozen=True)
class ReferenceReport:
    """The comparison of a result with Spark's.

    Attributes:
        checked: whether a reference was computed.
        matches: whether the result equals it; None if not checked.
        rows: rows of the reference; None if not checked.
        differences: the first differing keys, in words.
        left_out: records left out on both sides, because user code failed on them.
        why_not: why a requested comparison was not made; None otherwise.
    """

    checked: bool = False
    matches: bool | None = None
    rows: int | None = None
    differences: tuple[str, ...] = ()
    left_out: int = 0
    why_not: str | None = None


@dataclass(frozen=True)
class HotKey:
    """A frequent key.

    Attributes:
        key: a string, a number, true or false, None, or a list of these.
        records: estimated number of its records.
        share: share of all mapped records, 0 to 1.
        lower: lower bound of the number of records.
        upper: upper bound; equal to `lower` if the records were counted exactly.
    """

    key: Key
    records: int
    share: float
    lower: int
    upper: int


_ALONE = 1.0  # a key with more than this part of a task's even share is hot for any number of keys
_NOTICED, _TIMES_THE_MEAN = 0.1, 3.0
"""A key with this part of a task's even share is hot if it also has this many times the records of the mean key."""


def hot(keys: Sequence[HotKey], distinct: int, even: float) -> tuple[HotKey, ...]:
    """Those of the most frequent `keys` that make a task uneven, where there are `distinct` keys in all. `even` is a
    task's even share of the records, 0 to 1.

    A key is hot if it has more records than a task's even share, so that no routing of whole keys is even; or if it has
    a tenth of that share and three times the records of the mean key. Keys of equal frequency are not hot, unless there
    are fewer keys than tasks."""
    mean = 1 / distinct if distinct else 0.0
    return tuple(
        key
        for key in keys
        if key.share > _ALONE * even or (key.share >= _NOTICED * even and key.share >= _TIMES_THE_MEAN * mean)
    )


@dataclass(frozen=True)
class KeyDistribution:
    """How unequal the keys are.

    Attributes:
        distinct: number of keys.
        ranks: numbers of most frequent keys, ascending.
        cumulative_share: for each of `ranks`, the share of all mapped records that this number of keys has.
    """

    distinct: int = 0
    ranks: tuple[int, ...] = ()
    cumulative_share: tuple[float, ...] = ()


@dataclass(frozen=True)
class OutputReport:
    """Where the result is.

    Attributes:
        path: the directory; None if the result stayed in memory, or the job failed.
        rows: rows of the result; 0 if the job failed before they were known.
        files: file names in the directory.
        unpublished: if the job failed, the directory in which nothing was published; None if there is none.
    """

    path: str | None = None
    rows: int = 0
    files: tuple[str, ...] = ()
    unpublished: str | None = None


@dataclass(frozen=True)
class StageReport:
    """One stage: a `source`, whose tasks read the input, or an `operator`, whose tasks take records from queues.

    Attributes:
        name: the stage's name.
        kind: `source` or `operator`.
        began: seconds until the first record was processed, or a source read its first row; None if never.
        ended: seconds until all records were processed, or emitted by a source; None if never.
        records: its counts of records.
        load: what the tasks did with their time.
        tasks: tasks by number, including former tasks whose change is in `changes`.
        grouping: how records were assigned to tasks; None for a source.
        skew: skew of the records that the tasks processed; None for a source.
        redistributions: the last 1,000 decisions that published a routing table, in order.
        decisions: a bounded number of all decisions, in order, including those not to act.
        decision_counts: number of all decisions by outcome.
        latency: from source to processed; None if nothing was processed, or the job failed before states were merged.
        stage_latency: the same from the moment at which the previous stage emitted the records.
        record_times: where the mean time of a record went; None if `latency` is.
        hot_keys: the ten most frequent keys, hot or not, the most frequent first.
        key_distribution: how unequal the keys are.
        changes: tasks that came, went or moved during the run, in order; from the last 1,000 changes of all stages.
        scaling_counts: how often the number of tasks stayed, by reason; empty if the stage is not `elastic`.
        samples: queue lengths over time, thinned to a bounded number.
        aggregation: partial results; None if there are none.
        event_time: event time reached when the job ended or failed; None if rows have none.
        reference: the comparison of this stage's result.
        output: where the result is; None if no result of this stage is wanted.
        more_outputs: further outputs of the result.
        first_table: what the first routing table was planned from, or why it was the ring; None without a plan.
    """

    name: str
    kind: Literal["source", "operator"]
    began: float | None = None
    ended: float | None = None
    records: RecordCounts = field(default_factory=RecordCounts)
    load: LoadShares = LoadShares()
    tasks: tuple[TaskReport, ...] = ()
    grouping: GroupingReport | None = None
    skew: SkewReport | None = None
    redistributions: tuple[Decision, ...] = ()
    decisions: tuple[Decision, ...] = ()
    decision_counts: dict[str, int] = field(default_factory=dict)
    latency: LatencyReport | None = None
    stage_latency: LatencyReport | None = None
    record_times: RecordTimes | None = None
    hot_keys: tuple[HotKey, ...] = ()
    key_distribution: KeyDistribution = KeyDistribution()
    changes: tuple[TaskChange, ...] = ()
    scaling_counts: dict[str, int] = field(default_factory=dict)
    samples: tuple[LoadSample, ...] = ()
    aggregation: AggregationStats | None = None
    event_time: EventTimeStats | None = None
    reference: ReferenceReport = ReferenceReport()
    output: OutputReport | None = None
    more_outputs: tuple[OutputReport, ...] = ()
    first_table: str | None = None

    @property
    def peak_memory(self) -> int:
        """The greatest of a task, in bytes; 0 where tasks are no processes."""
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
        """Those of `hot_keys` that make a task uneven, by the rule of `hot`. Screens show these."""
        # The greatest even share is that of a task that took part throughout, if there is one.
        even = max((task.even_share for task in self.tasks), default=0.0) or 1.0
        return hot(self.hot_keys, self.key_distribution.distinct, even)


@dataclass(frozen=True)
class TrafficReport:
    """Messages between the tasks of two stages, or of one: pushed records downstream, acknowledgements upstream,
    forwarded records and states within.

    Attributes:
        source: the stage that sends.
        target: the stage that receives.
        messages: number of messages.
        records: number of records in all of them.
        bytes: size of all messages, including those without records.
        pairs: bytes from each task of `source` (row) to each of `target` (column); a process sends itself nothing.
    """

    source: str
    target: str
    messages: int
    records: int
    bytes: int
    pairs: tuple[tuple[int, ...], ...]
