"""`python -m experiments.placement.pictures`: what each allocator makes of one graph, for docs/placement.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpa.placement import scores
from dpa.placement.allocators import ALLOCATORS, allocator_of
from dpa.placement.model import Cluster, GroupEdge, Placement, TaskGraph, TaskGroup
from experiments.charts import COLOURS, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = Path(__file__).parents[2] / "docs" / "placement.png"

GRAPH = TaskGraph(
    (TaskGroup("read", 4, 1.2), TaskGroup("parse", 8, 2.0), TaskGroup("count", 6, 1.5), TaskGroup("rank", 2, 0.4)),
    (GroupEdge("read", "parse", 80e6), GroupEdge("parse", "count", 60e6), GroupEdge("count", "rank", 10e6)),
)
CLUSTER = Cluster.alike(4, 2.0, bandwidth=25e6)


def draw() -> None:
    """Draw all allocators side by side."""
    figure, axes = panels(len(ALLOCATORS), size=(2.5 * len(ALLOCATORS), 2.8))
    for panel, name in zip(axes, ALLOCATORS, strict=True):
        placement = allocator_of(name).allocate(GRAPH, CLUSTER)
        _bars(panel, placement)
        kept = scores.kept_traffic(placement) / GRAPH.traffic
        speed = scores.throughput(placement)
        panel.set_title(f"{name}\n{kept:.0%} of traffic inside, speed {speed:.2f}", loc="left", fontsize=8)
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=4)
    axes[0].set_ylabel("busy processors of 2")
    figure.savefig(PICTURE, dpi=110, bbox_inches="tight")
    print(f"wrote {PICTURE}")


def _bars(panel: Axes, placement: Placement) -> None:
    """Each node's load, a piece for each task."""
    base = np.zeros(len(CLUSTER.nodes))
    for colour, group, counts in zip(COLOURS, GRAPH.groups, placement.counts, strict=False):
        for task in range(int(counts.max())):
            here = np.where(counts > task, group.task_cost, 0.0)
            panel.bar(
                range(len(base)),
                here,
                bottom=base,
                color=colour,
                edgecolor="white",
                linewidth=0.6,
                label=group.name if task == 0 else None,
            )
            base = base + here
    panel.set_ylim(0, 2.05)
    panel.set_xticks(range(len(base)), [f"n{number}" for number in range(len(base))])


if __name__ == "__main__":
    draw()
