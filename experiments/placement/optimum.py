"""Part a: how much of the optimum's traffic the allocators keep inside nodes, on random graphs (task allocation paper,
7.3)."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpa.errors import PlacementError
from dpa.placement import scores
from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.search import ImprovedGreedyMatchingAllocator, TopDownSearchAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Allocator
from experiments.harness import Findings, Target, interval, markdown_table, progress, published
from experiments.placement.baselines import ExactAllocator, RandomAllocator, TaskLevelAllocator
from experiments.placement.graphs import GENERATORS, Case

GRAPHS, OTHER_GRAPHS, QUICK_GRAPHS = 1_000, 200, 10
"""Of the published generator, whose figures are compared with the paper's, and of each other one."""

RESAMPLED = 1_000
"""Times that graphs are drawn anew, with replacement, for a confidence interval of 95 %."""

ALLOCATORS: Mapping[str, Allocator] = {
    "even": EvenAllocator(),
    "random": RandomAllocator(),
    "TL": TaskLevelAllocator(),
    "TL, by significance": TaskLevelAllocator("significance"),
    "TD, by traffic": TopDownAllocator("traffic"),
    "TD": TopDownAllocator(),
    "GMA improved": ImprovedGreedyMatchingAllocator(),
    "TD with search": TopDownSearchAllocator(),
}

PUBLISHED = {"TD": 0.931, "TL": 0.859}
PUBLISHED_ALIKE = "as published"
"""The generator of graphs of the paper's kind."""


@dataclass
class Kept:
    """What allocators keep inside nodes on the graphs of one generator, in bytes a second.

    Attributes:
        optimum: of each graph.
        kept: of each allocator, that of each graph; 0 where it refuses.
        refused: of each allocator.
        seconds: of each allocator, on all graphs together.
    """

    optimum: list[float] = field(default_factory=list)
    kept: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ALLOCATORS})
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ALLOCATORS, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys([*ALLOCATORS, "optimum"], 0.0))

    def take(self, case: Case) -> bool:
        """Allocate one graph with all; returns False, and leaves it out, where no placement exists."""
        optimum = self._timed("optimum", ExactAllocator(), case)
        if optimum is None:
            return False
        self.optimum.append(optimum)
        for name, allocator in ALLOCATORS.items():
            kept = self._timed(name, allocator, case)
            self.refused[name] += kept is None
            self.kept[name].append(kept or 0.0)
        return True

    def share(self, name: str) -> float:
        """Of the optimum's, over all graphs."""
        return float(np.sum(self.kept[name]) / np.sum(self.optimum))

    def interval(self, name: str, random: np.random.Generator) -> tuple[float, float]:
        """Where that lies with 95 %, as far as graphs are a sample."""
        kept, optimum = np.array(self.kept[name]), np.array(self.optimum)
        drawn = random.integers(0, len(optimum), (RESAMPLED, len(optimum)))
        return interval(kept[drawn].sum(axis=1) / optimum[drawn].sum(axis=1))

    def _timed(self, name: str, allocator: Allocator, case: Case) -> float | None:
        began = time.perf_counter()
        try:
            placement = allocator.allocate(*case)
        except PlacementError:
            placement = None
        self.seconds[name] += time.perf_counter() - began
        return None if placement is None else scores.kept_traffic(placement)


def measure(options: argparse.Namespace) -> Findings:
    """Allocate the graphs of every generator with everyone."""
    random = np.random.default_rng(options.seed)
    found = {}
    for name, generate in GENERATORS.items():
        found[name] = Kept()
        wanted = QUICK_GRAPHS if options.quick else GRAPHS if name == PUBLISHED_ALIKE else OTHER_GRAPHS
        while len(found[name].optimum) < wanted:
            found[name].take(generate(random))
        progress(f"{name}: " + ", ".join(f"{each} {found[name].share(each):.1%}" for each in ALLOCATORS))
    intervals = {
        name: {each: kept.interval(each, np.random.default_rng(options.seed)) for each in ALLOCATORS}
        for name, kept in found.items()
    }
    return Findings(data=_data(found, intervals), targets=_targets(found, intervals), text=_text(found, intervals))


def _targets(found: Mapping[str, Kept], intervals: Mapping[str, Mapping[str, tuple[float, float]]]) -> list[Target]:
    measured = intervals[PUBLISHED_ALIKE]
    least = min(found, key=lambda generator: found[generator].share("TD with search"))
    kept = found[least].share("TD with search")
    refused = sum(kept.refused["TD with search"] for kept in found.values())
    return [
        *(
            published(f"{each}: traffic kept, of the optimum", PUBLISHED[each], measured[each], ".1%")
            for each in PUBLISHED
        ),
        Target("TD with search: traffic kept, on any kind of graph", ">= 99%", f"{kept:.2%} ({least})", kept >= 0.99),
        Target("TD with search: graphs refused that can be placed", "0", refused, refused == 0),
    ]


def _data(found: Mapping[str, Kept], intervals: Mapping[str, Mapping[str, tuple[float, float]]]) -> dict[str, Any]:
    return {
        "published": PUBLISHED,
        "generators": {
            generator: {
                name: {
                    "share": kept.share(name),
                    "interval": intervals[generator][name],
                    "refused": kept.refused[name],
                    "milliseconds": 1e3 * kept.seconds[name] / len(kept.optimum),
                }
                for name in ALLOCATORS
            }
            for generator, kept in found.items()
        },
    }


def _text(found: Mapping[str, Kept], intervals: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    graphs, others = (len(found[name].optimum) for name in (PUBLISHED_ALIKE, [*found][-1]))
    parts = [
        f"Traffic kept inside nodes as a part of the optimum's, over {graphs:,} random graphs of the published kind "
        f"and {others:,} of each other; in brackets its confidence interval of 95 %. The optimum is exact (dynamic "
        "programming over counts). A graph that an allocator refuses counts as one of which it keeps nothing. The "
        "paper: TD 93.1 %, TL 85.9 %.",
        markdown_table(
            ("allocator", *found),
            [
                (
                    name,
                    *(
                        "{:.1%} ({:.1%} - {:.1%})".format(kept.share(name), *intervals[generator][name])
                        for generator, kept in found.items()
                    ),
                )
                for name in ALLOCATORS
            ],
        ),
        "Refused graphs, and milliseconds a graph (as published):",
        markdown_table(
            ("allocator", *found, "ms"),
            [
                (
                    name,
                    *(kept.refused[name] for kept in found.values()),
                    1e3 * found[PUBLISHED_ALIKE].seconds[name] / graphs,
                )
                for name in ALLOCATORS
            ],
        ),
    ]
    return "\n\n".join(parts)
