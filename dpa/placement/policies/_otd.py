"""OTD: one task in a cycle (N-Storm, section 4), with each node as one worker."""

from __future__ import annotations

import numpy as np

from dpa.placement.online import Deployment, Look, OnlinePlacement
from dpa.placement.otd import Measured, OnlineTaskDeployment
from dpa.placement.scores import rooms


class OneTaskACycle:
    """A look is a cycle."""

    def __init__(self, online: OnlinePlacement) -> None:
        self._cluster = online.cluster
        self._otd = OnlineTaskDeployment(range(len(online.cluster.nodes)))

    def look(self, deployment: Deployment) -> Look:
        """One cycle."""
        node_of_task = deployment.node_of_task
        queues = np.zeros(len(self._cluster.nodes))
        np.maximum.at(queues, node_of_task, deployment.queues)
        measured = Measured(
            deployment.traffic,
            # A task's part of a node depends on the node where they differ: that of the smallest is safe.
            deployment.costs / rooms(self._cluster).min(),
            deployment.busy(self._cluster, node_of_task),
            queues,
        )
        step = self._otd.step(node_of_task.tolist(), measured, fixed=np.flatnonzero(~deployment.movable).tolist())
        moves = () if step.migration is None else ((step.migration.task, step.migration.worker),)
        return Look(moves, step.case.name.lower(), step.reason)
