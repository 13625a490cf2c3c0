"""One picture that says when which method wins: a row a scenario, a column a method, the time in colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.charts import COLOURS, INK
from experiments.steady.outcome import Outcome, Outcomes
from experiments.steady.real import CLICKS, SHARED_CORES, SLOW
from experiments.steady.virtual import CLOSED, OPEN
from experiments.steady.virtual import SHARED_CORES as VIRTUAL_SHARED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WORST = 2.0
"""Times from this on have the strongest colour."""

_TIE = 0.02
"""Methods within this share of the best win as well."""

_COLOURS = LinearSegmentedColormap.from_list("time", ["#ffffff", "#f3c7a6", "#d0672e"])
_ROW, _COLUMN, _MARGIN, _HEAD = 0.28, 0.95, 2.0, 0.62
"""Inches: height and width of a cell, width of the names of scenarios, height of a panel's title and methods."""


@dataclass(frozen=True)
class Panel:
    """Runs of a part; `figure` is what is shown of a run, or None for the seconds by those of `none`."""

    part: str
    title: str
    figure: Callable[[Outcome], float] | None


_PANELS = (
    Panel(SLOW, "real actors, 2 ms a record: time, ideal = 1", lambda run: run.ratio),
    Panel(OPEN, "virtual, sources paced at 0.9: time, ideal = 1", lambda run: run.ratio),
    Panel(CLOSED, "virtual, sources as fast as they can: time, ideal = 1", lambda run: run.ratio),
    Panel(SHARED_CORES, "real actors, cores shared: time, none = 1", None),
    Panel(VIRTUAL_SHARED, "virtual, cores shared: time, none = 1", None),
    Panel(CLICKS, "clicks on real actors: time, none = 1", None),
)


def draw(found: Outcomes) -> Figure:
    """The picture of all parts that were run: slow records left, cheap ones right."""
    shown = [(panel, runs) for panel in _PANELS if (runs := found.of(panel.part)).runs]
    columns = [[each for each in shown if each[0].figure], [each for each in shown if not each[0].figure]]
    columns = [column for column in columns if column]
    widths = [_MARGIN + _COLUMN * max(len(runs.methods) for _, runs in column) for column in columns]
    heights = [sum(_HEAD + _ROW * len(runs.scenarios) for _, runs in column) for column in columns]
    width, height = max(sum(widths), 1.0), max(heights, default=0.0) + _HEAD
    figure = Figure(figsize=(width, height))
    for place, column in enumerate(columns):
        left, top = sum(widths[:place]) + _MARGIN, 0.0
        for panel, runs in column:
            wide, high = _COLUMN * len(runs.methods), _ROW * len(runs.scenarios)
            top += _HEAD + high
            axes = figure.add_axes((left / width, 1 - top / height, wide / width, high / height))
            _table(axes, panel, runs)
    note = f"Beside each time: p99 latency. Framed: the best of the row, and what comes within {_TIE:g} of it."
    figure.text(0.5, 0.0, note, fontsize=8, color=INK, ha="center", va="bottom")
    return figure


def _table(axes: Axes, panel: Panel, runs: Outcomes) -> None:
    """A cell for each scenario and method: its time, below that p99; the winners are framed."""
    times = np.array([[_time(panel, runs, row, column) for column in runs.methods] for row in runs.scenarios])
    axes.imshow(np.clip(times, 1.0, _WORST), cmap=_COLOURS, vmin=1.0, vmax=_WORST, aspect="auto")
    for row, scenario in enumerate(runs.scenarios):
        best = np.nanmin(times[row])
        for column, method in enumerate(runs.methods):
            if math.isnan(times[row, column]):
                continue
            p99 = runs.of(panel.part, scenario, method).median(lambda run: run.p99)
            text = f"{times[row, column]:.2f}  {_seconds(p99)}"
            wins = times[row, column] <= best + _TIE
            axes.text(column, row, text, ha="center", va="center", fontsize=7, weight="bold" if wins else None)
            if wins:
                frame = Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, fill=False, edgecolor=COLOURS[0], lw=1.4)
                axes.add_patch(frame)
    axes.set_xticks(range(len(runs.methods)), runs.methods, fontsize=8, color=INK)
    axes.set_yticks(range(len(runs.scenarios)), runs.scenarios, fontsize=8, color=INK)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(panel.title, fontsize=9, color=INK, loc="left")


def _time(panel: Panel, runs: Outcomes, scenario: str, method: str) -> float:
    of = runs.of(panel.part, scenario, method)
    if not of.runs:
        return math.nan
    if panel.figure is not None:
        return of.median(panel.figure)
    unbalanced = runs.of(panel.part, scenario, "none") if "none" in runs.methods else of
    return of.median(_whole) / unbalanced.median(_whole)


def _whole(run: Outcome) -> float:
    return run.seconds


def _seconds(figure: float) -> str:
    return f"{figure:.0f} s" if figure >= 9.5 else f"{figure:.1f} s"


__all__: Sequence[str] = ("Panel", "draw")
