"""The stages of a plan as trees, a source the root of each, drawn with rich.

A stage that several feed is drawn below the first of them and referred to below the others. Where a tree is too deep
for the width, it ends with a reference to a tree of its own further down.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from dpa.driver.forecast_stages import Forecast, StageForecast
from dpa.report._plan_words import Level, facts, level, verdict, volume
from dpa.report._terminal import FAINT, tied, unbroken
from dpa.result.text import one_line

LEVEL_STYLES = {Level.EVEN: "green", Level.SLIGHTLY_UNEVEN: "yellow", Level.UNEVEN: "bold red"}
_NAME_COLUMNS = 24
_INDENT = 4  # columns that rich indents each level by
_MIN_WIDTH = 40
"""Columns that a stage needs at least."""


def trees(forecast: Forecast, width: int) -> Iterator[RenderableType]:
    """The trees of a forecast, in `width` columns."""
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
        """The tree that begins with a stage."""
        tree = Tree(self._stage(stage), guide_style=FAINT)
        self._grow(tree, stage, 1)
        return tree

    def _grow(self, tree: Tree, stage: StageForecast, depth: int) -> None:
        """Add what a stage feeds below its node."""
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
        """What is done on an edge, how many records it carries if others enter its target too, and where it leads."""
        edge = self._forecast.edges[number]
        said = ", ".join(map(one_line, edge.operators))
        if len(self._forecast.into(edge.target)) > 1:
            said += f" {unbroken(f'({volume(self._forecast.edge_estimates[number])})')}"
        return Text(f"{said} {unbroken(arrow)}".lstrip(), FAINT)

    def _stage(self, stage: StageForecast) -> Table:
        """A stage: its name, and beside it what there is to say."""
        said = Text(f"{one_line(stage.does)}, {tied(', '.join(facts(stage, self._forecast)))}")
        found = level(stage)
        if found is not None:
            said.append(", ").append(tied(", ".join(verdict(stage))), LEVEL_STYLES[found])
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bold", max_width=_NAME_COLUMNS, overflow="fold")
        grid.add_column(overflow="fold")
        grid.add_row(one_line(stage.name), said)
        return grid
