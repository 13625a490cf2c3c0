"""OTD as an allocator: its cycles on predicted loads, from the even placement until nothing moves any more."""

from __future__ import annotations

import numpy as np

from dpa.errors import TooLargeError
from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.model import Cluster, Placement, TaskGraph
from dpa.placement.otd import Measured, OnlineTaskDeployment, OtdOptions
from dpa.placement.scores import Floats, rooms, task_costs

_MAX_TASKS = 2_000
"""Traffic is kept for every pair of tasks."""


class OnlineAllocator:
    """What OTD would make of the even placement (N-Storm, section 4), each node being one worker.

    Args:
        cycles: at most.
    """

    def __init__(self, options: OtdOptions | None = None, *, cycles: int = 1_000) -> None:
        self._options, self._cycles = options or OtdOptions(smoothing=1, rest=0), cycles

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """As `Allocator.allocate`; the error also says where a graph is too large."""
        if graph.tasks > _MAX_TASKS:
            raise TooLargeError(f"OTD looks at every pair of {graph.tasks} tasks; beyond {_MAX_TASKS}, take top_down")
        start = EvenAllocator().allocate(graph, cluster)
        groups = np.repeat(np.arange(len(graph.groups)), [group.tasks for group in graph.groups])
        nodes = np.concatenate([start.nodes_of(group) for group in range(len(graph.groups))])
        room, costs = rooms(cluster), task_costs(graph)[groups]
        online = OnlineTaskDeployment(range(len(cluster.nodes)), self._options)
        for _ in range(self._cycles):
            cpu = np.bincount(nodes, costs, len(room)) / room
            # A task's part of a worker depends on the worker where nodes differ: that of the smallest is safe.
            step = online.step(
                nodes.tolist(), Measured(_traffic(graph, groups), costs / room.min(), cpu, np.zeros_like(cpu))
            )
            if step.migration is None:
                break
            nodes[step.migration.task] = step.migration.worker
        counts = np.zeros_like(start.counts)
        np.add.at(counts, (groups, nodes), 1)
        return Placement(graph, cluster, counts)


def _traffic(graph: TaskGraph, groups: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """Bytes a second from each task to each other."""
    between = np.zeros((len(graph.groups), len(graph.groups)))
    for link in graph.links:
        between[link.upstream, link.downstream] = link.per_pair
    traffic: Floats = between[np.ix_(groups, groups)]
    return traffic
