"""The part of the final table that shows one stage, drawn with rich: its tasks, redistributions and facts.

A task is named by its stage and its number, as `python -m dpa.control` names it.

Long lists are cut here; the report has them in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpa.protocol.wire.metrics import AggregationStats, TaskChange
from dpa.report._text import (
    bar,
    change_in_words,
    count,
    key_text,
    latency,
    one_line,
    outcomes,
    percent,
    plural,
    seconds,
    skew,
)
from dpa.result import GroupingReport, LatencyReport, OutputReport, SkewReport, StageReport, TaskReport
from dpa.routing.groupings.options import RING

BAR_COLUMNS = 10
NAME_COLUMNS = 20
"""Characters of a stage's name above and before the numbers of its tasks."""
FAINT, BAR = "dim", "cyan"

# Stands for a space that no line breaks at (rich breaks at U+00A0 too); a private character, which `_text` escapes.
TIED = "\ue000"


@dataclass(frozen=True)
class Detail:
    """How much of a stage is shown.

    Attributes:
        tasks: up to this many are all shown.
        busiest, idlest: tasks; if there are more, only these.
        redistributions: listed with their reasons.
        hot_keys: named.
    """

    tasks: int
    busiest: int
    idlest: int
    redistributions: int
    hot_keys: int


FULL = Detail(tasks=64, busiest=24, idlest=8, redistributions=12, hot_keys=10)
"""Of the stage of the smallest graph."""
BRIEF = Detail(tasks=8, busiest=4, idlest=2, redistributions=3, hot_keys=3)
"""Of each stage of any other."""


def tables(stage: StageReport, detail: Detail, ascii_only: bool) -> Iterator[RenderableType]:
    """The tasks of a stage, its redistributions, and the changes of its tasks."""
    if stage.tasks:
        yield _tasks(stage, detail, ascii_only)
        yield Text()
    if stage.redistributions:
        yield from _redistributions(stage, detail.redistributions)
        yield Text()
    if stage.changes:
        yield from _changes(stage.changes, detail.redistributions)
        yield Text()


def facts(stage: StageReport, detail: Detail, ascii_only: bool) -> Iterator[tuple[str, RenderableType]]:
    """What is known of a stage, each with its name."""
    if stage.records.processed:
        yield "skew S", _skews(stage, ascii_only)
    if stage.grouping is not None and stage.grouping.kind != RING:
        yield "grouping", _grouping(stage.grouping)
    if stage.first_table is not None:
        yield "first table", Text(one_line(stage.first_table))
    if decided := outcomes(stage.decision_counts):
        yield "decisions", joined(decided.split(", "))
    if stage.latency is not None:
        yield "latency", latency_words(stage.latency)
    if stage.aggregation is not None:
        yield "aggregation", _aggregation(stage.aggregation)
    if stage.hot:
        yield "hot keys", _hot_keys(stage, detail.hot_keys)


def output_words(output: OutputReport, status: str) -> str | None:
    """Where a result is, or that nothing was published; None if there is none."""
    if status != "failed":
        return _output(output)
    if output.unpublished is not None:
        return f"nothing was published; {one_line(output.unpublished)} is as it was"
    return None


def joined(parts: Iterable[str]) -> str:
    """`parts` with commas, so that lines break between them and never inside."""
    return ", ".join(unbroken(part) for part in parts)


def unbroken(text: str) -> str:
    """`text` on one line."""
    return text.replace(" ", TIED)


def _tasks(stage: StageReport, detail: Detail, ascii_only: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    for title in (one_line(stage.name, NAME_COLUMNS), "records", "share", "", "peak queue", "forwards", "keys"):
        # Only the column of the bar may shrink on a narrow terminal.
        table.add_column(Text(title), justify="right" if title else "left", no_wrap=bool(title))
    most = max(task.share for task in stage.tasks) or 1.0

    def add(task: TaskReport) -> None:
        length = bar(task.share / most, BAR_COLUMNS, ascii_only=ascii_only)
        numbers = (task.peak_queue, task.forwarded, task.keys)
        table.add_row(
            str(task.id),
            count(task.processed),
            percent(task.share),
            Text(length.ljust(BAR_COLUMNS), BAR, no_wrap=True, overflow="crop"),
            *(count(number) for number in numbers),
        )

    shown, hidden = _shown_tasks(stage.tasks, detail)
    for task in shown[: detail.busiest if hidden else None]:
        add(task)
    if hidden:
        processed = sum(task.processed for task in hidden)
        table.add_row("...", count(processed), "", f"{len(hidden):,} more", style=FAINT)
        for task in shown[detail.busiest :]:
            add(task)
    records, keys = stage.records, sum(task.keys for task in stage.tasks)
    totals = (count(stage.load.peak_queue), count(records.forwarded), count(keys))
    table.add_row("all", count(records.processed), "", "", *totals, style="bold")
    return table


def _shown_tasks(tasks: Sequence[TaskReport], detail: Detail) -> tuple[Sequence[TaskReport], Sequence[TaskReport]]:
    """The tasks to show and those to leave out: all in order, or of too many the busiest and the idlest, the busiest
    first."""
    if len(tasks) <= detail.tasks:
        return tasks, ()
    ordered = sorted(tasks, key=lambda task: (-task.processed, task.id))
    return [*ordered[: detail.busiest], *ordered[-detail.idlest :]], ordered[detail.busiest : -detail.idlest]


def _grouping(found: GroupingReport) -> str:
    words = [found.kind]
    if found.replication is not None:
        words.append(f"a key on {found.replication:.2f} tasks on average")
    if found.moved:
        words.append(f"{plural(found.moved, 'part')} of the keys moved")
    return joined(words)


def _skews(stage: StageReport, ascii_only: bool) -> Table:
    found = stage.skew or SkewReport()
    grid = Table.grid(padding=(0, 2, 0, 0))
    rows = (
        ("dpa", found.dpa, "this run; 0 is even, 1 all on one task"),
        ("static", stage.static_skew, "the same ring without balancing"),
        ("Spark", found.spark, "hash partitioning"),
    )
    for name, value, what in rows:
        if name == "static" and value is None:
            continue
        length = bar(value or 0.0, BAR_COLUMNS, ascii_only=ascii_only).ljust(BAR_COLUMNS)
        missing = value is None
        grid.add_row(name, skew(value), "" if missing else Text(length, BAR), "" if missing else Text(what, FAINT))
    return grid


def _redistributions(stage: StageReport, most: int) -> Iterator[RenderableType]:
    found, name = stage.redistributions, one_line(stage.name, NAME_COLUMNS)
    yield Text(plural(len(found), "redistribution"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True, min_width=8, style=FAINT)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for decision in found[:most]:
        grid.add_row(f"{decision.at:.1f} s", f"{name} {decision.reducer}", Text(one_line(decision.reason)))
    yield grid
    if len(found) > most:
        yield Text(f"  and {len(found) - most:,} more, in the report", FAINT)


def _changes(found: Sequence[TaskChange], most: int) -> Iterator[RenderableType]:
    yield Text(f"{plural(len(found), 'change')} of tasks")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True, min_width=8, style=FAINT)
    grid.add_column()
    grid.add_column(style=FAINT)
    for step in found[:most]:
        grid.add_row(f"{step.at:.1f} s", change_in_words(step), f"{one_line(step.reason)}, in {seconds(step.seconds)}")
    yield grid
    if len(found) > most:
        yield Text(f"  and {len(found) - most:,} more, in the report", FAINT)


def latency_words(found: LatencyReport) -> str:
    """Quantiles, the longest and the mean."""
    return joined(f"{name} {latency(getattr(found, name))}" for name in ("p99", "p95", "p50", "max", "mean"))


def _aggregation(found: AggregationStats) -> str:
    states = f"{plural(found.states, 'state')} handed over"
    return joined([plural(found.rounds, "round"), states, f"{seconds(found.seconds)} of user code"])


def _hot_keys(stage: StageReport, most: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(max_width=40)  # the only column that may shrink
    for _ in range(2):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(style=FAINT, no_wrap=True)
    for hot in stage.hot[:most]:
        bounds = "exact" if hot.lower == hot.upper else f"{count(hot.lower)} to {count(hot.upper)}"
        key = Text(key_text(hot.key), no_wrap=True, overflow="ellipsis")
        grid.add_row(key, percent(hot.share), count(hot.records), bounds)
    return grid


def _output(output: OutputReport) -> str:
    if output.path is None:
        return f"{plural(output.rows, 'row')}, in memory"
    files = f" in {plural(len(output.files), 'file')}" if output.files else ""
    return f"{one_line(output.path)} ({plural(output.rows, 'row')}{files})"
