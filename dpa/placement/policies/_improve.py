"""Ours: the moves that make the placement better from where tasks are; from scratch only where that gains more.

It goes by what tasks have really used and sent, and begins with where they are, so that few move.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from dpa.errors import PlacementError
from dpa.placement.allocators import ALLOCATORS
from dpa.placement.allocators.local_search import Climb
from dpa.placement.model import Cluster, Counts
from dpa.placement.online import Deployment, Look, NodeOfTask, OnlinePlacement
from dpa.placement.policies._movable import Movable
from dpa.placement.relaxations import balanced
from dpa.placement.scores import Floats, rooms, task_costs

_HIGH = 0.8
"""From this part of its processors on a node is what holds the job up: only then is it worth a move that others have
less to do."""

_LEAST_BYTES = 1e6
"""Bytes a second between nodes that are not worth a move."""


class Improving:
    """While a node holds the job up, the time that the busiest takes is to fall; what goes between nodes is to fall
    always. Nothing moves for less than `min_gain`, so measurements that vary move nothing."""

    def __init__(self, online: OnlinePlacement) -> None:
        self._cluster, self._tolerance = online.cluster, online.tolerance
        self._allocator = ALLOCATORS[online.allocator]()
        self._min_gain = online.options.min_gain

    def look(self, deployment: Deployment) -> Look:
        """The better of the two ways, if it gains enough."""
        try:
            movable = Movable(deployment, self._cluster)
        except PlacementError as error:
            return Look((), "not measured", str(error))
        best, gained = deployment.node_of_task, 0.0
        for counts in self._candidates(deployment, movable):
            node_of_task = movable.placed(counts)
            gain = self._gain(deployment, node_of_task)
            if gain > gained + self._min_gain:
                best, gained = node_of_task, gain
        if gained:
            return Look.at(deployment, self._cluster, best, "no better placement")
        now = f"busiest node {deployment.busy(self._cluster, best).max():.0%}"
        return Look((), "no better placement", f"{now}, {deployment.crossing(best) / 1e6:.1f} MB/s between nodes")

    def _candidates(self, deployment: Deployment, movable: Movable) -> Iterator[Counts]:
        """Where tasks that can move could be (groups x nodes): by single moves and swaps from where they are, and from
        scratch."""
        room = balanced(movable.graph, movable.cluster, self._tolerance)
        if deployment.busy(self._cluster, deployment.node_of_task).max() < _HIGH:  # more than a share holds nothing up
            pairs = zip(room.nodes, self._cluster.nodes, strict=True)
            room = Cluster(
                tuple(replace(share, capacity=max(share.capacity, _HIGH * whole.capacity)) for share, whole in pairs)
            )
        yield Climb(movable.graph, room).from_(relieved(task_costs(movable.graph), room, movable.counts))
        with suppress(PlacementError):  # tasks are too coarse for it; what is near may do
            yield self._allocator.allocate(movable.graph, room).counts

    def _gain(self, deployment: Deployment, node_of_task: NodeOfTask) -> float:
        """What this division is better by: the part of the busiest node's time, where that counts, and the part of all
        traffic that would not go between nodes any more."""
        now = deployment.node_of_task
        before, after = (float(deployment.busy(self._cluster, each).max()) for each in (now, node_of_task))
        time = 1 - after / before if max(before, after) >= _HIGH else 0.0
        less = deployment.crossing(now) - deployment.crossing(node_of_task)
        return time + (less / float(deployment.traffic.sum()) if abs(less) >= _LEAST_BYTES else 0.0)


def relieved(costs: Floats, cluster: Cluster, counts: Counts) -> Counts:
    """The same placement (groups x nodes) with no node too full, as far as tasks are fine enough: from the fullest node
    the dearest task that fits goes to the emptiest, again and again."""
    found, room = counts.copy(), rooms(cluster)
    for _ in range(int(counts.sum())):
        free = room - costs @ found
        source, target = int(free.argmin()), int(free.argmax())
        fits = (found[:, source] > 0) & (costs <= free[target]) & (costs > 0)
        if free[source] >= 0 or not fits.any():
            break
        group = int(np.where(fits, costs, -np.inf).argmax())
        found[group, source] -= 1
        found[group, target] += 1
    return found
