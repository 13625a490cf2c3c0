"""The number of tasks over time under each load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.charts import COLOURS, INK, panels
from experiments.elastic.loads import Load
from experiments.elastic.outcome import Outcome, tasks_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(loads: Sequence[Load], shown: Mapping[str, Outcome]) -> Figure:
    """A panel for each load; `shown`: the run of each, by its name."""
    figure, axes = panels(2, (11.0, 2.6 * (-(-len(loads) // 2))), rows=-(-len(loads) // 2))
    for panel, load in zip(axes, loads, strict=False):
        at = np.arange(0.0, load.seconds, 0.1)
        panel.fill_between(at, load.tasks(at), color="#dddddd", label="load")
        numbers = [tasks_at(load, shown[load.name].changes, moment) for moment in at]
        panel.plot(at, numbers, color=COLOURS[2], linewidth=1.2, label="tasks")
        panel.set_title(load.name, loc="left", fontsize=9)
        panel.set_xlabel("seconds", fontsize=8, color=INK)
        panel.set_ylim(bottom=0)
    for unused in axes[len(loads) :]:
        unused.set_axis_off()
    axes[0].legend(fontsize=7, frameon=False, loc="upper right")
    axes[0].set_ylabel("tasks", fontsize=8, color=INK)
    return figure
