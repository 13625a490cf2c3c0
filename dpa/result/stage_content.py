"""What is said of one stage: facts, and tables of its tasks, decisions and hot keys.

Long tables are cut on a terminal; the page and `report.json` have them in full.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dpa.balance.decision import Decision
from dpa.protocol.wire.metrics import RecordCounts
from dpa.result._stage import LatencyReport, OutputReport, ReferenceReport, StageReport, TaskReport
from dpa.result.text import (
    Bar,
    Cell,
    Fact,
    Table,
    count,
    instant,
    key_text,
    latency,
    mebibytes,
    one_line,
    outcomes,
    per_record,
    percent,
    plural,
    seconds,
    skew,
)
from dpa.routing.groupings.options import RING

_MAX_LOADS = 8
"""A decision's loads are listed up to this number of tasks, and summed up beyond it."""


class Detail(NamedTuple):
    """How much of a stage is shown: all tasks up to a number, of more the busiest and the idlest; and rows of any other
    table on a terminal."""

    tasks: int
    busiest: int
    idlest: int
    rows: int


FULL = Detail(tasks=64, busiest=24, idlest=8, rows=12)
"""Of the stage of the smallest graph."""
BRIEF = Detail(tasks=8, busiest=4, idlest=2, rows=3)
"""Of each stage of any other."""
ALL = Detail(tasks=sys.maxsize, busiest=0, idlest=0, rows=0)
"""On the page, which folds long tables away."""


class StageSection(NamedTuple):
    """A part of what is said of a stage: tables below a picture (`plots.PICTURES`) and its description, if there is
    one."""

    title: str
    tables: Sequence[Table]
    picture: str = ""
    caption: str = ""


def sections(stage: StageReport, detail: Detail) -> Iterator[StageSection]:
    if stage.kind == "source":
        rows = [_figures(task, _OF_A_SOURCE) for task in stage.tasks]
        yield StageSection("Tasks", [Table(plural(len(rows), "task"), _OF_A_SOURCE, rows)])
        return
    caption = "Records that each task processed, against an even share."
    yield StageSection("Load of the tasks", [_tasks(stage, detail)], "records-per-task", caption)
    caption = "Queue length of each task over time; triangles mark redistributions."
    applied, kept = stage.redistributions, stage.decisions
    happened = [
        _decisions(plural(len(applied), "redistribution"), applied, 3, detail.rows, "No redistribution.", 16),
        _changes(stage, detail.rows),
        _decisions(f"{plural(len(kept), 'decision')} kept", kept, 0, None, "", 0),
    ]
    yield StageSection("Queues and redistributions", happened, "queue-lengths", caption)
    caption = "Share of all records held by the most frequent keys together."
    yield StageSection("Keys", [_hot_keys(stage, detail.rows)], "key-distribution", caption)


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
        yield from result(output, status)
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


def result(output: OutputReport, status: str) -> Iterator[Fact]:
    if status != "failed":
        where = "in memory" if output.path is None else one_line(output.path)
        where += f", {plural(len(output.files), 'file')}" if output.files else ""
        yield Fact("result", plural(output.rows, "row"), where)
    elif output.unpublished is not None:
        yield Fact("result", "nothing was published", f"{one_line(output.unpublished)} is as it was")


_OF_A_TASK: dict[str, Callable[[TaskReport], str]] = {
    "#task": lambda task: str(task.id),
    "#rows read": lambda task: count(task.read),
    "#mapped": lambda task: count(task.mapped),
    "#emitted": lambda task: count(task.emitted),
    "#records": lambda task: count(task.processed),
    "#share": lambda task: percent(task.share),
    "#peak queue": lambda task: count(task.peak_queue),
    "#forwards": lambda task: count(task.forwarded),
    "#keys": lambda task: count(task.keys),
    "#busy": lambda task: seconds(task.busy_seconds),
    "#blocked": lambda task: seconds(task.blocked_seconds),
    "#waiting": lambda task: seconds(task.waiting_seconds),
    "#MiB": lambda task: mebibytes(task.peak_memory),
    "#latency p99": lambda task: latency(task.latency_p99),
}
_OF_A_SOURCE = ("#task", "#rows read", "#mapped", "#emitted", "#busy", "#blocked", "#waiting", "#MiB")
_OF_RECORDS = ("#task", "#records", "#share")
_OF_WORK = ("#peak queue", "#forwards", "#keys", "#busy", "#blocked", "#MiB", "#latency p99")


def _figures(task: TaskReport, names: Sequence[str]) -> list[Cell]:
    return [_OF_A_TASK[name](task) for name in names]


def _tasks(stage: StageReport, detail: Detail) -> Table:
    most = max((task.share for task in stage.tasks), default=0.0) or 1.0

    def row(task: TaskReport) -> Sequence[Cell]:
        return [*_figures(task, _OF_RECORDS), Bar(task.share / most), *_figures(task, _OF_WORK)]

    rows = list(map(row, stage.tasks))
    if len(stage.tasks) > detail.tasks:
        ordered = sorted(stage.tasks, key=lambda task: (-task.processed, task.id))
        hidden = ordered[detail.busiest : -detail.idlest]
        gap = ["...", count(sum(task.processed for task in hidden)), "", f"{len(hidden):,} more", *[""] * len(_OF_WORK)]
        rows = [*map(row, ordered[: detail.busiest]), gap, *map(row, ordered[-detail.idlest :])]
    numbers = (stage.load.peak_queue, stage.records.forwarded, sum(task.keys for task in stage.tasks))
    return Table(
        plural(len(stage.tasks), "task"),
        (*_OF_RECORDS, "", *_OF_WORK),
        rows,
        narrow=7,
        total=("all", count(stage.records.processed), "", "", *map(count, numbers), *[""] * 4) if rows else (),
        absent="No task had started.",
        open_up_to=64,
    )


def _decisions(title: str, found: Sequence[Decision], narrow: int, most: int | None, absent: str, fold: int) -> Table:
    rows = [
        (
            f"{decision.at:.2f}",
            str(decision.reducer),
            one_line(decision.reason),
            decision.outcome.value.replace("_", " "),
            str(decision.round),
            "" if decision.version is None else count(decision.version),
            _loads(decision),
        )
        for decision in found
    ]
    head = ("#at (s)", "#task", "reason", "outcome", "#round", "#table", "loads reported (records)")
    return Table(title, head, rows, narrow, most=most, absent=absent, open_up_to=fold)


def _changes(stage: StageReport, most: int) -> Table:
    rows = [(f"{step.at:.2f}", step.who, f"{step.seconds:.2f}", one_line(step.reason)) for step in stage.changes]
    head = ("#at (s)", "change", "#took (s)", "reason")
    return Table(f"{plural(len(rows), 'change')} of tasks", head, rows, most=most)


def _loads(decision: Decision) -> str:
    loads = decision.loads
    if len(loads) > _MAX_LOADS:
        return f"{count(max(loads))} at most, {count(sum(loads) / len(loads))} on average"
    if decision.reducers:
        return ", ".join(f"task {reducer}: {count(load)}" for reducer, load in decision.load_of.items())
    return ", ".join(map(count, loads))


def _hot_keys(stage: StageReport, most: int) -> Table:
    greatest = max((hot.share for hot in stage.hot), default=0.0) or 1.0
    rows = [
        (
            key_text(hot.key),
            percent(hot.share),
            count(hot.records),
            "exact" if hot.lower == hot.upper else f"{count(hot.lower)} to {count(hot.upper)}",
            Bar(hot.share / greatest),
        )
        for hot in stage.hot
    ]
    absent = "No key is hot: none makes a task uneven."
    return Table("hot keys", ("key", "#share", "#records", "#between", ""), rows, 4, most=most, absent=absent)
