"""The tasks of a deployment that can move, as allocators take them: groups of equal tasks, and the room left."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from dpa.errors import PlacementError
from dpa.placement._moves import aligned, reassigned
from dpa.placement.model import Cluster, Counts
from dpa.placement.online import Deployment, NodeOfTask
from dpa.placement.profile import Profile

_MOST_RESERVED = 1 - 1e-6
"""The part of a node that can be taken by tasks which cannot move, so that it is a node still."""


class Movable:
    """Tasks that can move.

    Attributes:
        graph: their groups.
        cluster: the nodes without what other tasks take of them.
        counts: groups x nodes, where they are now.
    """

    def __init__(self, deployment: Deployment, cluster: Cluster) -> None:
        """Those of a deployment on a cluster.

        Raises:
            PlacementError: none has used any processor time.
        """
        fixed, now = ~deployment.movable, deployment.node_of_task
        if not deployment.costs[deployment.movable].any():
            raise PlacementError("no task that can move has used any processor time")
        taken = np.bincount(now[fixed], deployment.costs[fixed], len(cluster.nodes)).tolist()
        self.cluster = Cluster(
            tuple(
                replace(node, reserved=min(node.reserved + used, node.capacity * _MOST_RESERVED))
                for node, used in zip(cluster.nodes, taken, strict=True)
            )
        )
        of: dict[str, list[int]] = {}
        for task in np.flatnonzero(deployment.movable).tolist():
            of.setdefault(deployment.tasks[task][0], []).append(task)
        both = deployment.traffic + deployment.traffic.T
        traffic = {pair: float(both[np.ix_(of[pair[0]], of[pair[1]])].sum()) for pair in combinations(of, 2)}
        costs = {stage: tuple(deployment.costs[tasks].tolist()) for stage, tasks in of.items()}
        profile = Profile(costs, {pair: size for pair, size in traffic.items() if size})
        division = profile.graph({stage: len(tasks) for stage, tasks in of.items()})
        self.graph = division.graph
        parts = [division.tasks[group.name] for group in self.graph.groups]
        self._tasks = [[of[stage][number] for stage, number in part] for part in parts]
        self._now = now
        self.counts: Counts = np.array(
            [np.bincount(now[tasks], minlength=len(cluster.nodes)) for tasks in self._tasks], dtype=np.int64
        )

    def placed(self, counts: Counts) -> NodeOfTask:
        """The node of each task of the deployment if those that can move were placed like that: of equal tasks and
        nodes so that as many as possible stay where they are."""
        found = self._now.copy()
        for tasks, of_group in zip(self._tasks, aligned(self.cluster, counts, self.counts), strict=True):
            found[tasks] = reassigned(found[tasks].tolist(), of_group)
        return found
