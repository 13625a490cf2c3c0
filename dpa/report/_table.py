"""The final table, drawn with rich: the stages, the facts of the run, and differences from the reference.

Of the smallest graph it shows the tasks (`_stage_table.py`) and all facts in one list; of any other a line a stage,
and with `verbose` each operator stage in brief. Long lists are cut here; the report has them in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import pyarrow as pa
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dpa.report._stage_table import (
    BRIEF,
    FAINT,
    FULL,
    TIED,
    facts,
    joined,
    latency_words,
    output_words,
    tables,
    unbroken,
)
from dpa.report._text import (
    SKEW_WORDS,
    count,
    forwards,
    key_text,
    latency,
    lines,
    mebibytes,
    one_line,
    plural,
    recovery_words,
    seconds,
    short,
    skew,
    span,
)
from dpa.result import Report, Seconds, StageReport

MAX_DIFFERENCES = 20
MAX_ROWS, MAX_COLUMNS, MAX_CELL = 10, 8, 60
"""Rows and columns of a result that are shown, and characters of a value."""
STAGE_COLUMNS = 16
"""Characters of a stage's name in the table of stages."""
WIDE = 100
"""From this many columns on, a stage's line also has its longest queue and its latency, and a longer timeline."""
SHORT_SPAN, LONG_SPAN = 12, 22
"""Columns of the timeline on narrow and on wide terminals."""

GOOD, BAD = "bold green", "bold red"

ORDER = (
    "skew S",
    "grouping",
    "first table",
    "decisions",
    "redistributions",
    "recoveries",
    "records",
    "throughput",
    "bottleneck",
    "latency",
    "time",
    "stages",
    "aggregation",
    "hot keys",
    "output",
    "reference",
    "report",
)
"""The facts, as far as they are known, from top to bottom."""


def table_lines(
    report: Report,
    verdict: str,
    files: Sequence[Path],
    result: tuple[str, pa.Table] | None,
    stream: TextIO,
    width: int | None,
    *,
    verbose: bool,
) -> list[str]:
    """The lines of the table with the `verdict` on the reference, in the colours that `stream` can show."""
    console = Console(file=stream, width=width, force_jupyter=False, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        for part in _parts(report, verdict, files, result, console, verbose=verbose):
            console.print(part)
    return [line.rstrip() for line in captured.get().replace(TIED, " ").splitlines()]


def _parts(
    report: Report,
    verdict: str,
    files: Sequence[Path],
    result: tuple[str, pa.Table] | None,
    console: Console,
    *,
    verbose: bool,
) -> Iterator[RenderableType]:
    ascii_only = console.options.ascii_only
    status = {"ok": GOOD}.get(report.status, BAD)
    yield Text.assemble((one_line(report.name, 60), "bold"), ": ", (one_line(report.status, 60), status))
    yield Text()
    known = dict(_job_facts(report, files))
    if report.is_graph:
        yield _stages(report, console.width >= WIDE, ascii_only)
        yield Text(f"{SKEW_WORDS}; MiB: a task at most", FAINT)
        yield (
            Text()
            if verbose
            else Text("tasks, redistributions and hot keys of each stage: --verbose, or the report\n", FAINT)
        )
        for stage in report.operators if verbose else ():
            if not stage.tasks:
                yield Text(one_line(stage.name, 60), "bold")
            yield from tables(stage, BRIEF, ascii_only)
            yield _listed({**dict(facts(stage, BRIEF, ascii_only)), **dict(_result_facts(stage, report.status))})
            yield Text()
        yield _listed(known if verbose else {**known, **dict(_brief_facts(report))})
    else:
        stage = report.main
        yield from tables(stage, FULL, ascii_only)
        output = None if stage.output is None else output_words(stage.output, report.status)
        made = {} if output is None else {"output": output}
        yield _listed({**known, **dict(facts(stage, FULL, ascii_only)), **made})
    if result is not None and result[1].num_rows:
        yield Text()
        yield from _first_rows(*result)
        yield Text()
    if report.reference.differences:
        yield Text()
        yield Text("the result differs from the reference:", BAD)
        for difference in report.reference.differences[:MAX_DIFFERENCES]:
            yield Text(f"  {one_line(difference)}")
    yield Text(verdict)
    if report.error is not None:
        yield Text()
        for line in lines(report.error):
            yield Text(line, BAD)


def _stages(report: Report, wide: bool, ascii_only: bool) -> Table:
    """A line for each stage: what came in and went out, what its tasks did with their time, what waited, how much
    memory a task took, and when in the stream it processed."""
    columns = LONG_SPAN if wide else SHORT_SPAN
    whole = report.seconds.stream
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    titles = ["stage", "tasks", "in", "out", "busy", "blocked", *["queue"] * wide, "S", *["p99"] * wide, "MiB"]
    for title in titles:
        table.add_column(Text(title), justify="left" if title == "stage" else "right", no_wrap=True)
    table.add_column(Text("0 s" + seconds(whole).rjust(columns - 3)), no_wrap=True)
    for stage in report.stages:
        load, name = stage.load, one_line(stage.name)
        known = stage.skew is not None and stage.records.processed > 0
        cells = [
            name if len(name) <= STAGE_COLUMNS else f"{name[: STAGE_COLUMNS - 1]}…",
            _tasks(stage, ascii_only),
            short(report.taken_in(stage.name)),
            short(report.given_out(stage.name)),
            f"{load.busy:.0%}",
            f"{load.blocked:.0%}",
            *["" if stage.kind == "source" else short(load.peak_queue)] * wide,
            skew(stage.skew.dpa if stage.skew and known else None, ""),
            *["" if stage.latency is None else latency(stage.latency.p99)] * wide,
            mebibytes(stage.peak_memory),
            span(stage.began, stage.ended, whole, columns, ascii_only=ascii_only),
        ]
        table.add_row(*cells, style=BAD if stage.name == report.bottleneck.stage else "")
    return table


def _tasks(stage: StageReport, ascii_only: bool) -> str:
    """How many there were at the end, and at the beginning if that was another number."""
    first = len(stage.tasks) - sum(len(step.started) for step in stage.changes)
    arrow = ">" if ascii_only else "→"
    return str(first) if first == stage.present else f"{first}{arrow}{stage.present}"


def _brief_facts(report: Report) -> Iterator[tuple[str, RenderableType]]:
    """What is known of all operator stages, each in a line."""
    applied = [f"{len(stage.redistributions)} of {one_line(stage.name, 40)}" for stage in report.operators]
    acted = [words for words, stage in zip(applied, report.operators, strict=True) if stage.redistributions]
    yield "redistributions", joined(acted) if acted else "none"
    if report.main.latency is not None:
        yield "latency", f"{latency_words(report.main.latency)}, of {one_line(report.main.name, 40)}"
    made = [(stage, output_words(stage.output, report.status)) for stage in report.operators if stage.output]
    found = [f"{one_line(stage.name, 40)}: {words}" for stage, words in made if words is not None]
    if found:
        yield "output", "\n".join(found)


def _listed(known: dict[str, RenderableType]) -> Table:
    """Facts, one below the other in their order."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=FAINT, no_wrap=True)
    grid.add_column()
    for name in ORDER:
        if name in known:
            grid.add_row(name, known[name])
    return grid


def _job_facts(report: Report, files: Sequence[Path]) -> Iterator[tuple[str, RenderableType]]:
    """What is known of the whole run, each with its name."""
    records = report.records
    if report.recoveries:
        yield "recoveries", "\n".join(recovery_words(found) for found in report.recoveries)
    if records.read or report.status != "failed":
        words = [("as last reported: " if report.is_stale else "") + plural(records.read, "row") + " read"]
        words += [f"{count(getattr(records, name))} {name}" for name in ("mapped", "emitted", "processed")]
        yield "records", joined([*words, forwards(records.forwarded, records.processed)])
        yield "throughput", f"{count(report.records_per_second)} records/s"
    if records.processed:
        yield "bottleneck", one_line(report.bottleneck.reason)
    yield "time", _times(report.seconds)
    if not report.is_graph and any(stage.began is not None or stage.peak_memory for stage in report.stages):
        yield "stages", joined(_span_words(stage) for stage in report.stages)
    if files:
        yield "report", _report_files(files)


def _span_words(stage: StageReport) -> str:
    """When a stage processed, and the memory of its largest task."""
    ends = f" {seconds(stage.began)} to {seconds(stage.ended, 'the end')}" if stage.began is not None else ""
    memory = f" ({mebibytes(stage.peak_memory)} MiB a task)" if stage.peak_memory else ""
    return f"{one_line(stage.name, 40)}{ends}{memory}"


def _result_facts(stage: StageReport, status: str) -> Iterator[tuple[str, RenderableType]]:
    """Where the result of a stage is, and whether it matches, if either was asked for."""
    words = None if stage.output is None else output_words(stage.output, status)
    if words is not None:
        yield "output", words
    if stage.reference.checked:
        yield "reference", "match" if stage.reference.matches else "MISMATCH"


def _times(spent: Seconds) -> str:
    phases = ("startup", "load", "stream", "merge", "reference")
    parts = joined(f"{phase} {seconds(getattr(spent, phase))}" for phase in phases if getattr(spent, phase))
    first = "" if spent.first_record is None else f"; first record after {unbroken(seconds(spent.first_record))}"
    return f"{unbroken(seconds(spent.total))}{f' ({parts})' if parts else ''}{first}"


def _first_rows(key: str, result: pa.Table) -> Iterator[RenderableType]:
    shown = result.slice(0, MAX_ROWS).select(range(min(result.num_columns, MAX_COLUMNS)))
    which = f"first {shown.num_rows} of {plural(result.num_rows, 'row')}"
    hidden = result.num_columns - shown.num_columns
    more = f", without {plural(hidden, 'more column')}" if hidden else ""
    yield Text(f"{which}{more}; set {key} to keep them")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    for name, kind in zip(shown.column_names, shown.schema.types, strict=True):
        numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        title = Text(one_line(name, MAX_CELL), overflow="ellipsis", no_wrap=True)
        table.add_column(title, justify="right" if numbers else "left", no_wrap=True, overflow="ellipsis")
    for row in shown.to_pylist():
        table.add_row(*(Text(key_text(value, MAX_CELL)) for value in row.values()))
    yield table


def _report_files(files: Sequence[Path]) -> str:
    """The page, and the names of the files beside it."""
    page = next((path for path in files if path.suffix == ".html"), files[0])
    beside = [one_line(path.name if path.parent == page.parent else str(path)) for path in files if path != page]
    return one_line(str(page)) + (f" (and {', '.join(beside)})" if beside else "")
