"""The optimum of small cases, by dynamic programming over counts.

A group's tasks are alike, so what is placed so far is a vector of counts, and a node adds what it takes: with 17 tasks
in 7 groups there are some thousand vectors, where the task allocation paper (7.3) tried all assignments of tasks.
"""

import math

import numpy as np

from dpa.errors import PlacementError
from dpa.placement.model import Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import KeptTraffic, Objective
from dpa.placement.scores import Floats

_MAX_WORK = 2e8  # vectors times what a node may hold times nodes; some seconds
_MAX_GROUPS = 32  # an array has no more dimensions
_MAX_CELLS = 5_000_000
"""Vectors times groups, and vectors times nodes: what is kept in memory, 8 bytes each, a few times."""


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
