"""Searches from what quick allocators give: TD with moves and swaps of tasks, and ours by pairs of nodes.

Both step aside from a local optimum: a few nodes are emptied and filled by chance, and the search continues there.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dpa.errors import PlacementError
from dpa.placement._descent import Budget, Descent
from dpa.placement._rooms import evenly_packed, filled, refilled
from dpa.placement.allocators.by_task import EvenAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator, ImprovedGreedyMatchingAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import SLACK, Allocator, Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import KeptTraffic, Makespan, Objective
from dpa.placement.scores import Floats, overloaded, rooms, task_costs

MakeObjective = Callable[[TaskGraph, Cluster], Objective]

QUICK: Sequence[Allocator] = (
    TopDownAllocator(),
    TopDownAllocator("traffic"),
    EvenAllocator(),
    GreedyMatchingAllocator(),
)
"""None is dear, and each is best, or the only one that finds room, somewhere."""

STARTS: Sequence[Allocator] = (*QUICK, ImprovedGreedyMatchingAllocator())

WORK = 30_000_000
"""Sums that a search may compare, in all its steps; about a second."""

_SWAPS = 2_000_000
"""Pairs of groups on nodes up to which swaps are looked for; their number is quadratic in the groups."""

_DIVISIONS = 750_000
"""Groups and links of the divisions that are judged at the end, at most."""

_SHARE_OF_CLIMBS = 0.5
"""The part of the work that goes into climbing from the starts; what is left goes into trials."""


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
        starts: Sequence[Allocator] = STARTS,
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


class TopDownSearchAllocator:
    """TD with search. Steepest ascent: at each step the move that keeps most traffic inside nodes, and where none
    gains, the swap. Where nodes are so full that no two tasks can change places, what two nodes have is divided anew.

    Args:
        trials: times that a few nodes are filled anew, at most.
        work: sums to be compared, at most, which bounds the time.
    """

    def __init__(self, *, trials: int = 60, work: int = WORK, seed: int = 0) -> None:
        self._trials, self._work, self._seed = trials, work, seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        random = np.random.default_rng(self._seed)
        objective = KeptTraffic(graph, cluster)
        climb = Climb(graph, cluster)
        begun = starts(graph, cluster)
        limit = int(self._work * _SHARE_OF_CLIMBS / len(begun))
        found = min((climb.from_(start, limit) for start in begun), key=objective.value)
        for _ in range(self._trials):
            if climb.work >= self._work:
                break
            trial = refilled(graph, cluster, found, random)
            if trial is not None:
                found = min((found, climb.from_(trial, self._work - climb.work)), key=objective.value)
        last = PairwiseAllocator(KeptTraffic, work=_DIVISIONS, trials=self._trials, seed=self._seed)
        return last.improved(graph, cluster, [found])


class Climb:
    """Moves and swaps of tasks on tables of counts (groups x nodes); `work` is the sums compared so far.

    A group has no edge to itself, so moving several tasks of one is worth their number times one.
    """

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        groups = len(graph.groups)
        self._costs, self._rooms = task_costs(graph), rooms(cluster)
        self._pull = np.zeros((groups, groups))  # bytes/s between a task of each, both ways
        for link in graph.links:
            self._pull[link.upstream, link.downstream] += link.per_pair
            self._pull[link.downstream, link.upstream] += link.per_pair
        self._extra = self._costs[None, :] - self._costs[:, None]  # what a node takes on that gives row for column
        self._least = SLACK * max(graph.traffic, 1.0)
        self._a_swap = groups * groups * len(cluster.nodes)
        self.work = 0

    def from_(self, counts: Counts, work: int = WORK) -> Counts:
        """The local optimum above a table, which stays as it is, or what is reached with this work."""
        found, limit = counts.copy(), self.work + work
        kept = np.empty(counts.shape)  # what a task of the group would keep inside there
        changed: Iterable[int] = range(counts.shape[1])
        while self.work < limit and changed:
            for node in changed:
                on = np.flatnonzero(found[:, node])
                kept[:, node] = found[on, node] @ self._pull[on]
            changed = self._step(found, kept)
        return found

    def _step(self, counts: Counts, kept: Floats) -> tuple[int, ...]:
        """Carry out the best move, or where none gains, the best swap; returns the nodes that it was between."""
        free = self._rooms - self._costs @ counts + SLACK * self._rooms
        here = counts > 0
        # A group's best source and best target do not depend on each other.
        at_source = np.where(here, kept, np.inf)
        at_target = np.where(self._costs[:, None] <= free[None, :], kept, -np.inf)
        gains = at_target.max(axis=1) - at_source.min(axis=1)
        group = int(gains.argmax())
        self.work += counts.size
        if gains[group] <= self._least:
            return self._swap(counts, here, kept, free)
        source, target = int(at_source[group].argmin()), int(at_target[group].argmax())
        cost, tasks = self._costs[group], int(counts[group, source])
        _move(counts, group, source, target, min(tasks, int(free[target] / cost)) if cost else tasks)
        return source, target

    def _swap(self, counts: Counts, here: npt.NDArray[np.bool_], kept: Floats, free: Floats) -> tuple[int, ...]:
        """Carry out the best swap of a task for one of another group on another node; returns these nodes."""
        if self._a_swap > _SWAPS:
            return ()
        self.work += self._a_swap
        # The best node of one group does not depend on that of the other.
        more = kept[None, :, :] - kept[:, None, :]  # groups x groups x nodes: with one of the column's for the row's
        fits = self._extra[:, :, None] <= free
        given = np.where(here[:, None, :] & fits, more, -np.inf)
        taken = np.where(here[None, :, :] & fits.transpose(1, 0, 2), more, np.inf)
        gains = given.max(axis=2) - taken.min(axis=2) - 2 * self._pull
        one, other = (int(at) for at in np.unravel_index(int(gains.argmax()), gains.shape))
        if gains[one, other] <= self._least:
            return ()
        node, there = int(given[one, other].argmax()), int(taken[one, other].argmin())
        _move(counts, one, node, there, 1)
        _move(counts, other, there, node, 1)
        return node, there


def _move(counts: Counts, group: int, source: int, target: int, tasks: int) -> None:
    counts[group, source] -= tasks
    counts[group, target] += tasks
