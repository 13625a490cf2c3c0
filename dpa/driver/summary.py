"""The report of a run, built from its last statistics and its outcome, stage by stage: busy shares, skew, hot keys and
latency are computed here and nowhere else. With it, the wall time of each phase."""

import itertools
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpa.balance.decision import Outcome
from dpa.execution.key_stats import KeyStats
from dpa.measure.bottleneck import bottleneck
from dpa.measure.load import Traffic
from dpa.measure.skew import skew
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot
from dpa.protocol.wire.use import TaskUse
from dpa.result import (
    GroupingReport,
    HotKey,
    KeyDistribution,
    LoadShares,
    RecordTimes,
    ReferenceReport,
    Report,
    Seconds,
    SkewReport,
    StageReport,
    TaskReport,
    TrafficReport,
)
from dpa.telemetry.tracker import edges_of, load_of, skew_of

_HOT_KEYS = 10
_PACKAGES = ("dpa", "ray", "pyspark", "pyarrow", "polars", "numpy", "mmh3")


def with_figures(
    known: Report, snapshot: Snapshot | None, shares: Mapping[str, Sequence[TaskOutput]], use: Mapping[Address, TaskUse]
) -> Report:
    """`known`, which says of each stage what no task reports, with the last statistics; None if no task had started.
    `shares`: of tasks in the result of their stage, unless the job failed earlier; `use`: of each task."""
    stages, seconds = {stage.name: stage for stage in known.stages}, known.seconds.stream
    if snapshot is not None:
        stages = {
            name: stage_report(
                stages.get(name, StageReport(name, "operator")), snapshot, seconds, shares.get(name, ()), use
            )
            for name in (stage.name for stage in snapshot.stages)
        }
        known = replace(known, **_of_all_stages(snapshot, seconds, use))
    return replace(known, stages=tuple(stages.values()), reference=_verdict([*stages.values()]))


def _of_all_stages(snapshot: Snapshot, seconds: float, use: Mapping[Address, TaskUse]) -> dict[str, Any]:
    loads = [load_of(stage, seconds) for stage in snapshot.stages]
    return {
        **_shared(Report, snapshot, but=("stages", "checkpoints")),  # its checkpoints are of the last generation alone
        "records_per_second": snapshot.records.mapped / seconds if seconds else 0.0,
        "bottleneck": bottleneck(loads, snapshot.edges),
        "edges": edges_of(snapshot, loads),
        "traffic": traffic_between(use, snapshot),
    }


def stage_report(
    known: StageReport, snapshot: Snapshot, seconds: float, shares: Sequence[TaskOutput], use: Mapping[Address, TaskUse]
) -> StageReport:
    """The report of a stage after a stream of `seconds` seconds; `use`: of its tasks, where it is known."""
    name, stage = known.name, snapshot[known.name]
    senders = [source for source, target in snapshot.edges if target == name]
    seen = {
        **_shared(StageReport, stage),
        "load": _load(stage, seconds),
        "tasks": _tasks(stage, shares, seconds, use),
        "changes": tuple(step for step in snapshot.steps if step.stage == name),
        "latency": stage.latency and stage.latency.report,
        "stage_latency": stage.stage_latency and stage.stage_latency.report,
    }
    if not senders:
        return replace(known, kind="source", **seen)
    stats = KeyStats.union(share.stats for share in shares) if shares else None
    # A sender counts once, though several edges may join it to this stage.
    moved = sum(task.regrouped for sender in dict.fromkeys(senders) for task in snapshot[sender].every_task)
    seen |= {
        "grouping": replace(
            known.grouping or GroupingReport(), replication=_replication(stage, shares, stats), moved=moved
        ),
        "skew": replace(
            known.skew or SkewReport(),
            dpa=skew_of(stage, snapshot.steps),
            static=skew(stage.initial_load) if stage.initial_load else None,
        ),
        "redistributions": tuple(found for found in stage.decisions if found.outcome is Outcome.APPLIED),
        "record_times": _record_times(stage, _credit_seconds(name, snapshot)),
        "hot_keys": hot_keys(stats) if stats else (),
        "key_distribution": KeyDistribution(stats.distinct, *stats.cumulative()) if stats else KeyDistribution(),
    }
    return replace(known, **seen)


def _shared(kind: type, *records: Any, but: Sequence[str] = ()) -> dict[str, Any]:
    """What records know by the names of the fields of a class: a figure keeps its name from the task to the report."""
    names = [field.name for field in fields(kind) if field.name not in but]
    return {name: getattr(record, name) for record in records for name in names if hasattr(record, name)}


def _load(stage: StageSnapshot, seconds: float) -> LoadShares:
    load = load_of(stage, seconds)
    queues = [queue for sample in stage.samples for queue in sample.queues]
    return LoadShares(
        **_shared(LoadShares, load),
        idle=max(0.0, 1 - load.busy - load.blocked - load.waiting) if stage.every_task else 0.0,
        mean_queue=sum(queues) / len(queues) if queues else 0.0,
        peak_queue=max((task.peak_queue for task in stage.every_task), default=0),
    )


def _tasks(
    stage: StageSnapshot, outputs: Sequence[TaskOutput], seconds: float, use: Mapping[Address, TaskUse]
) -> tuple[TaskReport, ...]:
    """`outputs`: the tasks' shares of the result; `seconds`: of the stream."""
    shares = dict(zip(stage.present, outputs, strict=True)) if outputs else {}
    whole = stage.records.handled
    made = []
    for task, own in zip(stage.tasks, stage.even_shares, strict=True):
        share, lived = shares.get(task.index), stage.life(task.index).seconds(seconds)
        report = TaskReport(
            **_shared(TaskReport, task, use.get(Address(stage.name, task.index), TaskUse()), but=("emitted",)),
            id=task.index,
            emitted=sum(task.emitted),
            share=task.processed / whole if whole else 0.0,
            even_share=float(own / whole) if whole else 0.0,
            keys=share.rows if share else 0,
            states=share.states if share else 0,
            lived_seconds=lived,
            idle_seconds=max(0.0, lived - task.busy_seconds - task.blocked_seconds - task.waiting_seconds),
        )
        made.append(report)
    return tuple(made)


def hot_keys(stats: KeyStats) -> tuple[HotKey, ...]:
    # The counts are exact, so both bounds equal them.
    named = stats.top[:_HOT_KEYS]
    return tuple(HotKey(key, count, count / stats.mapped, count, count) for key, count in named)


def _record_times(stage: StageSnapshot, credit_seconds: float) -> RecordTimes | None:
    whole, own = stage.latency, stage.stage_latency
    if whole is None or own is None or not whole.records:
        return None
    credit = credit_seconds / whole.records
    work = sum(task.work_seconds for task in stage.every_task) / whole.records
    return RecordTimes(max(0.0, whole.mean - own.mean - credit), credit, max(0.0, own.mean - work), work)


def _credit_seconds(name: str, snapshot: Snapshot) -> float:
    """For how long records to a stage waited at their senders, summed over the records."""
    seconds = 0.0
    for sender in dict.fromkeys(source for source, target in snapshot.edges if target == name):
        targets = [target for source, target in snapshot.edges if source == sender]
        for task in snapshot[sender].every_task:
            seconds += sum(spent for target, spent in zip(targets, task.credit_seconds, strict=False) if target == name)
    return seconds


def _replication(stage: StageSnapshot, shares: Sequence[TaskOutput], stats: KeyStats | None) -> float | None:
    """The mean number of tasks that held a key; None where it is unknown."""
    # Partial results have moved states between tasks, and closed windows are gone: counting the states that are left
    # would give too few.
    epochs = stage.aggregation.epochs if stage.aggregation else 0
    moved = epochs or (stage.event_time is not None and stage.event_time.closed is not None)
    return sum(share.states for share in shares) / stats.distinct if stats and stats.distinct and not moved else None


def traffic_between(use: Mapping[Address, TaskUse], snapshot: Snapshot) -> tuple[TrafficReport, ...]:
    """What the tasks of each pair of stages sent, in the order of stages. Forgotten tasks, which have no statistics of
    their own in the snapshot, count in the sums alone."""
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
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _verdict(stages: Sequence[StageReport]) -> ReferenceReport:
    """The comparisons of all stages as one. If there are several, each difference names its stage."""
    checked = [stage for stage in stages if stage.reference.checked]
    if len(checked) < 2:
        others = (stage.reference for stage in stages if stage.reference.why_not)
        return checked[0].reference if checked else next(others, ReferenceReport())
    differences = [f"{stage.name}: {found}" for stage in checked for found in stage.reference.differences]
    matches = all(stage.reference.matches for stage in checked)
    rows = sum(stage.reference.rows or 0 for stage in checked)
    left_out = sum(stage.reference.left_out for stage in checked)
    return ReferenceReport(True, matches, rows, tuple(differences), left_out)


class Stopwatch:
    """Wall time by phase, in seconds. A phase ends where the next one begins; `began` counts from the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.began = self._since = clock()
        self.phase: str | None = None
        self._spent = dict.fromkeys(("startup", "load", "stream", "merge", "reference"), 0.0)

    def enter(self, phase: str | None, ago: float = 0.0) -> None:
        """Record that a phase began `ago` seconds before now, but not before the last one. None: the last one ended."""
        moment = max(self._since, self._clock() - ago)
        if self.phase is not None:
            self._spent[self.phase] += moment - self._since
        self.phase, self._since = phase, moment

    def correct(self, **seconds: float) -> None:
        """Replace what was measured here by what tasks measured exactly."""
        self._spent.update(seconds)

    @property
    def since_began(self) -> float:
        return self._clock() - self.began

    def seconds(self, first_record: float | None = None) -> Seconds:
        """The times so far; `first_record` is a moment, in seconds since the epoch."""
        self.enter(self.phase)
        first = None if first_record is None else first_record - self.began
        return Seconds(**self._spent, total=self.since_began, first_record=first)
