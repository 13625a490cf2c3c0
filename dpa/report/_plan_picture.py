"""The picture of a plan: its stages as boxes in the colour of how even they are, and arrows as wide as the sample's
records on them, labelled with the operators and the records.

Boxes and gaps are made as large as the words in them, so nothing is cut; lines are broken instead.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dpa._util.disk import is_full
from dpa.report._files import ReportError, write_file
from dpa.report._layout import Point, Sizes, bends, layout
from dpa.report._plan_words import Level, facts, level, verdict, volume
from dpa.report._text import one_line
from dpa.report.plots import COLOURS, GRID, INK, settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpa.driver.forecast_stages import EdgeForecast, Estimate, Forecast, StageForecast

LEVEL_COLOURS = {Level.EVEN: COLOURS[2], Level.SLIGHTLY_UNEVEN: COLOURS[1], Level.UNEVEN: COLOURS[5]}

# Lengths are in pixels of the layout, fonts in points.
_DPI = 100
_SHARPNESS = 2.0
"""Pixels of the file for each of the layout, unless that is more than these on a side or in all."""
_MAX_SIDE, _MAX_PIXELS = 32_000, 40_000_000
_BOX_CHARACTERS, _LABEL_CHARACTERS = 26, 24
"""Where lines are broken."""
_TIED = "\N{NO-BREAK SPACE}"
_BOX_FONT, _LABEL_FONT = 9.0, 8.0
_LEADING = 1.3
"""Height of a line by that of its font."""
_PADDING = 10.0
_TITLE = 26.0
_THINNEST, _WIDEST = 1.5, 8.0
_ARROW = 10.0


def draw_plan(forecast: Forecast, path: str | Path) -> None:
    """Draw the graph of a forecast as a PNG file, which appears complete or not at all and replaces an older one.

    Raises:
        ReportError: the file cannot be written.
    """
    content = io.BytesIO()
    with settings({}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names may be in any script
        figure = _figure(forecast)
        figure.savefig(content, format="png", dpi=_DPI * _sharpness(*(_DPI * figure.get_size_inches())))
    try:
        write_file(Path(path), content.getvalue())
    except OSError as error:
        why = "the disk is full" if is_full(error) else error.strerror
        raise ReportError(f"{path}: cannot write the picture of the plan: {why}; name another file") from error


@dataclass(frozen=True)
class _Words:
    """Lines of text in a font.

    Attributes:
        lines: from top to bottom.
        size: of the font, in points.
        is_headed: whether the first line is bold.
    """

    lines: tuple[str, ...]
    size: float
    is_headed: bool = False

    @property
    def width(self) -> float:
        """Of the longest line."""
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(size=self.size, weight="bold" if self.is_headed else "normal")
        points = (text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in self.lines)
        return max(points, default=0.0) * _DPI / 72

    @property
    def line_height(self) -> float:
        """Of one line."""
        return self.size * _LEADING * _DPI / 72

    @property
    def height(self) -> float:
        """Of all lines."""
        return len(self.lines) * self.line_height

    def draw(self, axes: Axes, x: float, y: float, **style: Any) -> None:
        """Write the lines around the height `y`; `x` is where they begin, or their middle with `ha="center"`."""
        for place, line in enumerate(self.lines):
            middle = y + (place + 0.5) * self.line_height - self.height / 2
            weight = "bold" if self.is_headed and place == 0 else "normal"
            axes.text(x, middle, line, size=self.size, weight=weight, va="center_baseline", **style)


def _figure(forecast: Forecast) -> Figure:
    """The graph of a forecast; the pixels of the layout are its coordinates, from the upper left corner."""
    from matplotlib.figure import Figure

    boxes = [_Words(tuple(_box_lines(stage, forecast)), _BOX_FONT, is_headed=True) for stage in forecast.stages]
    estimates = zip(forecast.edges, forecast.edge_estimates, strict=True)
    labels = [_Words(tuple(_label_lines(edge, estimate)), _LABEL_FONT) for edge, estimate in estimates]
    label_width = max((label.width for label in labels), default=0.0)
    sizes = Sizes(
        width=max((box.width for box in boxes), default=0.0) + 2 * _PADDING,
        height=max((box.height for box in boxes), default=0.0) + 2 * _PADDING,
        gap=label_width + 6 * _ARROW,
        port=2 * _ARROW + _WIDEST,
        label_width=label_width,
        label_height=max((label.height for label in labels), default=0.0) + _PADDING,
    )
    placed = layout(
        [stage.name for stage in forecast.stages], [(edge.source, edge.target) for edge in forecast.edges], sizes
    )
    title = _Words((_title(forecast),), _BOX_FONT)
    width, height = max(placed.width, title.width + 2 * sizes.space), placed.height + _TITLE
    figure = Figure(figsize=(width / _DPI, height / _DPI))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height - _TITLE, -_TITLE))
    axes.set_axis_off()
    title.draw(axes, sizes.space, 0, color=INK, alpha=0.7)
    most = max((edge.records for edge in forecast.edges), default=0) or 1
    for edge, path in zip(forecast.edges, placed.paths, strict=True):
        _draw_arrow(axes, path, sizes.gap, _THINNEST + (_WIDEST - _THINNEST) * edge.records / most)
    for stage, box in zip(forecast.stages, boxes, strict=True):
        _draw_box(axes, stage, box, placed.stages[stage.name], sizes)
    for label, (x, y) in zip(labels, placed.labels, strict=True):
        _draw_paper(axes, x, y, label)
        label.draw(axes, x, y, ha="center", color=INK)
    return figure


def _title(forecast: Forecast) -> str:
    name = forecast.config.get("name")
    return f"{one_line(str(name), 60)}: " * bool(name) + "forecast from a sample; arrows are as wide as its records"


def _box_lines(stage: StageForecast, forecast: Forecast) -> Iterator[str]:
    unbroken = ", ".join(fact.replace(" ", _TIED) for fact in facts(stage, forecast))
    for said in (one_line(stage.name), one_line(stage.does), unbroken, *verdict(stage)):
        yield from (line.replace(_TIED, " ") for line in wrap(said, _BOX_CHARACTERS))


def _label_lines(edge: EdgeForecast, estimate: Estimate) -> Iterator[str]:
    for said in (*edge.operators, volume(estimate)):
        yield from wrap(one_line(said), _LABEL_CHARACTERS)


def _draw_box(axes: Axes, stage: StageForecast, words: _Words, corner: Point, sizes: Sizes) -> None:
    from matplotlib.patches import FancyBboxPatch

    found = level(stage)
    colour = GRID if found is None else LEVEL_COLOURS[found]
    looks: list[dict[str, Any]] = [  # white, so that no arrow shows through the colour
        {"facecolor": "white", "edgecolor": "none"},
        {"facecolor": colour, "edgecolor": "none", "alpha": 0.2},
        {"facecolor": "none", "edgecolor": colour, "linewidth": 1.5},
    ]
    for look in looks:
        shape = f"round,pad=0,rounding_size={_PADDING / 2}"
        axes.add_patch(FancyBboxPatch(corner, sizes.width, sizes.height, boxstyle=shape, **look))
    words.draw(axes, corner[0] + _PADDING, corner[1] + sizes.height / 2, color=INK)


def _draw_arrow(axes: Axes, path: tuple[Point, ...], gap: float, width: float) -> None:
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path as Outline

    curves = [point for bend in bends(path, gap, _ARROW) for point in bend]
    codes = [Outline.MOVETO, *[Outline.CURVE4] * len(curves)]
    line = Outline([path[0], *curves], codes)
    axes.add_patch(PathPatch(line, facecolor="none", edgecolor=COLOURS[0], alpha=0.45, linewidth=width * 72 / _DPI))
    (x, y), half = path[-1], _ARROW / 2 + width / 2
    axes.add_patch(Polygon([(x, y), (x - _ARROW, y - half), (x - _ARROW, y + half)], color=COLOURS[0], linewidth=0))


def _draw_paper(axes: Axes, x: float, y: float, words: _Words) -> None:
    """White behind a label, so that it can be read above arrows."""
    from matplotlib.patches import Rectangle

    width, height = words.width + _PADDING, words.height
    axes.add_patch(Rectangle((x - width / 2, y - height / 2), width, height, color="white", alpha=0.85, linewidth=0))


def _sharpness(width: float, height: float) -> float:
    """Pixels of the file for each of the layout, so that a very large graph is coarse and not too large to draw."""
    return min(_SHARPNESS, _MAX_SIDE / max(width, height), math.sqrt(_MAX_PIXELS / (width * height)))
