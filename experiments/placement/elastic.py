"""Part e: the elastic allocator's evaluation (V): a query is placed beside others that run already.

Ten nodes of four cores. A word count and a join run on some of them, and leave these busier than the others; top-k is
placed at 200 to 1,200 tuples/s. Random and Even, as in Storm, know no costs. What a placement gives is what its busiest
resource lets through: where a node or its link is overloaded, the rest of the cluster waits for it, and is used less.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpa.placement import scores
from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator
from dpa.placement.allocators.search import ImprovedGreedyMatchingAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Allocator, Cluster, GroupEdge, Node, Placement, TaskGraph, TaskGroup
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, markdown_table
from experiments.placement.baselines import RandomAllocator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = (200, 400, 600, 800, 1_000, 1_200)
"""Tuples a second."""

NODES, CORES, BANDWIDTH = 10, 4.0, 12.5e6  # 100 Mbit/s
SEEDS = 20
"""Placements by chance, whose figures are averaged."""

KNOWS_COSTS: Mapping[str, Allocator] = {
    "GMA": GreedyMatchingAllocator(),
    "GMA improved": ImprovedGreedyMatchingAllocator(),
    "TD": TopDownAllocator(),
}
BLIND = ("even", "random")
"""The two of the paper that know no costs."""


@dataclass(frozen=True)
class Use:
    """How a cluster is used, the queries that run already among it, in parts of 1."""

    cpu: float
    cpu_deviation: float
    bandwidth: float
    bandwidth_deviation: float
    throughput: float


def measure(options: argparse.Namespace) -> Findings:
    """Place top-k at every rate with everyone."""
    seeds = 3 if options.quick else SEEDS
    found = {rate: _uses(rate, seeds) for rate in RATES}
    names = list(found[RATES[0]])
    return Findings(
        data={"uses": {rate: {name: vars(use) for name, use in uses.items()} for rate, uses in found.items()}},
        targets=list(_claims(found)),
        text=_text(found, names),
        figure=_figure(found, names),
    )


def cluster(rate: float) -> Cluster:
    """The ten nodes while word count and join run, both at this rate: on five and on four of the nodes."""
    count = 0.0009 * rate  # processors of a node that counts
    join = 0.0013 * rate
    nodes = []
    for number in range(NODES):
        counts, joins = number < 5, 3 <= number < 7
        nodes.append(
            Node(
                f"worker {number}",
                CORES,
                reserved=0.2 + counts * count + joins * join,
                bandwidth=BANDWIDTH,
                reserved_bandwidth=0.02e6 + counts * 2_000 * rate + joins * 3_000 * rate,
            )
        )
    return Cluster(tuple(nodes))


def top_k(rate: float) -> TaskGraph:
    """Sources, counters, rankers, and one merger; a tuple has about a kilobyte."""
    groups = (
        TaskGroup("read", 3, 0.0012 * rate),
        TaskGroup("count", 8, 0.0080 * rate),
        TaskGroup("rank", 4, 0.0024 * rate),
        TaskGroup("merge", 1, 0.0003 * rate),
    )
    edges = (
        GroupEdge("read", "count", 12_000.0 * rate),
        GroupEdge("count", "rank", 8_000.0 * rate),
        GroupEdge("rank", "merge", 800.0 * rate),
    )
    return TaskGraph(groups, edges)


def _uses(rate: float, seeds: int) -> dict[str, Use]:
    graph, nodes = top_k(rate), cluster(rate)
    uses = {name: _use(allocator.allocate(graph, nodes)) for name, allocator in KNOWS_COSTS.items()}
    unaware = Cluster(tuple(Node(node.name, 1e9) for node in nodes.nodes))
    blind: Mapping[str, Sequence[Allocator]] = {
        "even": [EvenAllocator()],
        "random": [RandomAllocator(seed) for seed in range(seeds)],
    }
    for name, allocators in blind.items():
        found = [_use(Placement(graph, nodes, each.allocate(graph, unaware).counts.copy())) for each in allocators]
        uses[name] = Use(*(statistics.mean(getattr(use, field) for use in found) for field in Use.__annotations__))
    return uses


def _use(placement: Placement) -> Use:
    """What a placement makes of the cluster when it runs as fast as it can, up to its rate."""
    through = min(1.0, scores.throughput(placement))
    nodes = placement.cluster.nodes
    idle = np.array([node.reserved / node.capacity for node in nodes])
    cpu = idle + through * (scores.utilisation(placement) - idle)
    others = np.array([node.reserved_bandwidth / node.bandwidth for node in nodes])
    bandwidth = others + through * (bandwidth_use(placement) - others)
    return Use(float(cpu.mean()), deviation(cpu), float(bandwidth.mean()), deviation(bandwidth), through)


def bandwidth_use(placement: Placement) -> scores.Floats:
    """The used part of each node's bandwidth, that of others among it, in the busier direction (the paper's
    IV-B). Above 1 the network cannot keep up; 0 where bandwidth is unlimited."""
    nodes = placement.cluster.nodes
    reserved = np.array([node.reserved_bandwidth for node in nodes])
    bandwidth = np.array([node.bandwidth for node in nodes])
    used: scores.Floats = (reserved + np.maximum(scores.sent(placement), scores.received(placement))) / bandwidth
    return used


def deviation(use: scores.Floats) -> float:
    """How unevenly a resource is used: sqrt(sum (R_i - R_avg)^2) (the paper's R_dev, IV-C)."""
    return float(np.sqrt(np.square(use - use.mean()).sum()))


def _claims(found: Mapping[int, Mapping[str, Use]]) -> Iterator[Target]:
    """The paper's claims of GMA beside Even and Random, for each resource: at how many rates they hold."""
    for field, words in (
        ("cpu", "processors are used most"),
        ("bandwidth", "bandwidth is used most"),
        ("cpu_deviation", "processors are used most evenly"),
        ("bandwidth_deviation", "bandwidth is used most evenly"),
    ):
        sign = -1 if field.endswith("_deviation") else 1
        reached = sum(
            all(sign * (getattr(uses["GMA"], field) - getattr(uses[other], field)) >= -1e-9 for other in BLIND)
            for uses in found.values()
        )
        yield Target(f"GMA: rates at which {words}", str(len(RATES)), reached, reached == len(RATES))


def _text(found: Mapping[int, Mapping[str, Use]], names: Sequence[str]) -> str:
    columns = {
        "utilisation of processors": "cpu",
        "its deviation": "cpu_deviation",
        "utilisation of bandwidth": "bandwidth",
        "deviation of bandwidth": "bandwidth_deviation",
        "part of the rate that gets through": "throughput",
    }
    parts = [
        "Word count and join run on some of ten nodes; top-k is placed beside them. Predicted, of all nodes; the "
        f"deviation is sqrt(sum (R_i - R_avg)^2). Random: means of {SEEDS} placements."
    ]
    for title, field in columns.items():
        rows = [(name, *(getattr(found[rate][name], field) for rate in found)) for name in names]
        parts += [
            f"{title[0].upper()}{title[1:]}, by tuples/s:",
            markdown_table(("", *(f"{rate:,}" for rate in found)), rows),
        ]
    return "\n\n".join(parts)


def _figure(found: Mapping[int, Mapping[str, Use]], names: Sequence[str]) -> Figure:
    figure, axes = panels(2, size=(10, 6.5), rows=2)
    drawn = {"cpu": "processors, mean use (%)", "cpu_deviation": "processors, deviation (%)"}
    drawn |= {"bandwidth": "bandwidth, mean use (%)", "bandwidth_deviation": "bandwidth, deviation (%)"}
    for panel, (field, title) in zip(axes, drawn.items(), strict=True):
        for colour, name in zip(COLOURS, names, strict=False):
            line = [100 * getattr(found[rate][name], field) for rate in found]
            panel.plot(list(found), line, marker="o", markersize=3.5, linewidth=1.4, color=colour, label=name)
        panel.set_ylim(bottom=0)
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_xlabel("tuples/s")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
