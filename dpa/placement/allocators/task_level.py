"""TL: pairs of tasks, those of the most significant edge first (task allocation paper, section 3.2).

It is quadratic in the tasks, and here for comparison. All pairs of an edge have the same traffic. The paper leaves
their order open, though it decides the result: here it is that of two nested loops, with which TL keeps as much of the
optimum as published; by chance it keeps more. Where two placed tasks are on different nodes, all tasks of the smaller
node go if they fit, as algorithm 1 has it.
"""

from __future__ import annotations

import numpy as np

from dpa.placement._rooms import Rooms
from dpa.placement.allocators.top_down import Priority, by_priority
from dpa.placement.model import Cluster, Placement, TaskGraph


class TaskLevelAllocator:
    """A greedy walk over pairs of tasks.

    Args:
        priority: of edges; the paper evaluates `pair_traffic`.
        seed: of the order of an edge's pairs by chance; without it all pairs of the first upstream task come first,
            then those of the second.
    """

    def __init__(self, priority: Priority = "pair_traffic", seed: int | None = None) -> None:
        self._priority, self._seed = priority, seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """As `Allocator.allocate`."""
        random = None if self._seed is None else np.random.default_rng(self._seed)
        tasks = _Tasks(graph, cluster)
        for link in by_priority(graph, self._priority):
            pairs, width = graph.pairs(link.upstream, link.downstream), graph.groups[link.downstream].tasks
            tasks.begin_edge()
            for pair in range(pairs) if random is None else random.permutation(pairs).tolist():
                tasks.place_pair((link.upstream, pair // width), (link.downstream, pair % width))
        return tasks.rooms.place_rest()


Task = tuple[int, int]
"""A group, and the number of a task in it."""


class _Tasks:
    """Where each task is, while pairs are placed."""

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        self.rooms = Rooms(graph, cluster)
        self._node: dict[Task, int] = {}
        self._on: list[list[Task]] = [[] for _ in cluster.nodes]
        self._in_use: int | None = None  # the node that took the last pair of this edge

    def begin_edge(self) -> None:
        """The pairs of another edge come."""
        self._in_use = None

    def place_pair(self, one: Task, other: Task) -> None:
        """Place what has no node of a pair; a pair that does not fit is left for later."""
        homes = [self._node[task] for task in (one, other) if task in self._node]
        if len(homes) == 2:
            self._fuse(*homes)
            return
        waiting = [task for task in (one, other) if task not in self._node]
        cost = sum(self.rooms.task_cost[group] for group, _ in waiting)
        node = homes[0] if homes else self._pick(cost)
        if self.rooms.fits(cost, node):
            for task in waiting:
                self.rooms.place(task[0], 1, node)
                self._node[task] = node
                self._on[node].append(task)
            self._in_use = node

    def _pick(self, cost: float) -> int:
        """The node of a pair of which no task is placed (algorithm 2)."""
        if self._in_use is not None and self.rooms.fits(cost, self._in_use):
            return self._in_use
        return self.rooms.roomiest()

    def _fuse(self, one: int, other: int) -> None:
        if (kept := self.rooms.fuse(one, other)) is not None:
            emptied = other if kept == one else one
            for task in self._on[emptied]:
                self._node[task] = kept
            self._on[kept] += self._on[emptied]
            self._on[emptied] = []
