"""The picture of a plan: its stages as boxes in the colour of how even they are, and arrows as wide as the sample's
records on them, labelled with the operators and the records; below it, where the tasks are placed.

Boxes and gaps are made as large as the words in them, so nothing is cut; lines are broken instead.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dpa._util.disk import is_full
from dpa.report._files import ReportError, write_file
from dpa.report._layout import Point, Sizes, bends, layout
from dpa.report._picture_text import DPI, Words
from dpa.report._plan_picture_nodes import NodesPicture
from dpa.report._plan_words import Level, facts, level, verdict, volume
from dpa.report._text import one_line
from dpa.report.plots import COLOURS, GRID, INK, settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpa.driver.forecast_stages import EdgeForecast, Estimate, Forecast, StageForecast

LEVEL_COLOURS = {Level.EVEN: COLOURS[2], Level.SLIGHTLY_UNEVEN: COLOURS[1], Level.UNEVEN: COLOURS[5]}

# Lengths are in pixels of the layout, fonts in points.
_SHARPNESS = 2.0
"""Pixels of the file for each of the layout, unless that is more than these on a side or in all."""
_MAX_SIDE, _MAX_PIXELS = 32_000, 40_000_000
_BOX_CHARACTERS, _LABEL_CHARACTERS = 26, 24
"""Where lines are broken."""
_TIED = "\N{NO-BREAK SPACE}"
_BOX_FONT, _LABEL_FONT = 9.0, 8.0
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
        figure.savefig(content, format="png", dpi=DPI * _sharpness(*(DPI * figure.get_size_inches())))
    try:
        write_file(Path(path), content.getvalue())
    except OSError as error:
        why = "the disk is full" if is_full(error) else error.strerror
        raise ReportError(f"{path}: cannot write the picture of the plan: {why}; name another file") from error


def _figure(forecast: Forecast) -> Figure:
    """The graph of a forecast; the pixels of the layout are its coordinates, from the upper left corner."""
    from matplotlib.figure import Figure

    boxes = [Words(tuple(_box_lines(stage, forecast)), _BOX_FONT, is_headed=True) for stage in forecast.stages]
    estimates = zip(forecast.edges, forecast.edge_estimates, strict=True)
    labels = [Words(tuple(_label_lines(edge, estimate)), _LABEL_FONT) for edge, estimate in estimates]
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
    title = Words((_title(forecast),), _BOX_FONT)
    nodes = NodesPicture(forecast.placement)
    width = max(placed.width, max(title.width, nodes.width) + 2 * sizes.space)
    height = placed.height + _TITLE + nodes.height
    figure = Figure(figsize=(width / DPI, height / DPI))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height - _TITLE, -_TITLE))
    axes.set_axis_off()
    title.draw(axes, sizes.space, 0, color=INK, alpha=0.7)
    nodes.draw(axes, sizes.space, placed.height)
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


def _draw_box(axes: Axes, stage: StageForecast, words: Words, corner: Point, sizes: Sizes) -> None:
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
    axes.add_patch(PathPatch(line, facecolor="none", edgecolor=COLOURS[0], alpha=0.45, linewidth=width * 72 / DPI))
    (x, y), half = path[-1], _ARROW / 2 + width / 2
    axes.add_patch(Polygon([(x, y), (x - _ARROW, y - half), (x - _ARROW, y + half)], color=COLOURS[0], linewidth=0))


def _draw_paper(axes: Axes, x: float, y: float, words: Words) -> None:
    """White behind a label, so that it can be read above arrows."""
    from matplotlib.patches import Rectangle

    width, height = words.width + _PADDING, words.height
    axes.add_patch(Rectangle((x - width / 2, y - height / 2), width, height, color="white", alpha=0.85, linewidth=0))


def _sharpness(width: float, height: float) -> float:
    """Pixels of the file for each of the layout, so that a very large graph is coarse and not too large to draw."""
    return min(_SHARPNESS, _MAX_SIDE / max(width, height), math.sqrt(_MAX_PIXELS / (width * height)))
