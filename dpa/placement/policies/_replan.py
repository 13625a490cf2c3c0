"""The job's allocator asked as if nothing ran: whatever it puts elsewhere moves."""

from __future__ import annotations

from dpa.errors import PlacementError
from dpa.placement.allocators import ALLOCATORS
from dpa.placement.online import Deployment, Look, OnlinePlacement
from dpa.placement.policies._movable import Movable
from dpa.placement.relaxations import balanced, least_tolerance


class Replanning:
    """An allocator asked again at every look."""

    def __init__(self, online: OnlinePlacement) -> None:
        self._cluster, self._tolerance = online.cluster, online.tolerance
        self._allocator = ALLOCATORS[online.allocator]()

    def look(self, deployment: Deployment) -> Look:
        """What it would put elsewhere, if no node is to have much more than its share; more where tasks are too coarse
        for that."""
        try:
            movable = Movable(deployment, self._cluster)
            graph, cluster = movable.graph, movable.cluster
            placement, _ = least_tolerance(
                lambda tried: self._allocator.allocate(graph, balanced(graph, cluster, tried)),
                graph,
                cluster,
                self._tolerance,
            )
        except PlacementError as error:
            return Look((), "no placement", str(error))
        return Look.at(deployment, self._cluster, movable.placed(placement.counts), "the same placement")
