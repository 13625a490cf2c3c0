"""Allocators that take task by task: Storm's even one, chance, and TL by pairs of tasks.

They are the baselines of the papers. Time grows with the number of tasks, of TL with its square.
"""

import numpy as np

from dpa.placement._rooms import Rooms
from dpa.placement.allocators.top_down import Priority, by_priority
from dpa.placement.model import Cluster, Placement, TaskGraph
from dpa.placement.scores import dearest_first

Task = tuple[int, int]
"""A group, and the number of a task in it."""


class EvenAllocator:
    """Storm's default: round robin over the nodes, groups in their order. A node without room for a task is passed
    over; Storm's scheduler does not do this, as it knows no costs."""

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        rooms = Rooms(graph, cluster)
        nodes, turn = len(cluster.nodes), 0
        for group, cost in enumerate(rooms.task_cost):
            while rooms.left[group]:
                in_turn = ((turn + step) % nodes for step in range(nodes))
                chosen = next((node for node in in_turn if rooms.fits(cost, node)), None)
                if chosen is None:
                    raise rooms.refusal(group)
                rooms.place(group, 1, chosen)
                turn = chosen + 1
        return rooms.placement()


class RandomAllocator:
    """Each task, the dearest first, on any of the nodes that have room for it: the other baseline of the elastic
    allocator's evaluation (V-A)."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        random = np.random.default_rng(self._seed)
        rooms = Rooms(graph, cluster)
        for group in dearest_first(rooms.task_cost):
            open_nodes = list(range(len(cluster.nodes)))
            while rooms.left[group]:
                if not open_nodes:
                    raise rooms.refusal(group)
                place = int(random.integers(len(open_nodes)))
                if rooms.fits(rooms.task_cost[group], open_nodes[place]):
                    rooms.place(group, 1, open_nodes[place])
                else:
                    open_nodes[place] = open_nodes[-1]
                    open_nodes.pop()
        return rooms.placement()


class TaskLevelAllocator:
    """TL: pairs of tasks, those of the most significant edge first (task allocation paper, section 3.2).

    All pairs of an edge have the same traffic. The paper leaves their order open, though it decides the result: here it
    is that of two nested loops, with which TL keeps as much of the optimum as published; by chance it keeps more.

    Args:
        priority: of edges; the paper evaluates `pair_traffic`.
        seed: of the order of an edge's pairs by chance; without it all pairs of the first upstream task come first,
            then those of the second.
    """

    def __init__(self, priority: Priority = "pair_traffic", seed: int | None = None) -> None:
        self._priority, self._seed = priority, seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        random = None if self._seed is None else np.random.default_rng(self._seed)
        tasks = _Tasks(graph, cluster)
        for link in by_priority(graph, self._priority):
            pairs, width = graph.pairs(link.upstream, link.downstream), graph.groups[link.downstream].tasks
            tasks.begin_edge()
            for pair in range(pairs) if random is None else random.permutation(pairs).tolist():
                tasks.place_pair((link.upstream, pair // width), (link.downstream, pair % width))
        return tasks.rooms.place_rest()


class _Tasks:
    """Where each task is, while pairs are placed."""

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        self.rooms = Rooms(graph, cluster)
        self._node: dict[Task, int] = {}
        self._on: list[list[Task]] = [[] for _ in cluster.nodes]
        self._in_use: int | None = None  # the node that took the last pair of this edge

    def begin_edge(self) -> None:
        self._in_use = None

    def place_pair(self, one: Task, other: Task) -> None:
        """A pair that does not fit is left for later."""
        homes = [self._node[task] for task in (one, other) if task in self._node]
        if len(homes) == 2:  # all tasks of the smaller node go if they fit (algorithm 1)
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
        """For a pair with no task placed (algorithm 2)."""
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
