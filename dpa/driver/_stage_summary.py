"""What a report says of one stage, computed from its last statistics and its tasks' shares of the result: busy shares,
skew, hot keys and latency are computed here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeVar

from dpa.balance.decision import Outcome
from dpa.execution.key_stats import KeyStats
from dpa.measure.latency import LatencySketch
from dpa.measure.lives import even_shares
from dpa.measure.skew import skew
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot, TaskChange, TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.result import (
    GroupingReport,
    HotKey,
    KeyDistribution,
    LatencyReport,
    LoadShares,
    OutputReport,
    RecordCounts,
    RecordTimes,
    ReferenceReport,
    SkewReport,
    StageReport,
    TaskReport,
)
from dpa.routing.groupings.options import RING
from dpa.telemetry.loads import load_of

_HOT_KEYS = 10

N = TypeVar("N", int, Fraction)


@dataclass(frozen=True)
class StageOutcome:
    """What is known of a stage besides its statistics.

    Attributes:
        grouping: by which records find its tasks.
        shares: of the result, one a task; none if the job failed before it had them.
        spark_skew: the skew of Spark's hash partitioning of its records, or None if it was not asked for.
        reference: the comparison of its result.
        output: where its result is, or None if it is not wanted.
        first_table: what its first routing table was planned from, or why it was the ring's; None if nobody asked.
    """

    grouping: str = RING
    shares: Sequence[TaskOutput] = ()
    spark_skew: float | None = None
    reference: ReferenceReport = field(default_factory=ReferenceReport)
    output: OutputReport | None = None
    first_table: str | None = None


def stage_report(
    name: str, snapshot: Snapshot, outcome: StageOutcome, seconds: float, use: Mapping[Address, TaskUse]
) -> StageReport:
    """The report of a stage after a stream of `seconds` seconds; `use`: of its tasks, as far as it is known."""
    stage = snapshot[name]
    senders = [source for source, target in snapshot.edges if target == name]
    lives = [stage.life(task.index) for task in stage.tasks]
    processed = [task.processed for task in stage.tasks]
    records = RecordCounts(
        read=sum(task.read for task in stage.every_task),
        mapped=sum(task.mapped for task in stage.every_task),
        emitted=sum(sum(task.emitted) for task in stage.every_task),
        processed=sum(task.processed - task.dead for task in stage.every_task),
        dead=sum(task.dead for task in stage.every_task),
        forwarded=sum(task.forwarded for task in stage.every_task),
    )
    handled = records.processed + records.dead
    even = even_shares(lives, handled)
    shares = dict(zip(stage.present, outcome.shares, strict=True)) if outcome.shares else {}
    tasks = tuple(
        _task(task, handled, shares.get(task.index), use.get(Address(name, task.index), TaskUse()), own, life)
        for task, own, life in zip(stage.tasks, even, (life.seconds(seconds) for life in lives), strict=True)
    )
    changes = tuple(step for step in snapshot.steps if step.stage == name)
    made = StageReport(
        name=name,
        kind="operator" if senders else "source",
        began=stage.began,
        ended=stage.ended,
        records=records,
        load=_load(stage, seconds),
        tasks=tasks,
        changes=changes,
        scaling_counts=stage.scaling_counts,
        event_time=stage.event_time,
    )
    if not senders:
        return made
    stats = KeyStats.union(share.stats for share in outcome.shares) if outcome.shares else None
    moved = sum(task.regrouped for sender in dict.fromkeys(senders) for task in snapshot[sender].every_task)
    return replace(
        made,
        grouping=GroupingReport(outcome.grouping, _replication(stage, outcome.shares, stats), moved),
        skew=SkewReport(
            skew(_by_place(stage, snapshot.steps, processed), _by_place(stage, snapshot.steps, even)),
            skew(stage.initial_load) if stage.initial_load else None,
            outcome.spark_skew,
        ),
        redistributions=tuple(found for found in stage.decisions if found.outcome is Outcome.APPLIED),
        decisions=stage.decisions,
        decision_counts=stage.decision_counts,
        latency=latency(stage.latency),
        stage_latency=latency(stage.stage_latency),
        record_times=_record_times(stage, _credit_seconds(name, snapshot)),
        hot_keys=hot_keys(stats) if stats else (),
        key_distribution=KeyDistribution(stats.distinct, *stats.cumulative()) if stats else KeyDistribution(),
        samples=stage.samples,
        aggregation=stage.aggregation,
        reference=outcome.reference,
        output=outcome.output,
        first_table=outcome.first_table,
    )


def _by_place(stage: StageSnapshot, steps: Sequence[TaskChange], numbers: Sequence[N]) -> list[N]:
    """A number of each task, such as its records; those of one that moved together, wherever it was."""
    found = {task.index: number for task, number in zip(stage.tasks, numbers, strict=True)}
    for step in steps:
        if step.stage == stage.name:
            for old, new in step.moved:
                found[new] += found.pop(old)
    return list(found.values())


def _load(stage: StageSnapshot, seconds: float) -> LoadShares:
    load = load_of(stage, seconds)
    return LoadShares(
        busy=load.busy,
        blocked=load.blocked,
        waiting=load.waiting,
        idle=max(0.0, 1 - load.busy - load.blocked - load.waiting) if stage.every_task else 0.0,
        busiest=load.busiest,
        mean_queue=_mean([queue for sample in stage.samples for queue in sample.queues]),
        peak_queue=max((task.peak_queue for task in stage.every_task), default=0),
    )


def _task(
    task: TaskStats, processed: int, share: TaskOutput | None, use: TaskUse, even: Fraction, lived: float
) -> TaskReport:
    """`processed`: records of the whole stage; `share`: the task's own of the result; `even`: its even share of the
    records; `lived`: seconds in which it took part."""
    return TaskReport(
        id=task.index,
        read=task.read,
        mapped=task.mapped,
        emitted=sum(task.emitted),
        processed=task.processed,
        forwarded=task.forwarded,
        share=task.processed / processed if processed else 0.0,
        even_share=float(even / processed) if processed else 0.0,
        peak_queue=task.peak_queue,
        keys=share.rows if share else 0,
        states=share.states if share else 0,
        lived_seconds=lived,
        busy_seconds=task.busy_seconds,
        blocked_seconds=task.blocked_seconds,
        waiting_seconds=task.waiting_seconds,
        idle_seconds=max(0.0, lived - task.busy_seconds - task.blocked_seconds - task.waiting_seconds),
        latency_p99=task.latency_p99,
        cpu_seconds=use.cpu_seconds,
        peak_memory=use.peak_memory,
        state_memory=use.state_memory,
        spilled=use.spilled,
        node=use.node,
    )


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def hot_keys(stats: KeyStats) -> tuple[HotKey, ...]:
    """The most frequent keys. Their counts are exact, so both bounds equal them."""
    named = stats.top[:_HOT_KEYS]
    return tuple(HotKey(key, count, count / stats.mapped, count, count) for key, count in named)


def latency(sketch: LatencySketch | None) -> LatencyReport | None:
    if sketch is None or not sketch.records:
        return None
    p50, p95, p99 = (sketch.quantile(share) for share in (0.5, 0.95, 0.99))
    return LatencyReport(p50, p95, p99, sketch.max, sketch.mean)


def _record_times(stage: StageSnapshot, credit_seconds: float) -> RecordTimes | None:
    """Where the time of its records went, for which senders waited these seconds for credit, all together."""
    whole, own = stage.latency, stage.stage_latency
    if whole is None or own is None or not whole.records:
        return None
    credit = credit_seconds / whole.records
    work = sum(task.work_seconds for task in stage.every_task) / whole.records
    return RecordTimes(max(0.0, whole.mean - own.mean - credit), credit, max(0.0, own.mean - work), work)


def _credit_seconds(name: str, snapshot: Snapshot) -> float:
    """Seconds for which records emitted to a stage waited at their senders, all together."""
    seconds = 0.0
    for sender in dict.fromkeys(source for source, target in snapshot.edges if target == name):
        targets = [target for source, target in snapshot.edges if source == sender]
        for task in snapshot[sender].every_task:
            seconds += sum(spent for target, spent in zip(targets, task.credit_seconds, strict=False) if target == name)
    return seconds


def _replication(stage: StageSnapshot, shares: Sequence[TaskOutput], stats: KeyStats | None) -> float | None:
    """Mean number of reducers that held a key. Aggregation moves states and closed windows drop them, so then it is
    unknown."""
    epochs = stage.aggregation.epochs if stage.aggregation else 0
    moved = epochs or (stage.event_time is not None and stage.event_time.closed is not None)
    return sum(share.states for share in shares) / stats.distinct if stats and stats.distinct and not moved else None
