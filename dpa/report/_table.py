"""The parts of the final table, drawn with rich: reducers, redistributions, facts, differences from the reference.

Whatever is long is bounded here, and the report has the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import pyarrow as pa
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dpa.balance.decision import Decision
from dpa.protocol.metrics import AggregationStats
from dpa.report._text import (
    bar,
    count,
    forwards,
    key_text,
    latency,
    lines,
    one_line,
    outcomes,
    percent,
    plural,
    seconds,
    skew,
)
from dpa.result import GroupingReport, LatencyReport, OutputReport, ReducerReport, Report, Seconds
from dpa.routing.groupings.options import RING

MOST_REDUCERS = 64
"""Beyond this many reducers the table shows only the busiest and the idlest."""
BUSIEST, IDLEST = 24, 8
MOST_REDISTRIBUTIONS = 12
"""Redistributions listed with their reasons; the report has them all."""
MOST_HOT_KEYS = 10
MOST_DIFFERENCES = 20
MOST_ROWS, MOST_COLUMNS, MOST_CELL = 10, 8, 60
"""Rows and columns of a result that are shown, and characters of a value."""
BAR_COLUMNS = 10

GOOD, BAD, FAINT, BAR = "bold green", "bold red", "dim", "cyan"

# Stands for a space that no line breaks at (rich breaks at U+00A0 too); a private character, which `_text` escapes.
_TIED = "\ue000"


def drawn(
    report: Report, verdict: str, files: Sequence[Path], result: pa.Table | None, stream: TextIO, width: int | None
) -> list[str]:
    """The lines of the table with the `verdict` on the reference, in the colours that `stream` can show."""
    console = Console(file=stream, width=width, force_jupyter=False, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        for part in _parts(report, verdict, files, result, ascii_only=console.options.ascii_only):
            console.print(part)
    return [line.rstrip() for line in captured.get().replace(_TIED, " ").splitlines()]


def _parts(
    report: Report, verdict: str, files: Sequence[Path], result: pa.Table | None, ascii_only: bool
) -> Iterator[RenderableType]:
    status = {"ok": GOOD}.get(report.status, BAD)
    yield Text.assemble((one_line(report.name, 60), "bold"), ": ", (one_line(report.status, 60), status))
    if report.reducers:
        yield Text()
        yield _reducers(report, ascii_only)
    if report.redistributions:
        yield Text()
        yield from _redistributions(report.redistributions)
    yield Text()
    yield _facts(report, files, ascii_only)
    if result is not None and result.num_rows:
        yield Text()
        yield from _first_rows(result)
        yield Text()
    if report.reference.differences:
        yield Text()
        yield Text("the result differs from the reference:", BAD)
        for difference in report.reference.differences[:MOST_DIFFERENCES]:
            yield Text(f"  {one_line(difference)}")
    yield Text(verdict)
    if report.error is not None:
        yield Text()
        for line in lines(report.error):
            yield Text(line, BAD)


def _reducers(report: Report, ascii_only: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    for title in ("reducer", "records", "share", "", "peak queue", "forwards", "keys"):
        # Of all columns only the bar may shrink where there is little room.
        table.add_column(Text(title), justify="right" if title else "left", no_wrap=bool(title))
    most = max(reducer.share for reducer in report.reducers) or 1.0

    def add(reducer: ReducerReport) -> None:
        length = bar(reducer.share / most, BAR_COLUMNS, ascii_only=ascii_only)
        numbers = (reducer.peak_queue, reducer.forwarded, reducer.keys)
        table.add_row(
            str(reducer.id),
            count(reducer.processed),
            percent(reducer.share),
            Text(length.ljust(BAR_COLUMNS), BAR, no_wrap=True, overflow="crop"),
            *(count(number) for number in numbers),
        )

    shown, hidden = _shown_reducers(report.reducers)
    for reducer in shown[: BUSIEST if hidden else None]:
        add(reducer)
    if hidden:
        processed = sum(reducer.processed for reducer in hidden)
        table.add_row("...", count(processed), "", f"{len(hidden):,} more", style=FAINT)
        for reducer in shown[BUSIEST:]:
            add(reducer)
    records = report.records
    peak = max(reducer.peak_queue for reducer in report.reducers)
    totals = (count(peak), count(records.forwarded), count(sum(reducer.keys for reducer in report.reducers)))
    table.add_row("all", count(records.processed), "", "", *totals, style="bold")
    return table


def _shown_reducers(reducers: Sequence[ReducerReport]) -> tuple[list[ReducerReport], list[ReducerReport]]:
    """All as they are; or of too many the `BUSIEST` and the `IDLEST`, the busiest first, and those left out."""
    if len(reducers) <= MOST_REDUCERS:
        return list(reducers), []
    ordered = sorted(reducers, key=lambda reducer: (-reducer.processed, reducer.id))
    return [*ordered[:BUSIEST], *ordered[-IDLEST:]], ordered[BUSIEST:-IDLEST]


def _facts(report: Report, files: Sequence[Path], ascii_only: bool) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=FAINT, no_wrap=True)
    grid.add_column()
    records = report.records
    if records.processed:
        grid.add_row("skew S", _skews(report, ascii_only))
    if report.grouping.kind != RING:
        grid.add_row("grouping", _grouping(report.grouping))
    if decided := outcomes(report.decision_counts):
        grid.add_row("decisions", _together(decided.split(", ")))
    if records.read or report.status != "failed":
        words = [("as last told: " if report.is_stale else "") + plural(records.read, "row") + " read"]
        words += [f"{count(getattr(records, name))} {name}" for name in ("mapped", "emitted", "processed")]
        grid.add_row("records", _together([*words, forwards(records.forwarded, records.processed)]))
        grid.add_row("throughput", f"{count(report.records_per_second)} records/s")
    if report.latency is not None:
        grid.add_row("latency", _latencies(report.latency))
    grid.add_row("time", _times(report.seconds))
    if report.aggregation is not None:
        grid.add_row("aggregation", _aggregation(report.aggregation))
    if report.hot:
        grid.add_row("hot keys", _hot_keys(report))
    if report.status != "failed":
        grid.add_row("output", _output(report.output))
    elif report.output.unpublished is not None:
        grid.add_row("output", f"nothing was published; {one_line(report.output.unpublished)} is as it was")
    if files:
        grid.add_row("report", _places(files))
    return grid


def _grouping(found: GroupingReport) -> str:
    words = [found.kind]
    if found.replication is not None:
        words.append(f"a key on {found.replication:.2f} reducers on average")
    if found.moved:
        words.append(f"{plural(found.moved, 'part')} of the keys moved")
    return _together(words)


def _together(parts: Iterable[str]) -> str:
    """`parts` with commas, broken between them and never inside."""
    return ", ".join(_tied(part) for part in parts)


def _tied(text: str) -> str:
    return text.replace(" ", _TIED)


def _skews(report: Report, ascii_only: bool) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    rows = (
        ("dpa", report.skew.dpa, "this run"),
        ("static", report.static_skew, "the same ring without balancing"),
        ("Spark", report.skew.spark, "hash partitioning"),
    )
    for name, value, what in rows:
        if name == "static" and value is None:
            continue
        length = bar(value or 0.0, BAR_COLUMNS, ascii_only=ascii_only).ljust(BAR_COLUMNS)
        missing = value is None
        grid.add_row(name, skew(value), "" if missing else Text(length, BAR), "" if missing else Text(what, FAINT))
    return grid


def _redistributions(found: Sequence[Decision]) -> Iterator[RenderableType]:
    yield Text(plural(len(found), "redistribution"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True, min_width=8, style=FAINT)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for decision in found[:MOST_REDISTRIBUTIONS]:
        grid.add_row(f"{decision.at:.1f} s", f"reducer {decision.reducer}", Text(one_line(decision.reason)))
    yield grid
    if len(found) > MOST_REDISTRIBUTIONS:
        yield Text(f"  and {len(found) - MOST_REDISTRIBUTIONS:,} more, in the report", FAINT)


def _latencies(found: LatencyReport) -> str:
    return _together(f"{name} {latency(getattr(found, name))}" for name in ("p50", "p95", "p99", "max", "mean"))


def _times(spent: Seconds) -> str:
    phases = ("startup", "load", "stream", "merge", "reference")
    parts = _together(f"{phase} {seconds(getattr(spent, phase))}" for phase in phases if getattr(spent, phase))
    first = "" if spent.first_record is None else f"; first record after {_tied(seconds(spent.first_record))}"
    return f"{_tied(seconds(spent.total))}{f' ({parts})' if parts else ''}{first}"


def _aggregation(found: AggregationStats) -> str:
    states = f"{plural(found.states, 'state')} handed over"
    return _together([plural(found.rounds, "round"), states, f"{seconds(found.seconds)} of user code"])


def _hot_keys(report: Report) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(max_width=40)  # the one that shrinks
    for _ in range(2):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(style=FAINT, no_wrap=True)
    for hot in report.hot[:MOST_HOT_KEYS]:
        bounds = "exact" if hot.lower == hot.upper else f"{count(hot.lower)} to {count(hot.upper)}"
        key = Text(key_text(hot.key), no_wrap=True, overflow="ellipsis")
        grid.add_row(key, percent(hot.share), count(hot.records), bounds)
    return grid


def _output(output: OutputReport) -> str:
    if output.path is None:
        return f"{plural(output.rows, 'row')}, in memory"
    return f"{one_line(output.path)} ({plural(output.rows, 'row')} in {plural(len(output.files), 'file')})"


def _first_rows(result: pa.Table) -> Iterator[RenderableType]:
    shown = result.slice(0, MOST_ROWS).select(range(min(result.num_columns, MOST_COLUMNS)))
    which = f"first {shown.num_rows} of {plural(result.num_rows, 'row')}"
    hidden = result.num_columns - shown.num_columns
    more = f", without {plural(hidden, 'more column')}" if hidden else ""
    yield Text(f"{which}{more}; set output.path to keep them")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    for name, kind in zip(shown.column_names, shown.schema.types, strict=True):
        numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        title = Text(one_line(name, MOST_CELL), overflow="ellipsis", no_wrap=True)
        table.add_column(title, justify="right" if numbers else "left", no_wrap=True, overflow="ellipsis")
    for row in shown.to_pylist():
        table.add_row(*(Text(key_text(value, MOST_CELL)) for value in row.values()))
    yield table


def _places(files: Sequence[Path]) -> str:
    """The page that people open, and what lies beside it."""
    page = next((path for path in files if path.suffix == ".html"), files[0])
    beside = [one_line(path.name if path.parent == page.parent else str(path)) for path in files if path != page]
    return one_line(str(page)) + (f" (and {', '.join(beside)})" if beside else "")
