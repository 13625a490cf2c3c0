"""A search by pairs of nodes from what quick allocators give, for the time of the job or for the traffic inside nodes.

It steps aside from a local optimum: a few nodes are emptied and filled by chance, and the search continues there.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dpa.errors import PlacementError
from dpa.placement._descent import Budget, Descent
from dpa.placement._rooms import evenly_packed, filled, refilled
from dpa.placement.allocators.by_task import EvenAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Allocator, Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import KeptTraffic, Makespan, Objective, Unevenness
from dpa.placement.scores import overloaded

MakeObjective = Callable[[TaskGraph, Cluster], Objective]

QUICK: Sequence[Allocator] = (
    TopDownAllocator(),
    TopDownAllocator("traffic"),
    EvenAllocator(),
    GreedyMatchingAllocator(),
)
"""None is dear, and each is best, or the only one that finds room, somewhere."""


def starts(graph: TaskGraph, cluster: Cluster, allocators: Sequence[Allocator] = QUICK) -> list[Counts]:
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


class PairwiseAllocator:
    """Ours: descent by pairs of nodes from several starts, then from what remains after a few nodes were emptied and
    filled by chance. One objective stands for processors, bandwidth and delay.

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
        self,
        objective: MakeObjective = Makespan,
        starts: Sequence[Allocator] = QUICK,
        *,
        work: int = 3_000_000,
        trials: int = 20,
        seed: int = 0,
    ) -> None:
        self._make_objective, self._starts = objective, starts
        self._work, self._trials, self._seed = work, trials, seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        return self.improved(graph, cluster, starts(graph, cluster, self._starts))

    def improved(self, graph: TaskGraph, cluster: Cluster, begun: Iterable[Counts]) -> Placement:
        search = _Search(self._make_objective(graph, cluster), self._work)
        found = search.best([search.improved(start) for start in begun])
        random = np.random.default_rng(self._seed)
        for _ in range(self._trials):
            if search.is_over:
                break
            trial = refilled(graph, cluster, found, random)
            if trial is not None:
                found = search.best([found, search.improved(trial, since=found)])
        return Placement(graph, cluster, found)


class _Search:
    """A descent by the objective's guide, then by the objective.

    The time of a job is that of its busiest node, and most steps change nothing about that one. So a search is guided
    by what also counts evenness, and ends with the objective itself.
    """

    def __init__(self, objective: Objective, work: int) -> None:
        self._objective, self._guide, self._budget = objective, objective.guide, Budget(work)
        self._first = Descent(self._guide, self._budget)
        self._last = Descent(objective, self._budget)

    @property
    def is_over(self) -> bool:
        return self._budget.left <= 0

    def improved(self, counts: Counts, since: Counts | None = None) -> Counts:
        """As `Descent.improve`, and never worse than `counts`."""
        if self._guide is self._objective:
            return self._last.improve(counts, since)
        guided = self._last.improve(self._first.improve(counts, since))
        return self.best([guided, self._last.improve(counts, since)])  # with what is left of the budget

    def best(self, found: Iterable[Counts]) -> Counts:
        return min(found, key=self._objective.value)


class TopDownSearchAllocator(PairwiseAllocator):
    """TD with search: the same for the traffic that stays inside nodes."""

    def __init__(self, *, trials: int = 60, seed: int = 0) -> None:
        super().__init__(KeptTraffic, trials=trials, seed=seed)


class ImprovedGreedyMatchingAllocator(PairwiseAllocator):
    """GMA with a better eye: from its placement, for the least sum of squares of both resources' use, which also counts
    the total of bandwidth."""

    def __init__(self, *, work: int = 750_000) -> None:
        super().__init__(Unevenness, (GreedyMatchingAllocator(),), work=work, trials=0)
