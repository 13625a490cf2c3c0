"""What the terminal shows of a plan, and at the end of a run: its stages, its facts, and where the result is.

The last line of a run is `reference: match`, `reference: MISMATCH` or `reference: not checked`, without colour, so that
a script can read it; only the error of a failed job comes below it. Of the smallest graph the tasks, redistributions
and hot keys of its only operator stage are there too, of any other those of each with `verbose`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from dpa._util.as_yaml import as_yaml
from dpa.result import Report, StageReport, run_content, stage_content
from dpa.result.content import Fact, Table
from dpa.result.text import key_text, lines, one_line, plural

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dpa.driver.forecast_stages import Forecast

_MAX_DIFFERENCES = 20
_MAX_ROWS, _MAX_COLUMNS, _MAX_CELL = 10, 8, 60
"""Rows and columns of a result that are shown, and characters of a value."""


def show(
    report: Report,
    stream: TextIO | None = None,
    *,
    files: Sequence[Path] = (),
    result: tuple[str, pa.Table] | None = None,
    width: int | None = None,
    verbose: bool = False,
) -> None:
    """Print the final table of `report` on `stream` (stdout if None), in `width` columns (the terminal's if None).

    A graph of several stages has one line for each; with `verbose` also the tasks, redistributions and facts of each,
    and where the time of epochs went.

    `files` are the report's files, as `dpa.report.write` returned them. `result` is a table that is written nowhere,
    with the key of the job that would have it written; its first rows are shown. Characters that the stream's encoding
    lacks are escaped.
    """
    from dpa.report._terminal import print_parts

    def parts(console: Console) -> Iterator[RenderableType]:
        return _parts(report, files, result, console, verbose=verbose)

    print_parts(parts, sys.stdout if stream is None else stream, width)


def _parts(
    report: Report, files: Sequence[Path], result: tuple[str, pa.Table] | None, console: Console, *, verbose: bool
) -> Iterator[RenderableType]:
    from rich.text import Text

    from dpa.report._terminal import BAD, FAINT, facts, table

    ascii_only = console.options.ascii_only
    good = "bold green" if report.status == "ok" else BAD
    yield Text.assemble((one_line(report.name, 60), "bold"), ": ", (one_line(report.status, 60), good))
    yield Text()
    if report.stages:
        yield from table(run_content.stages(report), console)
        yield Text(run_content.STAGES_NOTE, FAINT)
        if report.is_graph and not verbose:
            yield Text("tasks, redistributions and hot keys of each stage: --verbose, or the report", FAINT)
    for stage in report.operators if verbose or not report.is_graph else ():
        yield from _stage_parts(report, stage, console)
    if verbose:
        found = run_content.epochs(report.epochs)
        yield from table(found, console, f"\n{found.title}")
    yield from table(run_content.recoveries(report), console, "\nthe job was begun again after")
    yield from table(run_content.errors(report), console, "\nrecords that were left out, by error")
    yield Text()
    yield facts(_facts(report, files, verbose=verbose), ascii_only)
    if result is not None and result[1].num_rows:
        first = _first_rows(*result)
        yield from table(first, console, f"\n{first.title}")
        yield Text()
    if report.reference.differences:
        yield Text("\nthe result differs from the reference:", BAD)
        for difference in report.reference.differences[:_MAX_DIFFERENCES]:
            yield Text(f"  {one_line(difference)}")
    why_not = f": {one_line(report.reference.why_not)}" if report.reference.why_not else ""
    yield Text(f"reference: {stage_content.compared(report.reference).value}{why_not}")
    if report.error is not None:
        yield Text("\n" + "\n".join(lines(report.error)), BAD)


def _facts(report: Report, files: Sequence[Path], *, verbose: bool) -> Iterator[Fact]:
    yield from (fact for fact in run_content.facts(report) if fact.name != "reference")
    if report.is_graph and not verbose:
        yield from run_content.brief(report)
    yield run_content.times(report)
    if report.records.processed:
        yield Fact("bottleneck", "", one_line(report.bottleneck.reason))
    if files:
        yield _report_files(files)


def _stage_parts(report: Report, stage: StageReport, console: Console) -> Iterator[RenderableType]:
    from rich.text import Text

    from dpa.report._terminal import facts, table

    name = one_line(stage.name, 40)
    detail = stage_content.BRIEF if report.is_graph else stage_content.FULL
    for found in (found for section in stage_content.sections(stage, detail) for found in section.tables):
        yield from table(found, console, f"\n{name}: {found.title}")
    if report.is_graph:
        yield Text(f"\n{name}")
        yield facts(stage_content.facts(stage, report.status), console.options.ascii_only)


def show_plan(forecast: Forecast, stream: TextIO, *, width: int | None = None) -> None:
    """Print a forecast on `stream`, in `width` columns (the terminal's if None)."""
    from dpa.report._terminal import print_parts

    print_parts(lambda console: _plan_parts(forecast, console), stream, width)


def _plan_parts(forecast: Forecast, console: Console) -> Iterator[RenderableType]:
    from rich.text import Text

    from dpa.report._plan_content import placement, tasks
    from dpa.report._terminal import FAINT, table, trees

    yield Text("resolved job", "bold")
    yield "".join(f"  {line}\n" for line in as_yaml(forecast.config, width=console.width).splitlines())
    yield from trees(forecast, console.width)
    for found in (found for stage in forecast.stages for found in tasks(stage)):
        yield from table(found, console, f"\n{found.title}")
    for found in placement(forecast.placement) if forecast.placement is not None else ():
        yield from table(found, console, f"\n{found.title}")
    if forecast.placement is not None and len(forecast.placement.nodes) == 1:
        yield Text("one node bears all tasks; declare placement.nodes, or name a cluster, to see them placed", FAINT)


def _first_rows(key: str, result: pa.Table) -> Table:
    shown = result.slice(0, _MAX_ROWS).select(range(min(result.num_columns, _MAX_COLUMNS)))
    hidden = result.num_columns - shown.num_columns
    more = f", without {plural(hidden, 'more column')}" if hidden else ""
    numbers = [
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        for kind in shown.schema.types
    ]
    head = (
        "#" * is_number + one_line(name, _MAX_CELL) for name, is_number in zip(shown.column_names, numbers, strict=True)
    )
    rows = [tuple(key_text(value, _MAX_CELL) for value in row.values()) for row in shown.to_pylist()]
    title = f"first {shown.num_rows} of {plural(result.num_rows, 'row')}{more}; set {key} to keep them"
    return Table(title, tuple(head), rows, wraps=False)


def _report_files(files: Sequence[Path]) -> Fact:
    page = next((path for path in files if path.suffix == ".html"), files[0])
    beside = [one_line(path.name if path.parent == page.parent else str(path)) for path in files if path != page]
    return Fact("report", one_line(str(page)), f"and {', '.join(beside)}" if beside else "")
