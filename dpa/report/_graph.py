"""The graph of a run as a picture: one look finds the stage that limits it.

A stage is filled from the left by its busy share; the one that limits the run has a heavy frame. An arrow is as wide as
its share of the records, and in the warning colour if its sender was blocked because of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpa.measure.bottleneck import BLOCKED
from dpa.report._drawing import Arrow, Box, draw, wrapped
from dpa.report.plots import COLOURS, settings
from dpa.result import Report, StageReport
from dpa.result.text import one_line, plural, short, skew

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WARNING = COLOURS[5]


def picture(report: Report) -> Figure:
    """The graph of a report that has stages."""
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
