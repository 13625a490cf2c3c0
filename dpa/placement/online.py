"""A placement looked at again while the job runs: what tasks use now goes in; moves, or why there are none, come out.

The policies are in `dpa.placement.policies`; here is what goes in and comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from dpa.placement.model import Cluster
from dpa.placement.relaxations import Task
from dpa.placement.scores import Floats

NodeOfTask = npt.NDArray[np.int64]
"""The node of each task, shape (tasks,)."""


@dataclass(frozen=True, kw_only=True)
class OnlineOptions:
    """How a placement follows what is measured while the job runs."""

    policy: Literal["improve", "otd", "replan"] = "improve"
    """Which tasks move: `improve`: those that make the placement better; `otd`: one in each cycle (N-Storm); `replan`:
    all that the section's `allocator` would put elsewhere."""
    seconds: Annotated[float, Ge(1), Le(3600)] = 5.0
    """Seconds from one look to the next (N-Storm's cycle)."""


@dataclass(frozen=True)
class OnlinePlacement:
    """How the tasks of a running job are placed again.

    Attributes:
        cluster: the nodes that may be used.
        ids: of these, as the backend numbers them.
        allocator: the one that policies ask for a placement from scratch, by its name.
        tolerance: by how much a node may have more than its share of all costs.
    """

    options: OnlineOptions
    cluster: Cluster
    ids: tuple[str, ...]
    allocator: str
    tolerance: float


@dataclass(frozen=True, eq=False)
class Deployment:
    """Where tasks are, and what was measured of them since the last look.

    Attributes:
        tasks: the stage and the number of each, stage after stage.
        node_of_task: the node of each.
        costs: processors that each kept busy, shape (tasks,).
        traffic: bytes a second from each to each other, shape (tasks, tasks).
        queues: the used part of each one's queue, shape (tasks,).
        movable: whether each can move, shape (tasks,).
    """

    tasks: tuple[Task, ...]
    node_of_task: NodeOfTask
    costs: Floats
    traffic: Floats
    queues: Floats
    movable: npt.NDArray[np.bool_]

    def busy(self, cluster: Cluster, node_of_task: NodeOfTask) -> Floats:
        """The used part of each node's processors, with tasks on these nodes."""
        nodes = cluster.nodes
        reserved, capacity = [node.reserved for node in nodes], np.array([node.capacity for node in nodes])
        part: Floats = (reserved + np.bincount(node_of_task, self.costs, len(nodes))) / capacity
        return part

    def crossing(self, node_of_task: NodeOfTask) -> float:
        """Bytes a second between nodes, with tasks on these nodes."""
        return float(self.traffic[node_of_task[:, None] != node_of_task[None, :]].sum())


@dataclass(frozen=True)
class Look:
    """What one look decides.

    Attributes:
        moves: the position of each task that is to move, and its new node.
        kind: the reason without its numbers.
    """

    moves: tuple[tuple[int, int], ...]
    kind: str
    reason: str

    @staticmethod
    def at(deployment: Deployment, cluster: Cluster, node_of_task: NodeOfTask, unmoved: str) -> Look:
        """Moves tasks to these nodes; `unmoved` is the kind where all are there already."""
        moved = np.flatnonzero(node_of_task != deployment.node_of_task).tolist()
        both = deployment.node_of_task, node_of_task
        busy = [deployment.busy(cluster, each).max() for each in both]
        crossing = [deployment.crossing(each) / 1e6 for each in both]
        return Look(
            tuple((task, int(node_of_task[task])) for task in moved),
            "moves" if moved else unmoved,
            f"busiest node {busy[0]:.0%} to {busy[1]:.0%}, {crossing[0]:.1f} to {crossing[1]:.1f} MB/s between nodes",
        )
