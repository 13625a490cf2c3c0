"""The report of a run, built from its outcome, stage by stage, with the wall time of each phase."""

from __future__ import annotations

import itertools
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from dpa._secrets import without_secrets
from dpa.config import JobConfig
from dpa.driver._stage_summary import StageOutcome, stage_report
from dpa.measure.bottleneck import bottleneck, held_up
from dpa.measure.traffic import Traffic
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.epochs import EpochStats
from dpa.protocol.wire.metrics import CheckpointStats, Snapshot
from dpa.protocol.wire.use import TaskUse
from dpa.result import (
    EdgeReport,
    RecordCounts,
    RecoveryReport,
    ReferenceReport,
    Report,
    Seconds,
    StageReport,
    TrafficReport,
)
from dpa.telemetry.loads import load_of

_PACKAGES = ("dpa", "ray", "pyspark", "pyarrow", "polars", "numpy", "mmh3")


def build_report(
    *,
    status: str,
    config: JobConfig,
    seconds: Seconds,
    snapshot: Snapshot | None = None,
    outcomes: Mapping[str, StageOutcome] | None = None,
    use: Mapping[Address, TaskUse] | None = None,
    warnings: Sequence[str] = (),
    recoveries: Sequence[RecoveryReport] = (),
    checkpoints: CheckpointStats | None = None,
    dead_letters: str | None = None,
    error: str | None = None,
) -> Report:
    """`snapshot`: the last statistics, or None if no task had started; `outcomes`: by stage; `use`: of each task."""
    known, used = outcomes or {}, use or {}
    if snapshot is None:
        stages = tuple(_unstarted(name, outcome) for name, outcome in known.items())
    else:
        stages = tuple(
            stage_report(stage.name, snapshot, known.get(stage.name, StageOutcome()), seconds.stream, used)
            for stage in snapshot.stages
        )
    sources = [stage.records for stage in stages if stage.kind == "source"]
    mapped = sum(records.mapped for records in sources)
    loads = [load_of(stage, seconds.stream) for stage in snapshot.stages] if snapshot else []
    edges = snapshot.edges if snapshot else ()
    return Report(
        status=status,
        name=config.name,
        seconds=seconds,
        records=RecordCounts(
            read=sum(records.read for records in sources),
            mapped=mapped,
            emitted=sum(stage.records.emitted for stage in stages),
            processed=sum(stage.records.processed for stage in stages),
            dead=sum(stage.records.dead for stage in stages),
            forwarded=sum(stage.records.forwarded for stage in stages),
        ),
        records_per_second=mapped / seconds.stream if seconds.stream else 0.0,
        bottleneck=bottleneck(loads, edges),
        stages=stages,
        edges=_edges(snapshot, held_up(loads, edges)) if snapshot else (),
        traffic=traffic_between(used, snapshot) if snapshot else (),
        placement_looks=snapshot.placement_looks if snapshot else (),
        placement_counts=dict(snapshot.placement_counts) if snapshot else {},
        reference=_verdict(stages),
        config=without_secrets(config.resolved()),
        versions=versions(),
        warnings=tuple(warnings),
        recoveries=tuple(recoveries),
        checkpoints=checkpoints,
        errors=snapshot.errors if snapshot else (),
        dead_letters=dead_letters,
        epochs=snapshot.epochs if snapshot else EpochStats(),
        error=error,
    )


def traffic_between(use: Mapping[Address, TaskUse], snapshot: Snapshot) -> tuple[TrafficReport, ...]:
    """What the tasks of each pair of stages sent, in the order of stages. Those that are forgotten, of which the
    snapshot has no statistics, are in the sums alone."""
    tasks = {stage.name: [task.index for task in stage.tasks] for stage in snapshot.stages}
    totals: defaultdict[tuple[str, str], Traffic] = defaultdict(Traffic)
    for address, used in use.items():
        for receiver, traffic in used.sent.items():
            totals[address.stage, receiver.stage] += traffic
    found = []
    for source, target in itertools.product(tasks, tasks):
        total = totals[source, target]
        if total.messages:
            sent = [use.get(Address(source, one), TaskUse()).sent for one in tasks[source]]
            receivers = [Address(target, other) for other in tasks[target]]
            pairs = tuple(tuple(of.get(other, Traffic()).bytes for other in receivers) for of in sent)
            found.append(TrafficReport(source, target, total.messages, total.records, total.bytes, pairs))
    return tuple(found)


def versions() -> dict[str, str]:
    """Of what a result depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _unstarted(name: str, outcome: StageOutcome) -> StageReport:
    return StageReport(name, "operator", reference=outcome.reference, output=outcome.output)


def _edges(snapshot: Snapshot, blocked: Sequence[bool]) -> tuple[EdgeReport, ...]:
    """The edges with their records, which senders count by the position of an edge among those that leave them."""
    made: list[EdgeReport] = []
    for (source, target), is_blocked in zip(snapshot.edges, blocked, strict=True):
        position = sum(edge.source == source for edge in made)
        records = sum(task.emitted[position] for task in snapshot[source].every_task if task.emitted)
        made.append(EdgeReport(source, target, records, is_blocked))
    return tuple(made)


def _verdict(stages: Sequence[StageReport]) -> ReferenceReport:
    """The comparisons of all stages as one; of several, each difference names its stage."""
    checked = [stage for stage in stages if stage.reference.checked]
    if len(checked) < 2:
        others = (stage.reference for stage in stages if stage.reference.why_not)
        return checked[0].reference if checked else next(others, ReferenceReport())
    differences = [f"{stage.name}: {found}" for stage in checked for found in stage.reference.differences]
    matches = all(stage.reference.matches for stage in checked)
    rows, left_out = (
        sum(found or 0 for found in each)
        for each in zip(*((stage.reference.rows, stage.reference.left_out) for stage in checked), strict=True)
    )
    return ReferenceReport(True, matches, rows, tuple(differences), left_out)


class Stopwatch:
    """Wall time by phase, in seconds. A phase ends where the next one begins; `began` counts from the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.began = self._since = clock()
        self.phase: str | None = None
        self._spent = dict.fromkeys(("startup", "load", "stream", "merge", "reference"), 0.0)

    def enter(self, phase: str | None, ago: float = 0.0) -> None:
        """Record that a phase began `ago` seconds before now, but not before the last one; with None, that the last
        one ended."""
        moment = max(self._since, self._clock() - ago)
        if self.phase is not None:
            self._spent[self.phase] += moment - self._since
        self.phase, self._since = phase, moment

    def correct(self, **seconds: float) -> None:
        """Replace what was measured from outside by what is known exactly."""
        self._spent.update(seconds)

    @property
    def since_began(self) -> float:
        return self._clock() - self.began

    def seconds(self, first_record: float | None = None) -> Seconds:
        """The times so far; `first_record` is a moment, in seconds since the epoch."""
        self.enter(self.phase)
        first = None if first_record is None else first_record - self.began
        return Seconds(**self._spent, total=self.since_began, first_record=first)
