"""Part b: allocations a second over numbers of tasks and of nodes (task allocation paper, 7.2)."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator
from dpa.placement.allocators.search import TopDownSearchAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Allocator, Cluster, GroupEdge, TaskGraph, TaskGroup
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, markdown_table, progress
from experiments.placement.baselines import TaskLevelAllocator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = 4
TASKS = (12, 40, 120, 400, 1_200, 4_000, 12_000, 40_000, 100_000)
NODES = (8, 24, 80, 240, 800, 2_400, 10_000)
MANY, QUICK_MANY = 20_000, 1_000
"""Tasks on more and more nodes: some for each of them."""
PAPERS = 400
"""Tasks of the paper's figure 5."""
PUBLISHED = 264.0
"""TD's allocations a second there."""

SECONDS, SLOWEST = 1.0, 1.2
"""How long an allocator is repeated; and how long one allocation may take before no larger graph is tried."""

ALLOCATORS: Mapping[str, Allocator] = {
    "TD": TopDownAllocator(),
    "TL": TaskLevelAllocator(),
    "TD with search": TopDownSearchAllocator(),
    "GMA": GreedyMatchingAllocator(),
    "even": EvenAllocator(),
}

OF_PAIRS = "TL"
"""Quadratic in the tasks: left out where there are very many."""

Rates = dict[str, dict[int, float]]


def measure(options: argparse.Namespace) -> Findings:
    """Grow the tasks on eight nodes, and the nodes under many tasks."""
    quick = ((12, 400), (8, 80), QUICK_MANY, 0.1)
    tasks, nodes, many, seconds = quick if options.quick else (TASKS, NODES, MANY, SECONDS)
    by_tasks = _rates({count: (pipeline(count), Cluster.alike(8, 1.0)) for count in tasks}, "tasks", seconds)
    by_nodes = _rates({count: (pipeline(many), Cluster.alike(count, 6.0 / count)) for count in nodes}, "nodes", seconds)
    rate = by_tasks["TD"][PAPERS]
    growth = _exponent(by_tasks["TD"], PAPERS)
    return Findings(
        data={"tasks": by_tasks, "nodes": by_nodes, "published": PUBLISHED},
        targets=[
            Target(f"TD: allocations/s of {PAPERS} tasks in {GROUPS} groups", ">= 10,000", rate, rate >= 10_000),
            Target("TD: exponent of time over tasks, from 400 on", "<= 0.1", growth, growth <= 0.1),
        ],
        text=_text(by_tasks, by_nodes, many),
        figure=_figure(by_tasks, by_nodes, many),
    )


def pipeline(tasks: int) -> TaskGraph:
    """Groups of equal cost and about equal traffic, one after the other (7.2)."""
    groups = [TaskGroup(f"g{number}", tasks // GROUPS, 1.0) for number in range(GROUPS)]
    edges = [
        GroupEdge(one.name, other.name, 10e6 + number) for number, (one, other) in enumerate(itertools.pairwise(groups))
    ]
    return TaskGraph(tuple(groups), tuple(edges))


def _rates(cases: Mapping[int, tuple[TaskGraph, Cluster]], what: str, seconds: float) -> Rates:
    rates: Rates = {name: {} for name in ALLOCATORS if what == "tasks" or name != OF_PAIRS}
    for name in rates:
        allocator = ALLOCATORS[name]
        for size, (graph, cluster) in cases.items():
            rates[name][size] = _rate(allocator, graph, cluster, seconds)
            progress(f"{name}, {size:,} {what}: {rates[name][size]:,.4g} allocations/s")
            following = max((other for other in cases if other > size), default=size)
            if 1 / rates[name][size] > SLOWEST / 4 and following > size:
                break
    return rates


def _rate(allocator: Allocator, graph: TaskGraph, cluster: Cluster, seconds: float) -> float:
    allocator.allocate(graph, cluster)  # what is kept between calls, and the code, are warm
    done, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        allocator.allocate(graph, cluster)
        done += 1
    return done / spent


def _exponent(rates: Mapping[int, float], smallest: int) -> float:
    """The slope of the logarithm of time over that of size."""
    sizes = [size for size in rates if size >= smallest]
    if len(sizes) < 2:
        return 0.0
    slope, _ = np.polyfit(np.log(sizes), -np.log([rates[size] for size in sizes]), 1)
    return float(slope)


def _text(by_tasks: Rates, by_nodes: Rates, many: int) -> str:
    def table(rates: Rates, what: str) -> str:
        sizes = sorted({size for of in rates.values() for size in of})
        rows: list[list[Any]] = [
            [name, *(of.get(size, "-") for size in sizes), _exponent(of, sizes[0])] for name, of in rates.items()
        ]
        return markdown_table((what, *(f"{size:,}" for size in sizes), "exponent"), rows)

    return "\n\n".join(
        [
            f"Allocations a second of a pipeline of {GROUPS} groups. The paper's TD: {PUBLISHED:.0f} for {PAPERS} "
            "tasks. The exponent is that of time over size, fitted to all sizes. A dash: a smaller one already took "
            "too long.",
            "By tasks, on 8 nodes:",
            table(by_tasks, "tasks"),
            f"By nodes, with {many:,} tasks:",
            table(by_nodes, "nodes"),
        ]
    )


def _figure(by_tasks: Rates, by_nodes: Rates, many: int) -> Figure:
    figure, axes = panels(2, size=(10, 4))
    for panel, (rates, what) in zip(
        axes, ((by_tasks, "tasks, on 8 nodes"), (by_nodes, f"nodes, {many:,} tasks")), strict=True
    ):
        for number, (name, of) in enumerate(rates.items()):
            colour = COLOURS[number % len(COLOURS)]
            panel.plot(list(of), list(of.values()), marker="o", markersize=3.5, linewidth=1.4, color=colour, label=name)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel(f"{what} (log scale)")
        panel.set_ylabel("allocations/s (log scale)")
    axes[0].plot([PAPERS], [PUBLISHED], marker="*", color="black", linestyle="none", label="TD as published")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
