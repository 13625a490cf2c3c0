"""The picture of Table 1: a group of methods for each workload."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.charts import INK, panels
from experiments.letters import COLOUR_OF, METHODS
from experiments.table1.cells import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(cells: Sequence[Cell]) -> Figure:
    """Dots for the runs on Ray, bars for the sweep, crosses for the paper."""
    figure, (axes,) = panels(size=(10.0, 4.2))
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    methods = [name for name in METHODS if any(cell.method == name for cell in cells)]
    step = 0.8 / len(methods)
    for index, method in enumerate(methods):
        for cell in (cell for cell in cells if cell.method == method):
            place = workloads.index(cell.workload) + (index - (len(methods) - 1) / 2) * step
            first = cell.workload == workloads[0]
            _draw(axes, cell, place, step, COLOUR_OF[method], label=method if first else None)
    for place in range(1, len(workloads)):
        axes.axvline(place - 0.5, color="#eeeeee", linewidth=1)
    axes.scatter([], [], marker="x", color=INK, s=36, label="the paper")
    axes.plot([], [], color="#888888", linewidth=7, alpha=0.35, label="race sweep, virtual")
    axes.set_xticks(range(len(workloads)), workloads)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(-0.04, 1.06)
    axes.set_ylabel(
        "skew S (dots: mean and range on Ray)" if any(cell.ray for cell in cells) else "skew S (dots: virtual)"
    )
    figure.legend(loc="outside upper center", ncols=len(methods) + 2, frameon=False, fontsize=9)
    return figure


def _draw(axes: Any, cell: Cell, place: float, step: float, colour: str, label: str | None) -> None:
    swept = [run.skew for run in cell.all_swept]
    axes.plot([place, place], [min(swept), max(swept)], color=colour, linewidth=7, alpha=0.3, solid_capstyle="butt")
    seen = [run.skew for run in cell.best]
    mean = statistics.mean(seen)
    ends = [[mean - min(seen)], [max(seen) - mean]]
    axes.errorbar([place], [mean], ends, fmt="o", markersize=5, capsize=3, color=colour, label=label)
    if cell.paper is not None:
        axes.scatter([place + step * 0.3], [cell.paper], marker="x", color=INK, s=36, zorder=3)
