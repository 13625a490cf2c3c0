"""Part c: what edges are treated first, and how many tasks a group has (task allocation paper, figures 2 and 4)."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dpa.placement import scores
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Allocator, Cluster, GroupEdge, TaskGraph, TaskGroup
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, markdown_table
from experiments.placement.baselines import TaskLevelAllocator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEDS = 20
"""Orders of TL's pairs by chance, in the running example."""

TRAFFIC = 100.0
RATIOS = (2.0, 1.8, 1.6, 1.4, 1.2, 1.0)
"""Traffic of the second pair by that of the first, as in figure 4a."""
FACTORS = (1, 2, 3, 4, 5, 6, 7)
"""Tasks of the second group by those of the first, as in figure 4b."""

Lines = Mapping[str, Sequence[float]]


def measure(options: argparse.Namespace) -> Findings:
    """Both sweeps, and the running example."""
    seeds = 3 if options.quick else SEEDS
    priorities = {
        "TL, by traffic": [_kept(TaskLevelAllocator(), *prioritised(ratio)) for ratio in RATIOS],
        "TL, by significance": [_kept(TaskLevelAllocator("significance"), *prioritised(ratio)) for ratio in RATIOS],
    }
    counts = {
        "TL": [_kept(TaskLevelAllocator("significance"), *lopsided(factor)) for factor in FACTORS],
        "TD": [_kept(TopDownAllocator(), *lopsided(factor)) for factor in FACTORS],
    }
    td = links(TopDownAllocator())
    nested = links(TaskLevelAllocator("significance"))
    tl = statistics.mean(links(TaskLevelAllocator("significance", seed)) for seed in range(seeds))
    spread = max(counts["TD"]) / min(counts["TD"])
    ahead = min(s / t for s, t in zip(priorities["TL, by significance"], priorities["TL, by traffic"], strict=True))
    return Findings(
        data={
            "ratios": RATIOS,
            "priorities": priorities,
            "factors": FACTORS,
            "counts": counts,
            "links": {"TD": td, "TL": nested, "TL, by chance": tl},
        },
        targets=[
            Target("TD: collocated links of v1-v2 in the running example", "100", td, td == 100),
            Target("TL by significance: traffic kept, by that by traffic, at least", ">= 1", ahead, ahead >= 1),
            Target("TD: most traffic kept over task counts, by the least", "<= 1.1", spread, spread <= 1.1),
        ],
        text=_text(priorities, counts, td, nested, tl),
        figure=_figure(priorities, counts),
    )


def running_example() -> tuple[TaskGraph, Cluster]:
    """Figure 2: four groups of 40 %, the second with twenty tasks, on nodes with 40 % to spare."""
    groups = [TaskGroup(f"v{number}", tasks, 0.4) for number, tasks in enumerate((10, 20, 10, 10), start=1)]
    edges = (GroupEdge("v1", "v2", 10.0), GroupEdge("v2", "v3", 9.9), GroupEdge("v3", "v4", 1.0))
    return TaskGraph(tuple(groups), edges), Cluster.alike(5, 0.4)


def prioritised(ratio: float) -> tuple[TaskGraph, Cluster]:
    """Figure 4a: a pipeline of two groups of equal cost and a much dearer one."""
    groups = (TaskGroup("v1", 10, 0.4), TaskGroup("v2", 10, 0.4), TaskGroup("v3", 10, 1.6))
    edges = (GroupEdge("v1", "v2", TRAFFIC), GroupEdge("v2", "v3", ratio * TRAFFIC))
    return TaskGraph(groups, edges), Cluster.alike(6, 0.8)


def lopsided(factor: int) -> tuple[TaskGraph, Cluster]:
    """Figure 4b: two groups that each cost twice what a node can do, the second with more and more tasks; of each of
    six nodes 80 % are to spare."""
    groups = (TaskGroup("v1", 10, 2.0), TaskGroup("v2", 10 * factor, 2.0))
    return TaskGraph(groups, (GroupEdge("v1", "v2", TRAFFIC),)), Cluster.alike(6, 0.8)


def _kept(allocator: Allocator, graph: TaskGraph, cluster: Cluster) -> float:
    return scores.kept_traffic(allocator.allocate(graph, cluster))


def links(allocator: Allocator) -> int:
    """Of v1-v2 on the same nodes, in the running example."""
    counts = allocator.allocate(*running_example()).counts
    return int(counts[0] @ counts[1])


def _text(priorities: Lines, counts: Lines, td: int, nested: int, tl: float) -> str:
    return "\n\n".join(
        [
            f"The running example (figure 2): TD puts {td} links of v1-v2 on the same nodes, TL {nested}; where the "
            f"order of its pairs is left to chance, {tl:.1f} on average (the paper: 100 and 84).",
            "Traffic kept (MB/s) while the second pair's traffic falls from twice the first one's to the same (4a):",
            markdown_table(("", *map(str, RATIOS)), [(name, *line) for name, line in priorities.items()]),
            "Traffic kept (MB/s) while the second group has more and more tasks (4b):",
            markdown_table(("", *map(str, FACTORS)), [(name, *line) for name, line in counts.items()]),
        ]
    )


def _figure(priorities: Lines, counts: Lines) -> Figure:
    figure, axes = panels(2)
    drawn = (
        (RATIOS, priorities, "traffic of the second pair by the first's"),
        (FACTORS, counts, "tasks of the second group by the first's"),
    )
    for panel, (along, lines, what) in zip(axes, drawn, strict=True):
        for colour, (name, line) in zip(COLOURS, lines.items(), strict=False):
            panel.plot(along, line, marker="o", markersize=3.5, linewidth=1.4, color=colour, label=name)
        panel.set_ylim(bottom=0)
        panel.set_xlabel(what)
        panel.set_ylabel("traffic kept (MB/s)")
        panel.legend(frameon=False, fontsize=8)
    axes[0].invert_xaxis()
    return figure
