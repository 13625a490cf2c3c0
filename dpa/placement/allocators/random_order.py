"""Chance: the other baseline of the elastic allocator's evaluation (V-A)."""

from __future__ import annotations

import numpy as np

from dpa.placement._rooms import Rooms
from dpa.placement.model import Cluster, Placement, TaskGraph


class RandomAllocator:
    """Each task, the dearest first, on any of the nodes that have room for it.

    Args:
        seed: of the choices.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """As `Allocator.allocate`."""
        random = np.random.default_rng(self._seed)
        rooms = Rooms(graph, cluster)
        for group in sorted(range(len(graph.groups)), key=lambda group: -rooms.task_cost[group]):
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
