"""TD with search: the top-down allocation, then moves and swaps of tasks while these keep more traffic inside nodes,
and the same again from what remains after a few nodes were emptied and filled by chance."""

from __future__ import annotations

import numpy as np

from dpa.placement._refill import refilled
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import SLACK, Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import KeptTraffic
from dpa.placement.scores import Floats, rooms, task_costs

_SWAPS = 4_000_000
"""Pairs of a group on a node up to which swaps are looked for; it is quadratic in groups and nodes."""


class TopDownSearchAllocator:
    """Steepest ascent from the top-down allocation: at each step the move or the swap that keeps most traffic.

    Args:
        trials: times that a few nodes are filled anew.
        seed: of the choices.
    """

    def __init__(self, *, trials: int = 20, seed: int = 0) -> None:
        self._trials, self._seed = trials, seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """As `Allocator.allocate`."""
        random = np.random.default_rng(self._seed)
        objective = KeptTraffic(graph, cluster)
        found = climbed(graph, cluster, TopDownAllocator().allocate(graph, cluster).counts)
        value = objective.value(found)
        for _ in range(self._trials):
            trial = refilled(graph, cluster, found, random)
            if trial is None:
                continue
            climbed_to = climbed(graph, cluster, trial)
            if (reached := objective.value(climbed_to)) < value:
                found, value = climbed_to, reached
        return Placement(graph, cluster, found)


def climbed(graph: TaskGraph, cluster: Cluster, counts: Counts) -> Counts:
    """The local optimum above a table of counts (groups x nodes), which stays as it is."""
    found = counts.copy()
    search = _Search(graph, cluster, found)
    while search.step():
        pass
    return found


class _Search:
    """Moves and swaps on one table of counts, which is changed in place.

    A group has no edge to itself, so moving several tasks of one is worth their number times one.
    """

    def __init__(self, graph: TaskGraph, cluster: Cluster, counts: Counts) -> None:
        self._counts, self._costs, self._rooms = counts, task_costs(graph), rooms(cluster)
        self._pull = np.zeros((len(graph.groups), len(graph.groups)))  # bytes/s between a task of each, both ways
        for link in graph.links:
            self._pull[link.upstream, link.downstream] += link.per_pair
            self._pull[link.downstream, link.upstream] += link.per_pair
        self._least = SLACK * max(graph.traffic, 1.0)

    def step(self) -> bool:
        """Carry out the best move or swap; returns whether one gains."""
        free = self._rooms - self._costs @ self._counts + SLACK * self._rooms
        kept = self._pull @ self._counts  # groups x nodes: what a task of the group would keep inside there
        gain, group, source, target = self._best_move(kept, free)
        swap_gain, swap = self._best_swap(kept, free)
        if max(gain, swap_gain) <= self._least:
            return False
        if swap_gain > gain:
            one, here, other, there = swap
            self._move(one, here, there, 1)
            self._move(other, there, here, 1)
        else:
            cost, there_are = self._costs[group], int(self._counts[group, source])
            self._move(group, source, target, min(there_are, int(free[target] / cost)) if cost else there_are)
        return True

    def _best_move(self, kept: Floats, free: Floats) -> tuple[float, int, int, int]:
        """The move that keeps most: what it gains, group, source and target. A group's best source and best target
        do not depend on each other."""
        at_source = np.where(self._counts > 0, kept, np.inf)
        at_target = np.where(self._costs[:, None] <= free[None, :], kept, -np.inf)
        gains = at_target.max(axis=1) - at_source.min(axis=1)
        group = int(gains.argmax())
        return float(gains[group]), group, int(at_source[group].argmin()), int(at_target[group].argmax())

    def _best_swap(self, kept: Floats, free: Floats) -> tuple[float, tuple[int, int, int, int]]:
        """The swap of a task here for one there that keeps most, and what it gains."""
        groups, nodes = np.nonzero(self._counts)
        if len(groups) ** 2 > _SWAPS:
            return -np.inf, (0, 0, 0, 0)
        ours = kept[groups][:, nodes]  # what the task of row r would keep on the node of column c
        own = kept[groups, nodes]
        gains = ours - own[:, None] + ours.T - own[None, :] - 2 * self._pull[np.ix_(groups, groups)]
        extra = self._costs[groups][:, None] - self._costs[groups][None, :]  # what the column's node takes on
        impossible = (
            (extra > free[nodes][None, :]) | (-extra > free[nodes][:, None]) | (nodes[:, None] == nodes[None, :])
        )
        gains[impossible] = -np.inf
        row, column = (int(i) for i in np.unravel_index(int(gains.argmax()), gains.shape))
        return float(gains[row, column]), (int(groups[row]), int(nodes[row]), int(groups[column]), int(nodes[column]))

    def _move(self, group: int, source: int, target: int, tasks: int) -> None:
        self._counts[group, source] -= tasks
        self._counts[group, target] += tasks
