"""Part h: one objective for processors, bandwidth and delay, and how long a job takes by it with each allocator.

The time is that of what arrives in a minute at the graph's rate, if the job may be as fast as the busiest processor or
network allows (`makespan`). Every allocator may use the whole of every node.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dpa.errors import PlacementError
from dpa.placement import scores
from dpa.placement.allocators import allocator_of
from dpa.placement.model import Cluster, Placement
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, markdown_table, progress
from experiments.placement.baselines import BASELINES, LOCAL_DELAY, NETWORK_DELAY, SECONDS
from experiments.placement.graphs import GENERATORS, MEGABYTE, Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "pairwise"
THEIRS = ("even", "random", "task_level", "top_down", "top_down_search", "greedy_matching", "greedy_matching_improved")
"""The exact allocator keeps most traffic, whatever it costs in time; so it is not of this comparison."""

BANDWIDTHS = (5.0, 15.0, math.inf)
"""MB/s of a node: less than what tasks exchange, about as much, and no limit."""

GRAPHS, QUICK_GRAPHS = 50, 3
"""Of each generator with each bandwidth."""

NEGLIGIBLE = 1e-6
"""By which part of its time a job must be faster to be called so."""

_SHOWN = 3.0
"""The greatest time, by ours, that the picture shows; a refusal is drawn there."""

BUDGET = 1.0
"""Seconds of processor time in which ours should find a placement."""


def delay(placement: Placement) -> float:
    """Seconds that a byte spends on its way, over all edges of the graph (N-Storm, equations 1 and 2): the expected
    hops between nodes and within them, each with its delay. Waiting in queues is left out."""
    counts = placement.counts
    inside = [
        float(counts[link.upstream] @ counts[link.downstream]) / placement.graph.pairs(link.upstream, link.downstream)
        for link in placement.graph.links
    ]
    return sum(LOCAL_DELAY * kept + NETWORK_DELAY * (1 - kept) for kept in inside)


def makespan(placement: Placement) -> float:
    """Seconds until what arrives within `SECONDS` at the graph's rate is processed, if it may be as fast as the
    busiest resource allows: the one objective of processors, bandwidth and delay."""
    return SECONDS / scores.throughput(placement) + delay(placement)


@dataclass
class Times:
    """Predicted times of jobs on the graphs of one bandwidth.

    Attributes:
        least: of each graph, what its costs alone take if they divide like water.
        ratio: of each allocator, on each graph, the time by that of ours; infinite where it refuses.
        seconds: of processor time that each allocator takes, the most on all graphs.
    """

    least: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    ratio: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in THEIRS})
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*THEIRS, OURS), 0.0))

    def take(self, case: Case) -> None:
        """Allocate one graph with all; one that ours cannot place is left out."""
        ours = self._makespan(OURS, case)
        if math.isinf(ours):
            return
        graph, cluster = case
        self.ours.append(ours)
        self.least.append(SECONDS * graph.cost / cluster.room)
        for name in THEIRS:
            self.ratio[name].append(self._makespan(name, case) / ours)

    def median(self, name: str) -> float:
        """Of the times by ours."""
        return float(np.median(self.ratio[name]))

    def beaten(self, name: str) -> float:
        """The part of graphs on which an allocator is faster than ours."""
        return float(np.mean(np.array(self.ratio[name]) < 1 - NEGLIGIBLE))

    @property
    def unbeaten(self) -> float:
        """The part of graphs on which none is faster than ours."""
        best = np.min(list(self.ratio.values()), axis=0)
        return float(np.mean(best >= 1 - NEGLIGIBLE))

    def _makespan(self, name: str, case: Case) -> float:
        began = time.process_time()
        try:
            placement = allocator_of(BASELINES.get(name, name)).allocate(*case)
        except PlacementError:
            return math.inf
        finally:
            self.seconds[name] = max(self.seconds[name], time.process_time() - began)
        return makespan(placement)


def measure(options: argparse.Namespace) -> Findings:
    """Allocate the graphs of every generator with every bandwidth."""
    wanted = QUICK_GRAPHS if options.quick else GRAPHS
    random = np.random.default_rng(options.seed)
    found = {}
    for bandwidth in BANDWIDTHS:
        times = found[bandwidth] = Times()
        for case in _cases(wanted, bandwidth, random):
            times.take(case)
        medians = ", ".join(f"{name} {times.median(name):.3f}" for name in THEIRS)
        progress(f"{bandwidth:g} MB/s: unbeaten {times.unbeaten:.1%}; {medians}")
    unbeaten = float(
        np.average([each.unbeaten for each in found.values()], weights=[len(of.ours) for of in found.values()])
    )
    longest = max(each.seconds[OURS] for each in found.values())
    return Findings(
        data={
            "bandwidths": [_words(bandwidth) for bandwidth in found],
            "graphs": [len(each.ours) for each in found.values()],
            "ratios": {_words(bandwidth): each.ratio for bandwidth, each in found.items()},
            "seconds": {_words(bandwidth): each.seconds for bandwidth, each in found.items()},
        },
        targets=[
            Target("graphs on which no allocator is faster than ours", ">= 99%", f"{unbeaten:.1%}", unbeaten >= 0.99),
            Target("seconds of processor time that ours takes, at most", f"<= {BUDGET:g}", longest, longest <= BUDGET),
        ],
        text=_text(found),
        figure=_figure(found),
    )


def _cases(wanted: int, bandwidth: float, random: np.random.Generator) -> Iterator[Case]:
    for generate in GENERATORS.values():
        yield from (_limited(generate, bandwidth, random) for _ in range(wanted))


def _limited(generate: Callable[[np.random.Generator], Case], bandwidth: float, random: np.random.Generator) -> Case:
    graph, cluster = generate(random)
    return graph, Cluster(tuple(replace(node, bandwidth=bandwidth * MEGABYTE) for node in cluster.nodes))


def _words(bandwidth: float) -> str:
    return "no limit" if math.isinf(bandwidth) else f"{bandwidth:g} MB/s"


def _text(found: Mapping[float, Times]) -> str:
    rows = [
        (
            name,
            *(f"{each.median(name):.3f}" for each in found.values()),
            *(f"{each.beaten(name):.1%}" for each in found.values()),
            f"{1000 * max(each.seconds[name] for each in found.values()):.1f}",
        )
        for name in THEIRS
    ]
    head = ("allocator", *map(_words, found), *(f"faster, {_words(each)}" for each in found), "longest, ms")
    bounds = "; ".join(
        f"{_words(bandwidth)}: {np.median(np.array(each.ours) / np.array(each.least)):.3f}"
        for bandwidth, each in found.items()
    )
    return (
        "Predicted time of the job by that with ours (`pairwise`), medians over "
        f"{len(next(iter(found.values())).ours)} graphs of all generators of part a, with a limit of what each node "
        "can send and receive, or none; then the part of graphs on which an allocator is faster than ours, and the "
        "longest that it takes to allocate, in processor time.\n\n"
        + markdown_table(head, rows)
        + f"\n\nOurs takes at most {max(each.seconds[OURS] for each in found.values()):.2f} s a graph. Its predicted "
        f"time by what costs alone would take if they divided like water, medians: {bounds}."
    )


def _figure(found: Mapping[float, Times]) -> Figure:
    figure, axes = panels(len(found), size=(9.0, 3.4))
    for panel, (bandwidth, times) in zip(axes, found.items(), strict=True):
        ratios = [np.minimum(times.ratio[name], _SHOWN) for name in THEIRS]
        low, middle, high = (np.array([np.quantile(each, part) for each in ratios]) for part in (0.05, 0.5, 0.95))
        places = np.arange(len(THEIRS))
        panel.hlines(places, low, high, color=COLOURS[4], linewidth=2)
        panel.plot(middle, places, "o", color=COLOURS[0])
        panel.axvline(1.0, color=COLOURS[1], linewidth=1)
        panel.set_yticks(places, THEIRS if panel is axes[0] else [])
        panel.invert_yaxis()
        panel.set_xlabel(f"time by that with ours, {_words(bandwidth)}")
    return figure
