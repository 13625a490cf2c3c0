"""Ours: one objective for processors, bandwidth and delay, and a search that divides two nodes' tasks at a time.

A node's load and traffic follow from its own tasks, so what two nodes have can be divided anew between them without a
look at the others: in all ways, where they have few tasks, and so by many moves and swaps at once where single ones
would stop; else in those near what is now. It begins from what several of the others allocate, and is never worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dpa.errors import PlacementError
from dpa.placement._descent import Descent
from dpa.placement._refill import refilled
from dpa.placement.allocators.base import Allocator
from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator, ImprovedGreedyMatchingAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import Makespan, Objective

MakeObjective = Callable[[TaskGraph, Cluster], Objective]

STARTS: Sequence[Allocator] = (
    TopDownAllocator(),
    TopDownAllocator("traffic"),
    EvenAllocator(),
    GreedyMatchingAllocator(),
    ImprovedGreedyMatchingAllocator(),
)
"""None is dear, and each is best somewhere."""


class PairwiseAllocator:
    """Descent by pairs of nodes from several starts, then from what remains after a few nodes were emptied and filled
    by chance.

    Args:
        objective: what is minimised.
        starts: the allocations to begin with; at least one must succeed.
        divisions: of what two nodes have, to be judged at most, which bounds the time.
        trials: times that a few nodes are filled anew.
        seed: of the choices.
    """

    def __init__(
        self,
        objective: MakeObjective = Makespan,
        starts: Sequence[Allocator] = STARTS,
        *,
        divisions: int = 200_000,
        trials: int = 20,
        seed: int = 0,
    ) -> None:
        self._make_objective, self._starts = objective, starts
        self._divisions, self._trials, self._seed = divisions, trials, seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """As `Allocator.allocate`."""
        objective = self._make_objective(graph, cluster)
        descent = Descent(objective, self._divisions)
        random = np.random.default_rng(self._seed)
        found = min((descent.improve(start) for start in self._starting(graph, cluster)), key=objective.value)
        value = objective.value(found)
        for _ in range(self._trials):
            if descent.divisions_left <= 0:
                break
            trial = refilled(graph, cluster, found, random)
            if trial is None:
                continue
            improved = descent.improve(trial, since=found)
            if (reached := objective.value(improved)) < value:
                found, value = improved, reached
        return Placement(graph, cluster, found)

    def _starting(self, graph: TaskGraph, cluster: Cluster) -> Iterator[Counts]:
        """What the others allocate, each once."""
        seen = set()
        refusal: PlacementError | None = None
        for start in self._starts:
            try:
                counts = start.allocate(graph, cluster).counts
            except PlacementError as error:
                refusal = refusal or error
                continue
            if (content := counts.tobytes()) not in seen:
                seen.add(content)
                yield counts
        if not seen and refusal is not None:
            raise refusal
