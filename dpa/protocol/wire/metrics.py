"""Frozen statistics that tasks report and the coordinator collects: plain numbers, safe to send and to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import zip_longest

from dpa._util.words import plural
from dpa.balance.decision import Decision
from dpa.measure.latency import LatencyReport, LatencySketch
from dpa.measure.load import MeasuredKey
from dpa.measure.skew import Life, even_shares
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.epochs import EpochStats, OpenEpoch
from dpa.protocol.wire.use import TaskUse
from dpa.tolerance import ErrorCount


@dataclass(frozen=True)
class RecordCounts:
    """Counts of rows and records.

    Attributes:
        read: rows read: of the input by a source, of its own result by a stage that feeds others.
        mapped: records that mappers made of these rows.
        emitted: records sent to the next stages; fewer than `mapped` with a combiner, more if several stages follow.
        processed: records processed. At the end of a job, `processed` and `dead` add up to `emitted`.
        forwarded: forwards between tasks of a stage; a record may be forwarded several times.
        dead: records emitted to a stage and left out because its user code raised.
    """

    read: int = 0
    mapped: int = 0
    emitted: int = 0
    processed: int = 0
    forwarded: int = 0
    dead: int = 0

    @property
    def handled(self) -> int:
        return self.processed + self.dead

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(*map(sum, zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True)
class TaskStats:
    """One task so far. A source has no queue; a task of the last stage emits nothing. What `dpa.result.TaskReport` has
    by the same name means the same there.

    Attributes:
        stage, index: which task.
        at: when it reported this, in seconds since 1970; 0 if unknown.
        emitted: records pushed on each edge that leaves the stage, in the graph's order.
        credit_seconds: for how long these waited for credit, on each edge, summed over the records.
        regrouped: how often its groupings have given a part of the keys to another task because of signals.
        queue: records accepted and not yet processed.
        processed: records processed here, with those that were left out.
        dead: records that were left out, as user code raised on them.
        work_seconds: for each record the time of the quantum that processed it, summed over the records.
        ready_seconds: time in which the task worked on records, with the time between two pieces of work.
        running_seconds: time of user code on a processor.
        supply: records a second that it makes of rows while nothing holds it back; None before a measurement.
        version: of the routing table held.
        event_time: the greatest of the rows that a source has read of its split, in microseconds since 1970; None
            before the first.
        opens: the end of its first open window, in microseconds since 1970; None if no window is open.
    """

    stage: str
    index: int
    at: float = field(default=0.0, compare=False, kw_only=True)
    read: int = 0
    mapped: int = 0
    emitted: tuple[int, ...] = ()
    credit_seconds: tuple[float, ...] = ()
    regrouped: int = 0
    queue: int = 0
    peak_queue: int = 0
    processed: int = 0
    dead: int = 0
    forwarded: int = 0
    busy_seconds: float = 0.0
    work_seconds: float = 0.0
    ready_seconds: float = 0.0
    running_seconds: float = 0.0
    blocked_seconds: float = 0.0
    waiting_seconds: float = 0.0
    supply: float | None = None
    version: int = 0
    latency_p99: float | None = None
    event_time: int | None = None
    opens: int | None = None

    @property
    def records(self) -> RecordCounts:
        done = self.processed - self.dead
        return RecordCounts(self.read, self.mapped, sum(self.emitted), done, self.forwarded, self.dead)

    def plus(self, other: TaskStats) -> TaskStats:
        """Both tasks as one: sums, but the longer of two queues and latencies, and the newer of two tables."""
        latencies = [found for found in (self.latency_p99, other.latency_p99) if found is not None]
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in _SUMMED},
            emitted=tuple(map(sum, zip_longest(self.emitted, other.emitted, fillvalue=0))),
            credit_seconds=tuple(map(sum, zip_longest(self.credit_seconds, other.credit_seconds, fillvalue=0.0))),
            peak_queue=max(self.peak_queue, other.peak_queue),
            version=max(self.version, other.version),
            latency_p99=max(latencies, default=None),
        )


_SUMMED = (  # the numbers of two tasks that add up
    *("read", "mapped", "regrouped", "queue", "processed", "dead", "forwarded"),
    *("busy_seconds", "work_seconds", "ready_seconds", "running_seconds", "blocked_seconds"),
    "waiting_seconds",
)


@dataclass(frozen=True)
class Forgotten:
    """Tasks that went long ago, and are no longer kept one by one: their number, their statistics as one task's, and
    the sum of the seconds in which each took part."""

    tasks: int
    stats: TaskStats
    seconds: float = 0.0


@dataclass(frozen=True)
class AggregationStats:
    """Partial results of a stage that are complete.

    Attributes:
        epochs: number of times that they were published.
        seconds: time that all reducers together spent extracting, merging and publishing states, in addition to
            `busy_seconds`.
        states: states that reducers sent to the owners of their keys for it.
        rows: rows published; if the job continued from a checkpoint, since then.
    """

    epochs: int = 0
    seconds: float = 0.0
    states: int = 0
    rows: int = 0


@dataclass(frozen=True)
class LoadSample:
    """All queues at one moment.

    Attributes:
        at: seconds since the stream began.
        queues: length of each task's queue, in records.
        processed: records that each task had processed by then.
    """

    at: float
    queues: tuple[int, ...]
    processed: tuple[int, ...]


@dataclass(frozen=True)
class EventTimeStats:
    """The event time that a stage has reached, in microseconds since 1970, and what holds it.

    Attributes:
        watermark: no later row has an earlier event time; None if unknown.
        closed: windows that end by this time are closed; None if none are, or there are no windows.
        opens: end of the first open window; None if no window is open.
        source: the stage whose rows or open windows hold back the watermark; None if its inputs are idle.
        channel: the channel of that stage, if it is a source.
        task: the task that reads the first unread rows of the channel; None if none does.
    """

    watermark: int | None
    closed: int | None = None
    opens: int | None = None
    source: str | None = None
    channel: str | None = None
    task: int | None = None

    @property
    def holder(self) -> str:
        if self.source is None:
            return "nothing that comes holds it"
        channel = f", channel {self.channel}" if self.channel else ""
        return f"held by {self.source}{channel}" + ("" if self.task is None else f", which task {self.task} reads")


@dataclass(frozen=True)
class Lag:
    """Rows of a channel of an open input that have come, and that no task has read.

    Attributes:
        records: how many there are.
        seconds: for how long the first of them has been there, as far as this generation has seen.
    """

    records: int
    seconds: float


@dataclass(frozen=True)
class CheckpointStats:
    """The checkpoints of one generation of a job, or of several.

    Attributes:
        written: number of complete checkpoints.
        failed: number that could not be written.
        waited: seconds that sources waited for cuts.
        size: bytes written.
        read: input rows read before the newest checkpoint, by all generations.
        read_before: the same for the checkpoint from which the first of these generations started.
    """

    written: int = 0
    failed: int = 0
    waited: float = 0.0
    size: int = 0
    read: int = 0
    read_before: int = 0

    def __add__(self, later: CheckpointStats) -> CheckpointStats:
        summed = {name: getattr(self, name) + getattr(later, name) for name in ("written", "failed", "waited", "size")}
        return CheckpointStats(**summed, read=later.read, read_before=self.read_before)


@dataclass(frozen=True)
class CheckpointTry:
    """One checkpoint of this generation.

    Attributes:
        number: its number in the store.
        at: seconds from the start of the stream to the start of its cut.
        seconds: seconds from then until it was written, or could not be.
        size: bytes written.
        error: why it could not be written; None if it was.
    """

    number: int
    at: float
    seconds: float
    size: int = 0
    error: str | None = None


@dataclass(frozen=True)
class TaskChange:
    """A change of a stage's tasks that was carried out.

    Attributes:
        number: number of the change, from 1, over all stages.
        at: seconds from the start of the stream to the start of the change.
        stage: the stage whose tasks changed.
        started: numbers of the new tasks.
        stopped: numbers of the tasks that left.
        moved: pairs of a task that left and the new task that took over everything it had.
        seconds: seconds from the request to the end of the last task that left.
        reason: `asked for`, or what was measured of an elastic stage or of the placement.
    """

    number: int
    at: float
    stage: str
    started: tuple[int, ...]
    stopped: tuple[int, ...]
    moved: tuple[tuple[int, int], ...]
    seconds: float
    reason: str

    def in_words(self, tasks: int) -> str:
        """One sentence; `tasks`: the number that the stage has now."""
        return f"{self.stage} has {plural(tasks, 'task')} ({self.who}), after {self.seconds:.2f} s"

    @property
    def who(self) -> str:
        """What came and went: `2, 3 came`, `0 is 4 now`."""
        if self.moved:
            return ", ".join(f"{old} is {new} now" for old, new in self.moved)
        found = [(self.started, "came"), (self.stopped, "went")]
        return "; ".join(f"{', '.join(map(str, tasks))} {verb}" for tasks, verb in found if tasks)


@dataclass(frozen=True)
class PlacementLook:
    """A look at the placement while the job ran.

    Attributes:
        at: seconds since the stream began.
        busiest: used share of the busiest node's processors; above 1 if fewer processors were declared, or more
            reserved, than there are.
        crossing: bytes per second between nodes.
        moves: number of tasks to move.
        kind: why tasks were moved or not, without numbers.
        reason: the same with numbers.
    """

    at: float
    busiest: float
    crossing: float
    moves: int
    kind: str
    reason: str


@dataclass(frozen=True)
class StageSnapshot:
    """What is known of a stage. What `dpa.result.StageReport` has by the same name means the same there.

    Attributes:
        phase: of the stage, by the name of a `StagePhase`.
        tasks: statistics of each task, by number, with those that have gone but not those that are forgotten.
        members: the numbers of present tasks, during a change of those after it; empty: all of `tasks` are present.
        lives: when each of `tasks` took part; empty: all of them throughout.
        forgotten: the tasks that went before the oldest change that is kept; None: there are none.
        version: of its newest routing table.
        decisions: applied decisions and refusals in order, as many as are kept.
        lag: of an open input, by channel, as of the last few seconds; empty if its feed does not know it.
        hottest: its most frequent keys of late, the hottest first; None if its strategy does not look at keys.
        latency: seconds from source to processed of all records of the tasks that have finished; None if it was left
            out.
        stage_latency: the same from emitted to processed.
        recent_latency: seconds from source to processed of the records of the last 10 to 20 seconds; None without any.
        initial_load: the number of the processed records that the plain ring would have given to each task; empty
            until the stage has finished.
    """

    name: str
    phase: str
    tasks: tuple[TaskStats, ...]
    version: int = 0
    decisions: tuple[Decision, ...] = ()
    decision_counts: dict[str, int] = field(default_factory=dict)
    samples: tuple[LoadSample, ...] = ()
    latency: LatencySketch | None = field(default=None, compare=False)
    stage_latency: LatencySketch | None = field(default=None, compare=False)
    initial_load: tuple[int, ...] = ()
    aggregation: AggregationStats | None = None
    members: tuple[int, ...] = ()
    lives: tuple[Life, ...] = ()
    began: float | None = None
    ended: float | None = None
    scaling_counts: dict[str, int] = field(default_factory=dict)
    forgotten: Forgotten | None = None
    event_time: EventTimeStats | None = None
    hottest: tuple[MeasuredKey, ...] | None = None
    recent_latency: LatencyReport | None = None
    lag: Mapping[str, Lag] = field(default_factory=dict)

    @property
    def every_task(self) -> tuple[TaskStats, ...]:
        """Statistics whose sums are those of all tasks, the forgotten ones as one."""
        return self.tasks if self.forgotten is None else (*self.tasks, self.forgotten.stats)

    @cached_property
    def records(self) -> RecordCounts:
        return sum((task.records for task in self.every_task), RecordCounts())

    @property
    def queue(self) -> int:
        return sum(task.queue for task in self.tasks)

    @property
    def present(self) -> tuple[int, ...]:
        return self.members or tuple(task.index for task in self.tasks)

    @property
    def present_tasks(self) -> list[TaskStats]:
        numbers = set(self.present)
        return [task for task in self.tasks if task.index in numbers]

    @property
    def even_shares(self) -> list[Fraction]:
        """Of each of `tasks` in the records of the stage."""
        return even_shares([self.life(task.index) for task in self.tasks], self.records.handled)

    def life(self, index: int) -> Life:
        return self._lives.get(index, Life())

    @cached_property
    def _lives(self) -> dict[int, Life]:
        return {task.index: life for task, life in zip(self.tasks, self.lives, strict=False)}


@dataclass(frozen=True)
class Snapshot:
    """What the coordinator knows now: the live view and the report are drawn from it. What `dpa.result.Report` has by
    the same name means the same there.

    Attributes:
        phase: `startup`, `stream`, `merge` (all records are processed), `done` or `failed`.
        at: seconds since the stream began.
        rows: input rows in all; 0 if that is not known, as more may come, or might have come.
        stages: each stage, after those that feed it.
        edges: the stages that each edge joins, by name.
        use: the last reports of tasks on their use of machines; without history of those that are present, and not
            what they sent.
        checkpoint_tries: the last checkpoints, in order, with those that could not be written.
        epoch: the one that is open; None before the stream.
        steps: the last changes of tasks that were carried out, in order.
        placement_looks: the last looks at the placement; empty if they were left out, or where tasks stay.
        generation: which life of the graph this is; all numbers begin again with it.
        is_open: whether more input may come than has come.
    """

    phase: str
    at: float
    rows: int
    stages: tuple[StageSnapshot, ...]
    edges: tuple[tuple[str, str], ...] = ()
    use: Mapping[Address, TaskUse] = field(default_factory=dict)
    steps: tuple[TaskChange, ...] = ()
    placement_looks: tuple[PlacementLook, ...] = ()
    placement_counts: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    checkpoints: CheckpointStats | None = None
    errors: tuple[ErrorCount, ...] = ()
    epochs: EpochStats = field(default_factory=EpochStats)
    is_open: bool = False
    checkpoint_tries: tuple[CheckpointTry, ...] = ()
    epoch: OpenEpoch | None = None

    def __getitem__(self, stage: str) -> StageSnapshot:
        return next(found for found in self.stages if found.name == stage)

    @property
    def sources(self) -> tuple[StageSnapshot, ...]:
        fed = {target for _, target in self.edges}
        return tuple(stage for stage in self.stages if stage.name not in fed)

    @cached_property
    def records(self) -> RecordCounts:
        """Rows read and records mapped by the sources; all other counts are of all stages."""
        made = sum((stage.records for stage in self.sources), RecordCounts())
        whole = sum((stage.records for stage in self.stages), RecordCounts())
        return replace(whole, read=made.read, mapped=made.mapped)
