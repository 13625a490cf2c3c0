"""The part of the final table that shows one stage, drawn with rich: its reducers, redistributions and facts.

Long lists are cut here; the report has them in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpa.balance.decision import Decision
from dpa.protocol.metrics import AggregationStats, PlanStep
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
FAINT, BAR = "dim", "cyan"

# Stands for a space that no line breaks at (rich breaks at U+00A0 too); a private character, which `_text` escapes.
TIED = "\ue000"


@dataclass(frozen=True)
class Detail:
    """How much of a stage is shown.

    Attributes:
        tasks: up to this many reducers are all shown.
        busiest, idlest: if there are more, only these.
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
    """The reducers of a stage, and its redistributions."""
    if stage.tasks:
        yield _reducers(stage, detail, ascii_only)
        yield Text()
    if stage.redistributions:
        yield from _redistributions(stage.redistributions, detail.redistributions)
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
    if decided := outcomes(stage.decision_counts):
        yield "decisions", joined(decided.split(", "))
    if stage.latency is not None:
        yield "latency", _latencies(stage.latency)
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


def _reducers(stage: StageReport, detail: Detail, ascii_only: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    for title in ("reducer", "records", "share", "", "peak queue", "forwards", "keys"):
        # Only the column of the bar may shrink on a narrow terminal.
        table.add_column(Text(title), justify="right" if title else "left", no_wrap=bool(title))
    most = max(reducer.share for reducer in stage.tasks) or 1.0

    def add(reducer: TaskReport) -> None:
        length = bar(reducer.share / most, BAR_COLUMNS, ascii_only=ascii_only)
        numbers = (reducer.peak_queue, reducer.forwarded, reducer.keys)
        table.add_row(
            str(reducer.id),
            count(reducer.processed),
            percent(reducer.share),
            Text(length.ljust(BAR_COLUMNS), BAR, no_wrap=True, overflow="crop"),
            *(count(number) for number in numbers),
        )

    shown, hidden = _shown_reducers(stage.tasks, detail)
    for reducer in shown[: detail.busiest if hidden else None]:
        add(reducer)
    if hidden:
        processed = sum(reducer.processed for reducer in hidden)
        table.add_row("...", count(processed), "", f"{len(hidden):,} more", style=FAINT)
        for reducer in shown[detail.busiest :]:
            add(reducer)
    records, keys = stage.records, sum(reducer.keys for reducer in stage.tasks)
    totals = (count(stage.load.peak_queue), count(records.forwarded), count(keys))
    table.add_row("all", count(records.processed), "", "", *totals, style="bold")
    return table


def _shown_reducers(
    reducers: Sequence[TaskReport], detail: Detail
) -> tuple[Sequence[TaskReport], Sequence[TaskReport]]:
    """The reducers to show and those to leave out: all in order, or of too many the busiest and the idlest, the busiest
    first."""
    if len(reducers) <= detail.tasks:
        return reducers, ()
    ordered = sorted(reducers, key=lambda reducer: (-reducer.processed, reducer.id))
    return [*ordered[: detail.busiest], *ordered[-detail.idlest :]], ordered[detail.busiest : -detail.idlest]


def _grouping(found: GroupingReport) -> str:
    words = [found.kind]
    if found.replication is not None:
        words.append(f"a key on {found.replication:.2f} reducers on average")
    if found.moved:
        words.append(f"{plural(found.moved, 'part')} of the keys moved")
    return joined(words)


def _skews(stage: StageReport, ascii_only: bool) -> Table:
    found = stage.skew or SkewReport()
    grid = Table.grid(padding=(0, 2, 0, 0))
    rows = (
        ("dpa", found.dpa, "this run"),
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


def _redistributions(found: Sequence[Decision], most: int) -> Iterator[RenderableType]:
    yield Text(plural(len(found), "redistribution"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True, min_width=8, style=FAINT)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for decision in found[:most]:
        grid.add_row(f"{decision.at:.1f} s", f"reducer {decision.reducer}", Text(one_line(decision.reason)))
    yield grid
    if len(found) > most:
        yield Text(f"  and {len(found) - most:,} more, in the report", FAINT)


def _changes(found: Sequence[PlanStep], most: int) -> Iterator[RenderableType]:
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


def _latencies(found: LatencyReport) -> str:
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
    return f"{one_line(output.path)} ({plural(output.rows, 'row')} in {plural(len(output.files), 'file')})"
