"""The placement in the picture of a plan: how busy each node is, what it sends and receives, and what other allocators
would give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpa.report._picture_text import Words
from dpa.report._text import megabytes, one_line, percent
from dpa.report.plots import COLOURS, GRID, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpa.driver.placing import PlacementForecast

_FONT = 8.0
_ROW, _BAR_HEIGHT, _BAR_WIDTH, _GAP = 20.0, 11.0, 160.0, 10.0
_MARGIN = 16.0
_MAX_NODES = 32


@dataclass(frozen=True)
class _Row:
    """A name, the part of a bar that is full (None: a heading, without a bar), and words."""

    name: str
    part: float | None = None
    words: str = ""


class NodesPicture:
    """Rows of bars, as high and wide as `height` and `width` say, in pixels; none without a placement."""

    def __init__(self, found: PlacementForecast | None) -> None:
        self._rows = [] if found is None else list(_rows(found))
        self._names = max((_words(row.name).width for row in self._rows if row.part is not None), default=0.0)

    @property
    def height(self) -> float:
        """Of all rows, with a margin."""
        return len(self._rows) * _ROW + _MARGIN if self._rows else 0.0

    @property
    def width(self) -> float:
        """Of the longest row."""
        return max((self._begin(row) + _words(row.words or row.name).width for row in self._rows), default=0.0)

    def draw(self, axes: Axes, x: float, y: float) -> None:
        """Draw all rows below and to the right of a point."""
        from matplotlib.patches import Rectangle

        for place, row in enumerate(self._rows):
            middle = y + (place + 0.5) * _ROW
            if row.part is None:
                _words(row.name).draw(axes, x, middle, color=INK, alpha=0.7)
                continue
            _words(row.name).draw(axes, x, middle, color=INK)
            left, top = x + self._names + _GAP, middle - _BAR_HEIGHT / 2
            for part, colour in ((1.0, GRID), (min(row.part, 1.0), COLOURS[0])):
                axes.add_patch(Rectangle((left, top), part * _BAR_WIDTH, _BAR_HEIGHT, color=colour, linewidth=0))
            _words(row.words).draw(axes, x + self._begin(row), middle, color=INK)

    def _begin(self, row: _Row) -> float:
        """Where a row's words begin."""
        return 0.0 if row.part is None else self._names + _BAR_WIDTH + 2 * _GAP


def _rows(found: PlacementForecast) -> Iterator[_Row]:
    yield _Row(f"placement: allocator {found.chosen.name}, costs {found.origin}; how busy each node is")
    for node in found.nodes[:_MAX_NODES]:
        tasks = ", ".join(f"{count} {one_line(stage, 30)}" for stage, count in node.tasks.items()) or "none"
        traffic = f"{megabytes(node.sent)} MB/s out, {megabytes(node.received)} in"
        name = f"{one_line(node.name, 24)} ({node.processors:.3g})"
        yield _Row(name, node.busy, f"{percent(node.busy)}; {traffic}; {one_line(tasks, 100)}")
    if len(found.nodes) > _MAX_NODES:
        yield _Row(f"and {len(found.nodes) - _MAX_NODES} more nodes")
    if len(found.nodes) == 1:
        return
    yield _Row("")
    yield _Row("what the allocators would give: the part of all traffic that stays inside nodes")
    for each in (found.chosen, *found.others):
        if each.refusal is not None:
            yield _Row(each.name, 0.0, "refuses")
        else:
            chosen = ", chosen" if each is found.chosen else ""
            yield _Row(each.name, each.kept, f"{percent(each.kept)}; speed {each.speed:.2f}{chosen}")


def _words(line: str) -> Words:
    return Words((line,), _FONT)
