"""The report of a run: what is known of the whole job, of each stage, and of the edges between them."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from dpa._util.version import REPORT
from dpa.measure.bottleneck import Bottleneck, EdgeReport
from dpa.protocol.wire.epochs import EpochStats
from dpa.protocol.wire.metrics import CheckpointStats, PlacementLook, RecordCounts
from dpa.result._stage import ReferenceReport, StageReport, TrafficReport
from dpa.tolerance import ErrorCount


@dataclass(frozen=True)
class Seconds:
    """Wall time by phase.

    Attributes:
        startup: seconds from the loaded input until Ray and the actors are ready.
        load: seconds to start Spark, make the splits and resolve the reference query. Ray and the actors start in
            parallel.
        stream: seconds of mapping and reducing.
        merge: seconds of merging the reducers' states.
        reference: seconds after the stream until the reference and Spark's skew are computed.
        total: seconds from start to end.
        first_record: seconds from the start of the job to the first processed record; None if there was none.
    """

    startup: float = 0.0
    load: float = 0.0
    stream: float = 0.0
    merge: float = 0.0
    reference: float = 0.0
    total: float = 0.0
    first_record: float | None = None


@dataclass(frozen=True)
class RecoveryReport:
    """A process died and ended a generation; then the job was begun again, or resumed.

    Attributes:
        generation: number of the generation that ended, from 0.
        at: seconds from the start of the job until the death was noticed.
        task: what died: a task, the `load balancer`, the `coordinator`, a `control relay` by its number, or the
            previous `driver`.
        node: its node; empty if the job has only one, or if the node is unknown.
        cause: why it died, as Ray reports.
        rows: input rows read by then, as last reported, that the next generation read again; None after the death of a
            driver.
        seconds: seconds from `at` until records were processed again; None if none were.
        begun: seconds from `at` until the next generation had a coordinator, after the back-off; None if none came.
        restored: seconds from `at` until its tasks were up, with their states; None if they never were.
    """

    generation: int
    at: float
    task: str
    node: str
    cause: str
    rows: int | None
    seconds: float | None = None
    begun: float | None = None
    restored: float | None = None


@dataclass(frozen=True)
class JoinReport:
    """The form of a join.

    Attributes:
        step: the join's name.
        form: `broadcast`: every task has the rows of one side; `shuffled`: the rows of both sides go to tasks by key.
        side: the step whose rows every task has; None if it is shuffled.
        rows: number of these rows.
        bytes: size of these rows in memory.
        why: the reason for the form.
    """

    step: str
    form: str
    side: str | None = None
    rows: int | None = None
    bytes: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Report:
    """One run of one job; `report.json` is its `to_dict()`.

    Attributes:
        status: `ok`, `failed` or `mismatch`.
        name: the job's name.
        backend: where the tasks ran: `ray`, or `local` in the process of the job.
        seconds: wall time by phase.
        records: rows read and records mapped by all sources; records emitted, processed and forwarded by all stages.
        records_per_second: `records.mapped` divided by `seconds.stream`.
        bottleneck: what limited the run.
        stages: each stage after its inputs. If no task has reported anything, only the stages with a result.
        edges: the edges of the graph.
        joins: how each join was done.
        traffic: messages between the tasks of each pair of stages; empty if tasks are not processes. If the job failed,
            as last reported, up to a second before.
        placement_looks: the last 512 checks of the placement while the job ran.
        placement_counts: how often a check moved no task, by reason.
        reference: the comparisons of all stages combined; each difference names its stage.
        config: the resolved configuration, as in `resolved.yaml`.
        versions: versions of dpa and of what it ran on, by name.
        warnings: one for each minute that a task spent in one step, in order.
        recoveries: restarts after deaths of processes. All other numbers are the last generation's, except
            `seconds.startup` and `seconds.total`.
        checkpoints: checkpoints of all generations; None if the job makes none.
        errors: errors in user code that did not fail the job, by step and type, most records first.
        dead_letters: place of the records on which user code raised; None if they are not kept.
        epochs: epochs of the stream, which end with a cut for partial results or a checkpoint.
        error: why the job failed; None if it did not.
    """

    status: str
    name: str
    backend: str = "ray"
    seconds: Seconds = field(default_factory=Seconds)
    records: RecordCounts = field(default_factory=RecordCounts)
    records_per_second: float = 0.0
    bottleneck: Bottleneck = field(default_factory=Bottleneck)
    stages: tuple[StageReport, ...] = ()
    edges: tuple[EdgeReport, ...] = ()
    joins: tuple[JoinReport, ...] = ()
    traffic: tuple[TrafficReport, ...] = ()
    placement_looks: tuple[PlacementLook, ...] = ()
    placement_counts: dict[str, int] = field(default_factory=dict)
    reference: ReferenceReport = field(default_factory=ReferenceReport)
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    recoveries: tuple[RecoveryReport, ...] = ()
    checkpoints: CheckpointStats | None = None
    errors: tuple[ErrorCount, ...] = ()
    dead_letters: str | None = None
    epochs: EpochStats = field(default_factory=EpochStats)
    error: str | None = None

    def __getitem__(self, stage: str) -> StageReport:
        """The stage of a name.

        Raises:
            KeyError: no stage has it.
        """
        try:
            return next(found for found in self.stages if found.name == stage)
        except StopIteration:
            raise KeyError(
                f"there is no stage {stage!r}; the stages are {[found.name for found in self.stages]}"
            ) from None

    def taken_in(self, stage: str) -> int:
        """The records emitted to a stage, or the rows that a source has read."""
        found = self[stage]
        if found.kind == "source":
            return found.records.read
        return sum(edge.records for edge in self.edges if edge.target == stage)

    def given_out(self, stage: str) -> int:
        """The records that a stage emitted, or the rows of its result if no other follows."""
        followed, found = any(edge.source == stage for edge in self.edges), self[stage]
        if followed:
            return found.records.emitted
        return sum(task.keys for task in found.tasks) if found.output is None else found.output.rows

    @property
    def sources(self) -> tuple[StageReport, ...]:
        return tuple(stage for stage in self.stages if stage.kind == "source")

    @property
    def operators(self) -> tuple[StageReport, ...]:
        return tuple(stage for stage in self.stages if stage.kind == "operator")

    @property
    def main(self) -> StageReport:
        """The last operator stage: of a job with one mapper and one reducer, the reducer's. An empty one if none is
        known."""
        return next(reversed(self.operators), StageReport("", "operator"))

    @property
    def is_graph(self) -> bool:
        # More than one source and one operator: screens then show a line for each stage.
        return len(self.stages) > 2

    @property
    def is_stale(self) -> bool:
        """Whether tasks reported their counts at different moments, as the job failed while records were on their way.
        Then more may have been read and processed, and more may seem processed than emitted."""
        records = self.records
        return self.status == "failed" and records.processed + records.dead != records.emitted

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready plain data, with `schema` naming its version (docs/report.md)."""
        return {"schema": REPORT, **dataclasses.asdict(self)}
