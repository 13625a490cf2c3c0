"""The graph of a run, and that of a plan, as pictures.

Of a run, one look finds the stage that limits it: a stage is filled from the left by its busy share, and the one that
limits the run has a heavy frame. An arrow is as wide as its share of the records, and in the warning colour if its
sender was blocked because of it. Of a plan, a box has the colour of how even its stage is, arrows are labelled with
operators and records of the sample, and tables below say where tasks are placed.

Boxes and gaps are made as large as the words in them, so nothing is cut. The pixels of the layout are the coordinates,
from the upper left corner; fonts are in points.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dpa._util.disk import is_full
from dpa.driver.forecast import EdgeForecast, Estimate, Forecast, StageForecast
from dpa.measure.bottleneck import BLOCKED
from dpa.report._files import ReportError, write_file
from dpa.report._layout import Point, Sizes, bends, layout
from dpa.report._plan_content import Level, facts, level, placement, verdict, volume
from dpa.report.plots import COLOURS, GRID, INK, PAPER, settings
from dpa.result import Report, StageReport
from dpa.result.text import Bar, Table, one_line, plural, short, skew

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
_LEADING = 1.3
"""Height of a line by that of its font."""
_BOX_FONT, _SMALL_FONT = 9.0, 8.0
_PADDING = 10.0
_THINNEST, _WIDEST = 1.5, 8.0
_ARROW = 10.0
_ROW, _BAR_HEIGHT, _BAR_WIDTH = 20.0, 11.0, 120.0
_TIED = "\N{NO-BREAK SPACE}"
_WARNING = COLOURS[5]
LEVEL_COLOURS = {Level.EVEN: COLOURS[2], Level.SLIGHTLY_UNEVEN: COLOURS[1], Level.UNEVEN: COLOURS[5]}

_SHARPNESS = 2.0
"""Pixels of the file for each of the layout, unless that is more than these on a side or in all."""
_MAX_SIDE, _MAX_PIXELS = 32_000, 40_000_000
_BOX_CHARACTERS, _LABEL_CHARACTERS = 26, 24
"""Where lines are broken."""


def picture(report: Report) -> Figure:
    boxes = {stage.name: _box(stage, limits=stage.name == report.bottleneck.stage) for stage in report.stages}
    arrows = [
        Arrow(edge.source, edge.target, [short(edge.records)], edge.records, _WARNING if edge.blocked else COLOURS[0])
        for edge in report.edges
    ]
    with settings({}):
        return draw(boxes, arrows)


def _box(stage: StageReport, *, limits: bool) -> Box:
    load, blocked = stage.load, f"blocked {stage.load.blocked:.0%}"
    warned = [blocked] if load.blocked >= BLOCKED else []
    lines = wrapped([one_line(stage.name)], _BOX_CHARACTERS) + list(_facts(stage, blocked))
    return Box(lines, _WARNING if limits else COLOURS[0], load.busy, 3.0 if limits else 1.0, warned)


def _facts(stage: StageReport, blocked: str) -> Iterator[str]:
    load = stage.load
    rows = f", {short(stage.records.read)} rows" if stage.kind == "source" else ""
    if stage.skew is not None and stage.records.processed:
        rows = f", S {skew(stage.skew.dpa)}"
    yield f"{plural(stage.present, 'task')}{rows}"
    yield f"busy {load.busy:.0%}, busiest {load.busiest:.0%}"
    yield blocked
    if stage.kind == "operator":
        yield f"queue {short(load.mean_queue)}, peak {short(load.peak_queue)}"


def draw_plan(forecast: Forecast, path: str | Path) -> None:
    """Draw the graph of a forecast as a PNG file, which appears complete or not at all, and replaces an older one.
    ReportError if it cannot be written."""
    content = io.BytesIO()
    with settings({}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names may be in any script
        figure = _figure(forecast)
        figure.savefig(content, format="png", dpi=DPI * _sharpness(*(DPI * figure.get_size_inches())))
    try:
        write_file(Path(path), content.getvalue())
    except OSError as error:
        why = "the disk is full" if is_full(error) else error.strerror
        raise ReportError(f"{path}: cannot write the picture of the plan: {why}; name another file") from error


def _figure(forecast: Forecast) -> Figure:
    boxes = {stage.name: _plan_box(stage, forecast) for stage in forecast.stages}
    arrows = [
        Arrow(edge.source, edge.target, wrapped(_plan_label(edge, estimate), _LABEL_CHARACTERS), edge.records)
        for edge, estimate in zip(forecast.edges, forecast.edge_estimates, strict=True)
    ]
    name = forecast.config.get("name")
    title = f"{one_line(str(name), 60)}: " * bool(name) + "forecast from a sample; arrows are as wide as its records"
    tables = [] if forecast.placement is None else list(placement(forecast.placement))
    return draw(boxes, arrows, title, tables)


def _plan_box(stage: StageForecast, forecast: Forecast) -> Box:
    found = level(stage)
    said = [one_line(stage.name), one_line(stage.does), ", ".join(facts(stage, forecast)), *verdict(stage)]
    return Box(wrapped(said, _BOX_CHARACTERS), GRID if found is None else LEVEL_COLOURS[found])


def _plan_label(edge: EdgeForecast, estimate: Estimate) -> Iterator[str]:
    yield from map(one_line, edge.operators)
    yield volume(estimate)


def _sharpness(width: float, height: float) -> float:
    """Pixels of the file for each of the layout: a very large graph is coarse, rather than too large to draw."""
    return min(_SHARPNESS, _MAX_SIDE / max(width, height), math.sqrt(_MAX_PIXELS / (width * height)))


@dataclass(frozen=True)
class Box:
    """A stage: its lines, the first of them bold and those of `warned` in another colour; the part (0 to 1) of it that
    is filled from the left, and the width of its frame in points."""

    lines: Sequence[str]
    colour: str
    filled: float = 1.0
    frame: float = 1.5
    warned: Sequence[str] = ()


@dataclass(frozen=True)
class Arrow:
    """An edge between two stages with the lines of its label; it is drawn wider the more records it has."""

    source: str
    target: str
    lines: Sequence[str]
    records: int
    colour: str = COLOURS[0]


@dataclass(frozen=True)
class _Words:
    """Lines of text in a font of `size` points, the first bold if they are headed."""

    lines: Sequence[str]
    size: float
    is_headed: bool = False

    @property
    def width(self) -> float:
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(size=self.size, weight="bold" if self.is_headed else "normal")
        points = (text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in self.lines)
        return max(points, default=0.0) * DPI / 72

    @property
    def height(self) -> float:
        return len(self.lines) * self.size * _LEADING * DPI / 72

    def draw(self, axes: Axes, x: float, y: float, warned: Sequence[str] = (), **style: Any) -> None:
        """Write the lines around the height `y`, from `x` on or as `ha` of `style` aligns them."""
        for place, line in enumerate(self.lines):
            middle = y + ((place + 0.5) / len(self.lines) - 0.5) * self.height
            look: dict[str, Any] = {
                "size": self.size,
                "weight": "bold" if self.is_headed and place == 0 else "normal",
                "color": COLOURS[5] if line in warned else INK,
            }
            axes.text(x, middle, line, va="center_baseline", **look, **style)


def wrapped(said: Iterable[str], characters: int) -> list[str]:
    """Lines of at most `characters`; a part between commas is broken only if it does not fit on a line."""
    lines = []
    for each in said:
        parts = (part.replace(" ", _TIED) if len(part) < characters else part for part in each.split(", "))
        lines += [line.replace(_TIED, " ") for line in wrap(", ".join(parts), characters)]
    return lines


def draw(boxes: dict[str, Box], arrows: Sequence[Arrow], title: str = "", tables: Sequence[Table] = ()) -> Figure:
    """The picture of a graph; each of `boxes` comes after those that feed it."""
    from matplotlib.figure import Figure

    words = {name: _Words(box.lines, _BOX_FONT, is_headed=True) for name, box in boxes.items()}
    labels = [_Words(arrow.lines, _SMALL_FONT) for arrow in arrows]
    label_width = max((label.width for label in labels), default=0.0)
    sizes = Sizes(
        width=max((each.width for each in words.values()), default=0.0) + 2 * _PADDING,
        height=max((each.height for each in words.values()), default=0.0) + 2 * _PADDING,
        gap=label_width + 6 * _ARROW,
        port=2 * _ARROW + _WIDEST,
        label_width=label_width,
        label_height=max((label.height for label in labels), default=0.0) + _PADDING,
    )
    placed = layout(list(boxes), [(arrow.source, arrow.target) for arrow in arrows], sizes)
    head = _Words([title] * bool(title), _BOX_FONT)
    drawn = [_TablePicture(table) for table in tables]
    top = 2.0 * head.height
    width = max(placed.width, max([head.width, *(each.width for each in drawn)]) + 2 * sizes.space)
    height = top + placed.height + sum(each.height for each in drawn)
    figure = Figure(figsize=(width / DPI, height / DPI))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height - top, -top))
    axes.set_axis_off()
    head.draw(axes, sizes.space, 0, alpha=0.7)
    below = placed.height
    for each in drawn:
        each.draw(axes, sizes.space, below)
        below += each.height
    most = max((arrow.records for arrow in arrows), default=0) or 1
    for arrow, path in zip(arrows, placed.paths, strict=True):
        _draw_arrow(axes, path, sizes.gap, _THINNEST + (_WIDEST - _THINNEST) * arrow.records / most, arrow.colour)
    for name, box in boxes.items():
        x, y = placed.stages[name]
        _draw_box(axes, box, (x, y), sizes)
        words[name].draw(axes, x + _PADDING, y + sizes.height / 2, box.warned)
    for label, (x, y) in zip(labels, placed.labels, strict=True):
        room = label.width + _PADDING
        _rectangle(axes, x - room / 2, y - label.height / 2, room, label.height, PAPER, 0.85)
        label.draw(axes, x, y, ha="center")
    return figure


def _draw_box(axes: Axes, box: Box, corner: Point, sizes: Sizes) -> None:
    from matplotlib.patches import FancyBboxPatch

    looks: list[tuple[float, dict[str, Any]]] = [  # paper, so that no arrow shows through the colour
        (1.0, {"facecolor": PAPER, "edgecolor": "none"}),
        (box.filled, {"facecolor": box.colour, "edgecolor": "none", "alpha": 0.2}),
        (1.0, {"facecolor": "none", "edgecolor": box.colour, "linewidth": box.frame}),
    ]
    for part, look in looks:
        shape = f"round,pad=0,rounding_size={_PADDING / 2}" if part == 1 else "square,pad=0"
        axes.add_patch(FancyBboxPatch(corner, part * sizes.width, sizes.height, boxstyle=shape, **look))


def _draw_arrow(axes: Axes, path: tuple[Point, ...], gap: float, width: float, colour: str) -> None:
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path as Outline

    curves = [point for bend in bends(path, gap, _ARROW) for point in bend]
    line = Outline([path[0], *curves], [Outline.MOVETO, *[Outline.CURVE4] * len(curves)])
    axes.add_patch(PathPatch(line, facecolor="none", edgecolor=colour, alpha=0.45, linewidth=width * 72 / DPI))
    (x, y), half = path[-1], _ARROW / 2 + width / 2
    axes.add_patch(Polygon([(x, y), (x - _ARROW, y - half), (x - _ARROW, y + half)], color=colour, linewidth=0))


def _rectangle(axes: Axes, x: float, y: float, width: float, height: float, colour: str, alpha: float = 1.0) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, color=colour, alpha=alpha, linewidth=0))


class _TablePicture:
    """A table, `height` by `width` pixels."""

    def __init__(self, table: Table) -> None:
        self._title = _Words([table.title], _SMALL_FONT)
        self._head = table.head
        hidden = len(table.rows) - (table.most or len(table.rows))
        more = [(f"and {hidden} more{table.more}", *[""] * (len(table.head) - 1))] * (hidden > 0)
        self._rows = [[title.lstrip("#") for title in table.head], *table.rows[: table.most], *more]
        self._widths = [
            max(_BAR_WIDTH if isinstance(cell, Bar) else _Words([cell], _SMALL_FONT).width for cell in column)
            for column in zip(*self._rows, strict=True)
        ]
        self.width = max(self._title.width, sum(self._widths) + _PADDING * len(self._widths))
        self.height = _ROW * (len(self._rows) + 2)

    def draw(self, axes: Axes, x: float, y: float) -> None:
        self._title.draw(axes, x, y + _ROW / 2, alpha=0.7)
        for place, row in enumerate(self._rows, start=1):
            left, middle = x, y + (place + 0.5) * _ROW
            for cell, title, width in zip(row, self._head, self._widths, strict=True):
                is_number = title.startswith("#")
                if isinstance(cell, Bar):
                    _rectangle(axes, left, middle - _BAR_HEIGHT / 2, _BAR_WIDTH, _BAR_HEIGHT, GRID)
                    _rectangle(axes, left, middle - _BAR_HEIGHT / 2, cell.last * _BAR_WIDTH, _BAR_HEIGHT, COLOURS[0])
                elif cell:
                    alpha = 0.7 if place == 1 else 1.0
                    align = "right" if is_number else "left"
                    _Words([cell], _SMALL_FONT).draw(axes, left + is_number * width, middle, ha=align, alpha=alpha)
                left += width + _PADDING
