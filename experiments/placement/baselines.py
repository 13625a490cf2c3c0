"""Allocators of the papers that dpa's are compared with, and an exact one. A job file names them as
`experiments.placement.baselines:ExactAllocator`.

The exact one is a dynamic programme over counts: a group's tasks are alike, so what is placed so far is a vector of
counts, and a node adds what it takes. With 17 tasks in 7 groups there are some thousand vectors, where the task
allocation paper (7.3) tried all assignments of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dpa.errors import PlacementError
from dpa.placement.allocators.top_down import Priority, by_priority
from dpa.placement.model import Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import KeptTraffic, Objective
from dpa.placement.rooms import Rooms
from dpa.placement.scores import Floats, dearest_first

BASELINES: Mapping[str, str] = {
    "random": f"{__name__}:RandomAllocator",
    "task_level": f"{__name__}:TaskLevelAllocator",
    "exact": f"{__name__}:ExactAllocator",
}
"""As a job file names them, by short names."""

Task = tuple[int, int]
"""A group, and the number of a task in it."""

_MAX_WORK = 2e8  # vectors times what a node may hold times nodes; some seconds
_MAX_GROUPS = 32  # an array has no more dimensions
_MAX_CELLS = 5_000_000
"""Vectors times groups, and vectors times nodes: what is kept in memory, 8 bytes each, a few times."""


class RandomAllocator:
    """Each task, the dearest first, on any of the nodes that have room for it: the other baseline of the elastic
    allocator's evaluation (V-A)."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """PlacementError if the tasks do not fit."""
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
        priority: of edges; None, as in the paper's evaluation: the traffic of one pair of their tasks.
        seed: of the order of an edge's pairs by chance; without it all pairs of the first upstream task come first,
            then those of the second.
    """

    def __init__(self, priority: Priority | None = None, seed: int | None = None) -> None:
        self._priority, self._seed = priority, seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """PlacementError if the tasks do not fit."""
        random = None if self._seed is None else np.random.default_rng(self._seed)
        tasks = _Tasks(graph, cluster)
        by_pair = sorted(graph.links, key=lambda link: -link.per_pair)
        for link in by_pair if self._priority is None else by_priority(graph, self._priority):
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


class ExactAllocator:
    """The placement of the least sum over nodes.

    Args:
        objective: an objective whose peaks only mark what is impossible: `KeptTraffic` or `Unevenness`.
    """

    def __init__(self, objective: type[Objective] = KeptTraffic) -> None:
        self._objective = objective

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """PlacementError if the graph is too large."""
        objective = self._objective(graph, cluster)
        shape = tuple(group.tasks + 1 for group in graph.groups)
        if len(shape) > _MAX_GROUPS or math.prod(shape) * max(len(shape), len(cluster.nodes)) > _MAX_CELLS:
            raise _too_large(graph)
        everything = np.indices(shape).reshape(len(shape), -1).T
        least = np.full(shape, np.inf)
        least[(0,) * len(shape)] = 0.0
        choices: list[tuple[Counts, Counts]] = []
        for node in range(len(cluster.nodes)):
            contents, values = _possible(objective, everything, node)
            if math.prod(shape) * len(contents) * len(cluster.nodes) > _MAX_WORK:
                raise _too_large(graph)
            least, chosen = _with_node(least, contents, values)
            choices.append((contents, chosen))
        if not np.isfinite(least[-1, ...].flat[-1]):
            raise PlacementError(
                f"no placement exists: {graph.tasks} tasks need {graph.cost:.4g} processors, all nodes have "
                f"{cluster.room:.4g}, but single tasks are too large to fill them"
            )
        return Placement(graph, cluster, _traced(choices, shape))


def _possible(objective: Objective, contents: Counts, node: int) -> tuple[Counts, Floats]:
    """What a node has room for (candidates x groups), and what each content is worth."""
    peaks, sums = objective.worth(objective.use(contents.astype(float)), np.full(len(contents), node))
    possible = np.isfinite(peaks)
    return contents[possible], sums[possible]


def _with_node(least: Floats, contents: Counts, values: Floats) -> tuple[Floats, Counts]:
    """The least sums with one more node, for every vector of tasks placed, and what that node then holds."""
    result = np.full_like(least, np.inf)
    chosen = np.full(least.shape, -1, dtype=np.int64)
    for number, (content, value) in enumerate(zip(contents.tolist(), values.tolist(), strict=True)):
        after = tuple(slice(count, None) for count in content)
        before = tuple(slice(0, size - count) for size, count in zip(least.shape, content, strict=True))
        found = least[before] + value
        better = found < result[after]
        np.copyto(result[after], found, where=better)
        np.copyto(chosen[after], number, where=better)
    return result, chosen


def _traced(choices: list[tuple[Counts, Counts]], shape: tuple[int, ...]) -> Counts:
    """The counts (groups x nodes), followed back from the end."""
    left = np.array(shape) - 1
    columns = []
    for contents, chosen in reversed(choices):
        taken = contents[chosen[tuple(left)]]
        columns.append(taken)
        left = left - taken
    return np.array(columns[::-1]).T


def _too_large(graph: TaskGraph) -> PlacementError:
    digits = sum(math.log10(group.tasks + 1) for group in graph.groups)
    return PlacementError(
        f"the exact allocator is for small graphs: {graph.tasks} tasks in {len(graph.groups)} groups are "
        f"about 10^{digits:.0f} vectors of counts; take top_down_search"
    )
