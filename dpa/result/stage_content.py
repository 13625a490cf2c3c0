"""What is said of one stage: facts, and tables of its tasks, decisions and hot keys.

Long tables are cut; `report.json` has them in full."""

from collections.abc import Iterator, Sequence

from dpa.balance.decision import Decision
from dpa.measure.latency import LatencyReport
from dpa.protocol.wire.metrics import RecordCounts
from dpa.result._stage import OutputReport, ReferenceReport, StageReport, TaskReport
from dpa.result.text import (
    Bar,
    Cell,
    Fact,
    Table,
    count,
    instant,
    key_text,
    latency,
    one_line,
    outcomes,
    per_record,
    percent,
    plural,
    seconds,
    skew,
)
from dpa.routing.groupings.options import RING

_MAX_LOADS = 8  # a decision's loads are listed up to this number of tasks, and summed up beyond it


_MAX_TASKS, _BUSIEST, _IDLEST, _MAX_ROWS = 64, 24, 8, 12
"""The table of tasks has all of them up to a number, otherwise the busiest and the idlest; rows of other tables."""


def tables(stage: StageReport) -> Iterator[Table]:
    """Of an operator stage."""
    yield _tasks(stage)
    yield _redistributions(stage)
    yield _changes(stage)
    yield _hot_keys(stage)


def facts(stage: StageReport, status: str) -> Iterator[Fact]:
    """Of an operator stage of a job that ended with a status."""
    if stage.records.processed:
        run = None if stage.skew is None else stage.skew.dpa
        yield _skew("skew S", run, "this run; 0 is even, 1 is all on one task")
        if stage.static_skew is not None:
            yield _skew("S, static", stage.static_skew, "the same ring without balancing")
        yield _skew(
            "S, Spark", None if stage.skew is None else stage.skew.spark, "hash partitioning of the same records"
        )
    if stage.grouping is not None and stage.grouping.kind != RING:
        held, moved = stage.grouping.replication, stage.grouping.moved
        words = [] if held is None else [f"a key on {held:.2f} tasks on average"]
        words += [f"{plural(moved, 'part')} of the keys moved"] * bool(moved)
        yield Fact("grouping", stage.grouping.kind, ", ".join(words))
    if stage.first_table is not None:
        yield Fact("first table", "", one_line(stage.first_table))
    decided = outcomes(stage.decision_counts)
    yield Fact("redistributions", count(len(stage.redistributions)), f"decisions: {decided}" if decided else "")
    yield Fact("records", count(stage.records.processed), f"processed, {count(stage.records.emitted)} emitted")
    yield forwards(stage.records)
    yield from _latency("latency p99", stage.latency, "from source to processed")
    yield from _latency("stage p99", stage.stage_latency, "from emitted to processed")
    if stage.latency is not None and stage.record_times is not None:
        spent = stage.record_times
        words = [f"{latency(spent.made)} until it was made", f"{latency(spent.credit)} for credit"]
        words += [f"{latency(spent.queued)} on its way and in the queue", f"{latency(spent.work)} in its quantum"]
        yield Fact("record", f"{latency(stage.latency.mean)} in the mean", ", ".join(words))
    if stage.aggregation is not None:
        made = f"{plural(stage.aggregation.states, 'state')} handed over"
        words = [made, f"{seconds(stage.aggregation.seconds)} of user code"]
        yield Fact("aggregation", f"published {plural(stage.aggregation.epochs, 'time')}", ", ".join(words))
    if stage.event_time is not None and stage.event_time.closed is not None:
        reached = "" if stage.event_time.watermark is None else f"event time {instant(stage.event_time.watermark)}"
        yield Fact("windows", f"closed up to {instant(stage.event_time.closed)}", reached)
    for output in filter(None, (stage.output, *stage.more_outputs)):
        yield from result(stage, output, status)
    if stage.reference.checked:
        yield compared(stage.reference)


def forwards(records: RecordCounts) -> Fact:
    return Fact("forwards", count(records.forwarded), per_record(records.forwarded, records.processed))


def compared(reference: ReferenceReport) -> Fact:
    words = {None: "not checked", True: "match", False: "MISMATCH"}
    rows = "" if reference.rows is None else f"{plural(reference.rows, 'row')}, computed by Spark"
    verdict = words[reference.matches if reference.checked else None]
    if reference.left_out:
        were = "was" if reference.left_out == 1 else "were"
        verdict += f", without {plural(reference.left_out, 'record')} that {were} left out"
    return Fact("reference", verdict, one_line(reference.why_not) if reference.why_not else rows)


def _skew(name: str, value: float | None, what: str) -> Fact:
    return Fact(name, skew(value), what, value)


def _latency(name: str, found: LatencyReport | None, what: str) -> Iterator[Fact]:
    if found is not None:
        parts = (f"{part} {latency(getattr(found, part))}" for part in ("p95", "p50", "max", "mean"))
        yield Fact(name, latency(found.p99), f"{', '.join(parts)}; {what}")


def result(stage: StageReport, output: OutputReport, status: str) -> Iterator[Fact]:
    if status != "failed":
        place = output.path or output.unpublished
        where = "in memory" if place is None else one_line(place)
        where += f", {plural(len(output.files), 'file')}" if output.files else ""
        rows = plural(output.rows, "row") + ", not published yet" * (output.unpublished is not None)
        yield Fact("result", rows, where)
    elif output.unpublished is not None:
        epochs = 0 if stage.aggregation is None else stage.aggregation.epochs
        there = f"has {plural(epochs, 'epoch')}" if epochs else "is as it was"
        what = "its end was not published" if epochs else "nothing was published"
        yield Fact("result", what, f"{one_line(output.unpublished)} {there}")


def _tasks(stage: StageReport) -> Table:
    most = max((task.share for task in stage.tasks), default=0.0) or 1.0

    def row(task: TaskReport) -> Sequence[Cell]:
        work = map(count, (task.peak_queue, task.forwarded, task.keys))
        return [str(task.id), count(task.processed), percent(task.share), Bar(task.share / most), *work]

    rows = list(map(row, stage.tasks))
    if len(stage.tasks) > _MAX_TASKS:
        ordered = sorted(stage.tasks, key=lambda task: (-task.processed, task.id))
        hidden = ordered[_BUSIEST:-_IDLEST]
        gap = ["...", count(sum(task.processed for task in hidden)), "", f"{len(hidden):,} more", "", "", ""]
        rows = [*map(row, ordered[:_BUSIEST]), gap, *map(row, ordered[-_IDLEST:])]
    numbers = (stage.load.peak_queue, stage.records.forwarded, sum(task.keys for task in stage.tasks))
    return Table(
        plural(len(stage.tasks), "task"),
        ("#task", "#records", "#share", "", "#peak queue", "#forwards", "#keys"),
        rows,
        total=("all", count(stage.records.processed), "", "", *map(count, numbers)) if rows else (),
    )


def _redistributions(stage: StageReport) -> Table:
    found = stage.redistributions
    rows = [(f"{each.at:.2f}", str(each.reducer), one_line(each.reason)) for each in found]
    return Table(plural(len(found), "redistribution"), ("#at (s)", "#task", "reason"), rows, most=_MAX_ROWS)


def _changes(stage: StageReport) -> Table:
    rows = [(f"{step.at:.2f}", step.who, f"{step.seconds:.2f}", one_line(step.reason)) for step in stage.changes]
    head = ("#at (s)", "change", "#took (s)", "reason")
    return Table(f"{plural(len(rows), 'change')} of tasks", head, rows, most=_MAX_ROWS)


def loads(decision: Decision) -> str:
    """The queues that tasks had reported, in records."""
    found = decision.loads
    if len(found) > _MAX_LOADS:
        return f"{count(max(found))} at most, {count(sum(found) / len(found))} on average"
    if decision.reducers:
        return ", ".join(f"task {reducer}: {count(load)}" for reducer, load in decision.load_of.items())
    return ", ".join(map(count, found))


def _hot_keys(stage: StageReport) -> Table:
    rows = [
        (
            key_text(hot.key),
            percent(hot.share),
            count(hot.records),
            "exact" if hot.lower == hot.upper else f"{count(hot.lower)} to {count(hot.upper)}",
        )
        for hot in stage.hot
    ]
    return Table("hot keys", ("key", "#share", "#records", "#between"), rows, most=_MAX_ROWS)
