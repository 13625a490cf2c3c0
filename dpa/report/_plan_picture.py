"""The picture of a plan: its stages as boxes in the colour of how even they are, and arrows as wide as the sample's
records on them, labelled with the operators and the records; below it, where the tasks are placed."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpa._util.disk import is_full
from dpa.report._drawing import DPI, Arrow, Box, draw, wrapped
from dpa.report._files import ReportError, write_file
from dpa.report._plan_tables import placement
from dpa.report._plan_words import Level, facts, level, verdict, volume
from dpa.report.plots import COLOURS, GRID, settings
from dpa.result.text import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpa.driver.forecast_stages import EdgeForecast, Estimate, Forecast, StageForecast

LEVEL_COLOURS = {Level.EVEN: COLOURS[2], Level.SLIGHTLY_UNEVEN: COLOURS[1], Level.UNEVEN: COLOURS[5]}

_SHARPNESS = 2.0
"""Pixels of the file for each of the layout, unless that is more than these on a side or in all."""
_MAX_SIDE, _MAX_PIXELS = 32_000, 40_000_000
_BOX_CHARACTERS, _LABEL_CHARACTERS = 26, 24
"""Where lines are broken."""


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
    boxes = {stage.name: _box(stage, forecast) for stage in forecast.stages}
    arrows = [
        Arrow(edge.source, edge.target, wrapped(_label(edge, estimate), _LABEL_CHARACTERS), edge.records)
        for edge, estimate in zip(forecast.edges, forecast.edge_estimates, strict=True)
    ]
    name = forecast.config.get("name")
    title = f"{one_line(str(name), 60)}: " * bool(name) + "forecast from a sample; arrows are as wide as its records"
    tables = [] if forecast.placement is None else list(placement(forecast.placement))
    return draw(boxes, arrows, title, tables)


def _box(stage: StageForecast, forecast: Forecast) -> Box:
    found = level(stage)
    said = [one_line(stage.name), one_line(stage.does), ", ".join(facts(stage, forecast)), *verdict(stage)]
    return Box(wrapped(said, _BOX_CHARACTERS), GRID if found is None else LEVEL_COLOURS[found])


def _label(edge: EdgeForecast, estimate: Estimate) -> Iterator[str]:
    yield from map(one_line, edge.operators)
    yield volume(estimate)


def _sharpness(width: float, height: float) -> float:
    """Pixels of the file for each of the layout, so that a very large graph is coarse and not too large to draw."""
    return min(_SHARPNESS, _MAX_SIDE / max(width, height), math.sqrt(_MAX_PIXELS / (width * height)))
