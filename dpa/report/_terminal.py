"""Facts and tables (`dpa.result.content`), and the stages of a plan as trees, on a terminal, drawn with rich.

A source is the root of each tree. A stage that several feed is drawn below the first of them and referred to below the
others. Where a tree is too deep for the width, it ends with a reference to a tree of its own further down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from dpa.driver.forecast_stages import Forecast, StageForecast
from dpa.report._plan_content import Level, level, verdict, volume
from dpa.report._plan_content import facts as facts_of
from dpa.result.content import WIDE, Bar, Cell, Fact, Table
from dpa.result.text import bar, one_line, span

FAINT, FILLED, BAD = "dim", "cyan", "bold red"
_BAR_COLUMNS = 10
_TIED = "\ue000"
"""A space that no line breaks at (rich breaks at U+00A0 too); a private character, which `dpa.result.text` escapes."""
_MAX_TIED = 36
LEVEL_STYLES = {Level.EVEN: "green", Level.SLIGHTLY_UNEVEN: "yellow", Level.UNEVEN: "bold red"}
_NAME_COLUMNS = 24
_INDENT = 4  # columns that rich indents each level by
_MIN_WIDTH = 40
"""Columns that a stage needs at least."""


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
    grid.add_column(style=FAINT, no_wrap=True)
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
            grid.add_column(Text(name, no_wrap=True, overflow="ellipsis"))
    for place, row in enumerate(found.rows[: found.most]):
        cells = enumerate(zip(row, head, strict=False), start=1)
        drawn = (_cell(*cell, found.wraps and column == len(head), ascii_only) for column, cell in cells)
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
    return Text(words) if wraps else Text(words, no_wrap=True, overflow="ellipsis")


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
        said = Text(f"{one_line(stage.does)}, {tied(', '.join(facts_of(stage, self._forecast)))}")
        found = level(stage)
        if found is not None:
            said.append(", ").append(tied(", ".join(verdict(stage))), LEVEL_STYLES[found])
        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bold", max_width=_NAME_COLUMNS, overflow="fold")
        grid.add_column(overflow="fold")
        grid.add_row(one_line(stage.name), said)
        return grid
