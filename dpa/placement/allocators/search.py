"""A search by pairs of nodes from what quick allocators give, for the traffic inside nodes or even use.

It steps aside from a local optimum: a few nodes are emptied and filled by chance, and the search continues there."""

from collections.abc import Sequence

import numpy as np

from dpa.errors import PlacementError
from dpa.placement._descent import Budget, Descent
from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Allocator, Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import KeptTraffic, Objective, Unevenness
from dpa.placement.rooms import evenly_packed, filled, refilled
from dpa.placement.scores import overloaded

QUICK: Sequence[Allocator] = (
    TopDownAllocator(),
    TopDownAllocator("traffic"),
    EvenAllocator(),
    GreedyMatchingAllocator(),
)
"""None is dear, and each is best, or the only one that finds room, somewhere."""


def starts(graph: TaskGraph, cluster: Cluster, allocators: Sequence[Allocator]) -> list[Counts]:
    """Placements within every node's room (groups x nodes), each once. Raises PlacementError, which says what the first
    allocator lacks, if there is none."""
    found: dict[bytes, Counts] = {}
    refusals: list[PlacementError] = []
    for allocator in allocators:
        try:
            counts = allocator.allocate(graph, cluster).counts
        except PlacementError as error:
            refusals.append(error)
        else:
            found.setdefault(counts.tobytes(), counts)
    if found:
        return list(found.values())
    packing = evenly_packed(graph, cluster)
    if not overloaded(packing):
        return [packing.counts]
    if (full := filled(graph, cluster)) is None:
        raise refusals[0]
    return [full]


class SearchAllocator:
    """Ours: descent by pairs of nodes from several starts, then from what remains after a few nodes were emptied and
    filled by chance.

    A node's load and traffic follow from its own tasks, so what two nodes have can be divided anew between them without
    a look at the others: in all ways, where they have few tasks, and so by many moves and swaps at once where single
    ones would stop; else in those near what is now. It is never worse than the allocations that it begins with.

    Args:
        objective: what is minimised.
        starts: at least one must succeed.
        work: groups and links of the divisions that are judged, at most, which bounds the time.
        trials: times that a few nodes are filled anew.
    """

    def __init__(
        self, objective: type[Objective], starts: Sequence[Allocator] = QUICK, *, work: int = 3_000_000, trials: int
    ) -> None:
        self._objective, self._starts = objective, starts
        self._work, self._trials = work, trials

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        objective, budget = self._objective(graph, cluster), Budget(self._work)
        descent = Descent(objective, budget)
        found = min(map(descent.improve, starts(graph, cluster, self._starts)), key=objective.value)
        random = np.random.default_rng(0)
        for _ in range(self._trials):
            if budget.left <= 0:
                break
            trial = refilled(graph, cluster, found, random)
            if trial is not None:
                found = min(found, descent.improve(trial, since=found), key=objective.value)
        return Placement(graph, cluster, found)


class TopDownSearchAllocator(SearchAllocator):
    """TD with search, for the traffic that stays inside nodes."""

    def __init__(self, *, trials: int = 60) -> None:
        super().__init__(KeptTraffic, trials=trials)


class ImprovedGreedyMatchingAllocator(SearchAllocator):
    """GMA with a better eye: from its placement, for the least sum of squares of both resources' use, which also counts
    the total of bandwidth."""

    def __init__(self) -> None:
        super().__init__(Unevenness, (GreedyMatchingAllocator(),), work=750_000, trials=0)
