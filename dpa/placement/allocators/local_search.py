"""TD with search: moves and swaps of tasks while these keep more traffic inside nodes, from the top-down allocation and
from whatever other allocators give, and the same again from what remains after a few nodes were emptied and filled by
chance. Where nodes are so full that no task can change places with one other, what two nodes have is divided anew."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dpa.placement._refill import refilled
from dpa.placement.allocators._starts import starts
from dpa.placement.allocators.pairwise import PairwiseAllocator
from dpa.placement.model import SLACK, Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import KeptTraffic
from dpa.placement.scores import Floats, rooms, task_costs

WORK = 30_000_000
"""Sums that a search may compare, in all its steps; about a second."""

_SWAPS = 2_000_000
"""Pairs of groups on nodes up to which swaps are looked for; their number is quadratic in the groups."""

_DIVISIONS = 750_000
"""Groups and links of the divisions that are judged at the end, at most."""

_SHARE_OF_CLIMBS = 0.5
"""The part of the work that goes into climbing from the starts; what is left goes into trials."""


class TopDownSearchAllocator:
    """Steepest ascent: at each step the move that keeps most traffic, and where none gains, the swap.

    Args:
        trials: times that a few nodes are filled anew, at most.
        work: sums to be compared, at most, which bounds the time.
        seed: of the choices.
    """

    def __init__(self, *, trials: int = 60, work: int = WORK, seed: int = 0) -> None:
        self._trials, self._work, self._seed = trials, work, seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """As `Allocator.allocate`."""
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
    """Moves and swaps of tasks on tables of counts (groups x nodes).

    A group has no edge to itself, so moving several tasks of one is worth their number times one.

    Attributes:
        work: sums compared so far.
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
        """Carry out the best swap of a task for one of another group on another node; returns these nodes. The best
        node of one group does not depend on that of the other."""
        if self._a_swap > _SWAPS:
            return ()
        self.work += self._a_swap
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
