"""Ours: one objective for processors, bandwidth and delay, and a search that divides two nodes' tasks at a time.

A node's load and traffic follow from its own tasks, so what two nodes have can be divided anew between them without a
look at the others: in all ways, where they have few tasks, and so by many moves and swaps at once where single ones
would stop; else in those near what is now. It begins from what several of the others allocate, and is never worse.

The time of a job is that of its busiest node, and most steps change nothing about that one. So a search is guided by
what also counts evenness, and ends with the objective itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dpa.placement._descent import Budget, Descent
from dpa.placement._refill import refilled
from dpa.placement.allocators._starts import QUICK, starts
from dpa.placement.allocators.base import Allocator
from dpa.placement.allocators.greedy_matching import ImprovedGreedyMatchingAllocator
from dpa.placement.model import Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import Makespan, Objective

MakeObjective = Callable[[TaskGraph, Cluster], Objective]

STARTS: Sequence[Allocator] = (*QUICK, ImprovedGreedyMatchingAllocator())


class PairwiseAllocator:
    """Descent by pairs of nodes from several starts, then from what remains after a few nodes were emptied and filled
    by chance.

    Args:
        objective: what is minimised.
        starts: the allocations to begin with; at least one must succeed.
        work: groups and links of the divisions that are judged, at most, which bounds the time.
        trials: times that a few nodes are filled anew.
        seed: of the choices.
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
        """As `Allocator.allocate`."""
        return self.improved(graph, cluster, starts(graph, cluster, self._starts))

    def improved(self, graph: TaskGraph, cluster: Cluster, begun: Iterable[Counts]) -> Placement:
        """A placement that is no worse than any of those to begin with."""
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
    """A descent by the objective's guide, then by the objective."""

    def __init__(self, objective: Objective, work: int) -> None:
        self._objective, self._guide, self._budget = objective, objective.guide, Budget(work)
        self._first = Descent(self._guide, self._budget)
        self._last = Descent(objective, self._budget)

    @property
    def is_over(self) -> bool:
        """Whether it has taken its time."""
        return self._budget.left <= 0

    def improved(self, counts: Counts, since: Counts | None = None) -> Counts:
        """As `Descent.improve`, and never worse than `counts`."""
        if self._guide is self._objective:
            return self._last.improve(counts, since)
        guided = self._last.improve(self._first.improve(counts, since))
        return self.best([guided, self._last.improve(counts, since)])  # as far as the budget still goes

    def best(self, found: Iterable[Counts]) -> Counts:
        """The first of the best."""
        return min(found, key=self._objective.value)
