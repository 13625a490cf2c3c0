"""The graph of a run, and that of a plan, as pictures.

Of a run, one look finds the stage that limits it: a stage is filled from the left by its busy share, and the one that
limits the run has a heavy frame. An arrow is as wide as its share of the records, and in the warning colour if its
sender was blocked because of it. Of a plan, a box has the colour of how even its stage is, arrows are labelled with
operators and records of the sample, and tables below say where tasks are placed.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpa._util.disk import is_full
from dpa.driver.forecast_stages import EdgeForecast, Estimate, Forecast, StageForecast
from dpa.measure.bottleneck import BLOCKED
from dpa.report._drawing import DPI, Arrow, Box, draw, wrapped
from dpa.report._files import ReportError, write_file
from dpa.report._plan_content import Level, facts, level, placement, verdict, volume
from dpa.report.plots import COLOURS, GRID, settings
from dpa.result import Report, StageReport
from dpa.result.text import one_line, plural, short, skew

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    lines = wrapped([one_line(stage.name)], 26) + list(_facts(stage, blocked))
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
