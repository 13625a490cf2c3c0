"""The interface of all allocators."""

from __future__ import annotations

from typing import Protocol

from dpa.placement.model import Cluster, Placement, TaskGraph


class Allocator(Protocol):
    """Places the tasks of a graph on the nodes of a cluster.

    The same question gets the same answer, in every process: chance comes from a seed.
    """

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """A placement of all tasks that exceeds no node's room.

        Raises:
            PlacementError: the allocator finds none; says what is lacking.
        """
        ...
