"""What the terminal shows of a plan, and at the end of a run, drawn with rich: facts and tables (`dpa.result.text`),
and the stages of a plan as trees.

The end of a run is a summary of few lines, below all details if these are wanted. One line is `reference: match`,
`reference: MISMATCH` or `reference: not checked`, without colour, so that a script can read it. The error of a failed
job comes last.

A source is the root of each tree. A stage that several feed is drawn below the first of them and referred to below the
others. Where a tree is too deep for the width, it ends with a reference to a tree of its own further down.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO, TypeAlias

import pyarrow as pa
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from dpa._util.as_yaml import as_yaml
from dpa.driver.forecast import Forecast, StageForecast
from dpa.report import _plan_content as plan_content
from dpa.report._plan_content import Level, level, verdict, volume
from dpa.report._rows import first_rows
from dpa.result import Report, StageReport, run_content, stage_content
from dpa.result.text import WIDE, Bar, Cell, Fact, Table, bar, lines, one_line, plural, span

FAINT, FILLED, BAD = "dim", "cyan", "bold red"
_BAR_COLUMNS = 10
_TIED = "\ue000"
"""A space that no line breaks at (rich breaks at U+00A0 too); a private character, which `dpa.result.text` escapes."""
_MAX_TIED = 36
LEVEL_STYLES = {Level.EVEN: "green", Level.SLIGHTLY_UNEVEN: "yellow", Level.UNEVEN: "bold red"}
_NAME_COLUMNS = 24
_INDENT = 4  # columns that rich indents each level by
_MIN_WIDTH = 40  # columns that a stage needs at least
_FIRST_DIFFERENCES, _MAX_DIFFERENCES = 5, 20
_MAX_LINES = 10
"""Lines of a summary, at 80 columns, unless paths are long; a small result that is written nowhere is shown whole."""
_NAMES = 9  # columns for the names of facts: `reference` is the longest of a summary
_MAX_ROWS = 10  # of a result that are shown

Unsaved: TypeAlias = tuple[str, pa.Table] | None


def run_parts(
    report: Report, files: Sequence[Path], result: Unsaved, console: Console, *, verbose: bool, before: Report | None
) -> Iterator[RenderableType]:
    if verbose and before is None:
        yield from _details(report, console)
    known = [] if before is None else list(run_content.summary(before))
    yield from _summary(report, files, result, console, known, verbose=verbose)
    if report.error is not None:
        yield Text("\n" + "\n".join(lines(report.error)), BAD)


def _details(report: Report, console: Console) -> Iterator[RenderableType]:
    yield from table(run_content.stages(report), console)
    if report.stages:
        yield Text(run_content.STAGES_NOTE, FAINT)
    for stage in report.operators:
        yield from _stage_parts(report, stage, console)
    found = run_content.epochs(report.epochs)
    yield from table(found, console, f"\n{found.title}")
    yield from table(run_content.joins(report.joins), console, "\njoins")
    yield from table(run_content.recoveries(report), console, "\nthe job restarted after")
    yield from table(run_content.errors(report), console, "\nrecords that were left out, by error")
    yield Text()
    found_of_run = (fact for fact in run_content.facts(report) if fact.name not in ("result", "reference"))
    yield facts([*found_of_run, run_content.times(report)], console.options.ascii_only)
    yield Text()


def _summary(
    report: Report, files: Sequence[Path], result: Unsaved, console: Console, known: Sequence[Fact], *, verbose: bool
) -> Iterator[RenderableType]:
    ascii_only, style = console.options.ascii_only, BAD if report.status in ("failed", "mismatch") else "bold green"
    said = [fact for fact in run_content.summary(report) if fact.name == "reference" or fact not in known]
    place = [fact.name for fact in said].index("reference")
    came, went = said[:place], said[place + 1 :]
    if files:
        page = next((path for path in files if path.suffix == ".html"), files[0])
        went.append(Fact("report", one_line(str(page))))
    after = [*(() if report.status == "unverified" else _verdict(report, verbose=verbose)), facts(went, ascii_only)]
    limit = one_line(report.bottleneck.reason)
    limit = limit if verbose else re.split(", the average |;", limit)[0]
    is_telling = verbose or report.seconds.stream >= run_content.TELLING
    after += [Text(limit)] * bool(is_telling and report.records.processed and not known)
    title = Text.assemble((one_line(report.name, 60), "bold"), ": ", (run_content.ended(report), style))
    more = "" if verbose or known else "  (details: --verbose)"
    yield title.append(more if title.cell_len + len(more) <= console.width else "", FAINT)
    rows: Iterable[RenderableType] = ()
    if result is not None and result[1].num_rows and not known:
        key, found = result
        shown = min(found.num_rows, _MAX_ROWS)
        if found.num_rows > shown and not verbose:
            used = sum(len(console.render_lines(part)) for part in (facts(came, ascii_only), *after))
            shown = min(max(_MAX_LINES - 2 - used, 1), shown)
        heading = f"first {shown} of {plural(found.num_rows, 'row')}"
        first = first_rows(found, heading, rows=shown, width=console.width)
        last = max(number for number, fact in enumerate(came) if fact.name == "result")
        came[last] = Fact("result", f"{first.title}; set {key} to keep them")
        rows = table(first, console)
    yield facts(came, ascii_only)
    yield from rows
    yield from after


def _verdict(report: Report, *, verbose: bool) -> Iterator[RenderableType]:
    """Whether the result is right, in a line without colour that a script can read, and what differs."""
    found = report.reference
    why_not = f": {one_line(found.why_not)}" if found.why_not else ""
    yield Text(f"reference: {stage_content.compared(found).value}{why_not}")
    most = _MAX_DIFFERENCES if verbose else _FIRST_DIFFERENCES
    for difference in found.differences[:most]:
        yield Text(f"  {one_line(difference)}", BAD)
    if len(found.differences) > most:
        yield Text(f"  and {len(found.differences) - most} more, with --verbose or in the report", FAINT)


def _stage_parts(report: Report, stage: StageReport, console: Console) -> Iterator[RenderableType]:
    name = one_line(stage.name, 40)
    for found in stage_content.tables(stage):
        yield from table(found, console, f"\n{name}: {found.title}")
    if report.is_graph:
        yield Text(f"\n{name}")
        yield facts(stage_content.facts(stage, report.status), console.options.ascii_only)


def plan_parts(forecast: Forecast, console: Console, *, verbose: bool) -> Iterator[RenderableType]:
    yield from trees(forecast, console.width)
    yield from table(run_content.joins(forecast.joins), console, "\njoins")
    placed = plan_content.placement(forecast.placement) if forecast.placement is not None else ()
    for found in (*(found for stage in forecast.stages for found in plan_content.tasks(stage)), *placed):
        yield from table(found, console, f"\n{found.title}")
    if forecast.placement is not None and len(forecast.placement.nodes) == 1:
        yield Text("one node bears all tasks; declare placement.nodes, or name a cluster, to see them placed", FAINT)
    if verbose:
        yield Text("\nresolved job", "bold")
        yield "".join(f"  {line}\n" for line in as_yaml(forecast.config, width=console.width).splitlines())


def print_parts(parts: Callable[[Console], Iterable[RenderableType]], stream: TextIO, width: int | None) -> None:
    """Print what `parts` makes for a console on `stream`, in `width` columns (the terminal's if None). Characters that
    its encoding lacks are escaped."""
    console = Console(file=stream, width=width, force_jupyter=False, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:  # rich ends the process when the reader of the stream has gone
        for part in parts(console):
            console.print(part, soft_wrap=isinstance(part, str))
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().replace(_TIED, " ").splitlines())
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def tied(text: str) -> str:
    """`text` whose lines break after commas and semicolons, and elsewhere only in long parts."""
    parts = re.split(r"(?<=[,;]) ", text)
    return " ".join(part if len(part) > _MAX_TIED else unbroken(part) for part in parts)


def unbroken(text: str) -> str:
    return text.replace(" ", _TIED)


def facts(found: Iterable[Fact], ascii_only: bool) -> Grid:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=FAINT, no_wrap=True, min_width=_NAMES)
    grid.add_column()
    for fact in found:
        said = Text(tied(fact.value))
        if fact.share is not None:
            said.append(f"  {bar(fact.share, _BAR_COLUMNS, ascii_only=ascii_only):<{_BAR_COLUMNS}}", FILLED)
        if fact.value:
            said.append("  " * bool(fact.remark)).append(tied(fact.remark), FAINT)
        else:
            said.append(fact.remark)
        grid.add_row(fact.name, said)
    return grid


def table(found: Table, console: Console, title: str = "") -> Iterator[RenderableType]:
    """Empty if a table has no rows, or no columns on a terminal."""
    shown = found.narrow if console.width < WIDE or found.wide is None else found.wide
    if not found.rows or shown == 0:
        return
    ascii_only = console.options.ascii_only
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
    head = found.head[:shown]
    for name in head:
        if name.startswith("#"):
            grid.add_column(name[1:], justify="right", no_wrap=True)
        else:
            grid.add_column(Text(name, no_wrap=True, overflow="ellipsis"), overflow="fold")
    for place, row in enumerate(found.rows[: found.most]):
        cells = enumerate(zip(row, head, strict=False), start=1)
        wrapped = {*range(1, len(head) + 1)} if found.is_copied else {len(head)} if found.wraps else set()
        drawn = (_cell(*cell, column in wrapped, ascii_only) for column, cell in cells)
        grid.add_row(*drawn, style=BAD if place == found.marked else "")
    if found.total:
        grid.add_row(*map(str, found.total[:shown]), style="bold")
    yield from [Text(title)] * bool(title)
    yield grid
    if found.most is not None and len(found.rows) > found.most:
        yield Text(f"and {len(found.rows) - found.most:,} more{found.more}", FAINT)


def _cell(cell: Cell, name: str, wraps: bool, ascii_only: bool) -> RenderableType:
    """Words break lines if the table wraps, else they are cut; bars are cropped."""
    if isinstance(cell, Bar):
        width = max(len(name), _BAR_COLUMNS)
        if cell.first is None:
            drawn = bar(cell.last, width, ascii_only=ascii_only).ljust(width)
            return Text(drawn, FILLED, no_wrap=True, overflow="crop")
        return Text(span(cell.first, cell.last, width, ascii_only=ascii_only), no_wrap=True, overflow="crop")
    words = cell.replace("→", ">") if ascii_only else cell
    return Text(words, overflow="fold") if wraps else Text(words, no_wrap=True, overflow="ellipsis")


def trees(forecast: Forecast, width: int) -> Iterator[RenderableType]:
    drawn = _Trees(forecast, width)
    for stage in forecast.stages:
        if not forecast.into(stage.name):
            yield drawn.tree(stage)
    while drawn.postponed:
        yield drawn.tree(drawn.postponed.pop(0))


class _Trees:
    """Draws trees, each stage once.

    Attributes:
        postponed: stages that still need a tree of their own, because they lie too deep in another.
    """

    def __init__(self, forecast: Forecast, width: int) -> None:
        self.postponed: list[StageForecast] = []
        self._forecast = forecast
        self._width = width
        self._stages = {stage.name: stage for stage in forecast.stages}
        self._drawn: set[str] = set()

    def tree(self, stage: StageForecast) -> Tree:
        tree = Tree(self._stage(stage), guide_style=FAINT)
        self._grow(tree, stage, 1)
        return tree

    def _grow(self, tree: Tree, stage: StageForecast, depth: int) -> None:
        self._drawn.add(stage.name)
        for number in self._forecast.out_of(stage.name):
            target = self._stages[self._forecast.edges[number].target]
            if target.name in self._drawn:
                tree.add(self._edge(number, f"-> {one_line(target.name)}, above"))
            elif target in self.postponed or depth * _INDENT + _MIN_WIDTH > self._width:
                tree.add(self._edge(number, f"-> {one_line(target.name)}, below"))
                if target not in self.postponed:
                    self.postponed.append(target)
            else:
                edge = self._edge(number, "->")
                drawn = self._stage(target)
                self._grow(tree.add(Group(edge, drawn) if len(edge) > len("->") else drawn), target, depth + 1)

    def _edge(self, number: int, arrow: str) -> Text:
        """The operators on an edge, its records if other edges enter its target too, and an arrow."""
        edge = self._forecast.edges[number]
        said = ", ".join(map(one_line, edge.operators))
        if len(self._forecast.into(edge.target)) > 1:
            said += f" {unbroken(f'({volume(self._forecast.edge_estimates[number])})')}"
        return Text(f"{said} {unbroken(arrow)}".lstrip(), FAINT)

    def _stage(self, stage: StageForecast) -> Grid:
        said = Text(f"{one_line(stage.does)}, {tied(', '.join(plan_content.facts(stage, self._forecast)))}")
        found = level(stage)
        if found is not None:
            said.append(", ").append(tied(", ".join(verdict(stage))), LEVEL_STYLES[found])
        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bold", max_width=_NAME_COLUMNS, overflow="fold")
        grid.add_column(overflow="fold")
        grid.add_row(one_line(stage.name), said)
        return grid
