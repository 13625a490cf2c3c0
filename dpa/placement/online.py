"""A placement looked at again while the job runs: what tasks use now goes in; moves, or why there are none, come out.

Each policy is arithmetic on what was measured since the last look: ours, and a new plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpa.errors import PlacementError
from dpa.placement._descent import Budget, Descent
from dpa.placement.allocators import allocator_of, resolved
from dpa.placement.model import Cluster, Counts, OnlineOptions
from dpa.placement.objectives import KeptTraffic
from dpa.placement.profile import Profile
from dpa.placement.relaxations import Task, balanced, least_tolerance
from dpa.placement.scores import Floats, rooms, task_costs

NodeOfTask = npt.NDArray[np.int64]  # the node of each task, shape (tasks,)

_HIGH = 0.8
"""From this part of its processors on a node is what holds the job up: only then is it worth a move that others have
less to do."""

_LEAST_BYTES = 1e6  # bytes a second between nodes that are not worth a move

_LEAST_GAIN = 0.05
"""The least gain of all moves together, as a share of the busiest node's time or of all traffic: measurements vary from
look to look, and must not move tasks to and fro."""

_WORK = 750_000
"""Groups and links of the divisions that are judged from where tasks are, at most; some tenths of a second."""

_MOST_RESERVED = 1 - 1e-6  # the part of a node that can be taken by tasks which cannot move, so that it is a node still


@dataclass(frozen=True)
class OnlinePlacement:
    """How the tasks of a running job are placed again.

    Attributes:
        cluster: the nodes that may be used.
        ids: of these, as the backend numbers them.
        allocator: the one that policies ask for a placement from scratch, as a job file names it.
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


class Policy(Protocol):
    """Decides at each look, when nothing moves. A task keeps its position from look to look, also if it has moved."""

    def look(self, deployment: Deployment) -> Look: ...


class Movable:
    """The tasks of a deployment that can move, as allocators take them.

    Attributes:
        graph: their groups.
        cluster: the nodes without what other tasks take of them.
        counts: groups x nodes, where they are now.
    """

    def __init__(self, deployment: Deployment, cluster: Cluster) -> None:
        """Raises PlacementError if none has used any processor time."""
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
        """The node of each task of the deployment, with those that can move placed like that. Equal tasks and nodes are
        exchanged so that as many as possible stay where they are."""
        found = self._now.copy()
        for tasks, of_group in zip(self._tasks, aligned(self.cluster, counts, self.counts), strict=True):
            found[tasks] = reassigned(found[tasks].tolist(), of_group)
        return found


def aligned(cluster: Cluster, counts: Counts, current: Counts) -> Counts:
    """The same placement (groups x nodes) with nodes of one kind exchanged, so that many tasks stay where they are."""
    common = np.minimum(counts[:, :, None], current[:, None, :]).sum(axis=0)  # new x old
    kinds = [node.kind for node in cluster.nodes]
    common[np.array([[one != other for other in kinds] for one in kinds])] = -1
    found = np.empty_like(counts)
    for _ in kinds:  # most tasks in common first, which is not always the least number of moves
        new, old = np.unravel_index(int(common.argmax()), common.shape)
        found[:, old] = counts[:, new]
        common[new], common[:, old] = -1, -1
    return found


def reassigned(nodes: Sequence[int], counts: Counts) -> list[int]:
    """The node of each task of a group that has `counts` tasks on each node: as many as possible stay, and the others
    fill what is left."""
    left = counts.tolist()
    kept: list[int | None] = []
    for node in nodes:
        stays = left[node] > 0
        left[node] -= stays
        kept.append(node if stays else None)
    free = iter([node for node, tasks in enumerate(left) for _ in range(tasks)])
    return [next(free) if node is None else node for node in kept]


class _ByAllocator:
    """Asks the job's allocator for a whole placement."""

    def __init__(self, online: OnlinePlacement) -> None:
        self._cluster, self._tolerance = online.cluster, online.tolerance
        self._allocator = allocator_of(online.allocator)


class Improving(_ByAllocator):
    """Ours: the moves that make the placement better from where tasks are, so that few move; from scratch only where
    that gains more.

    While a node holds the job up, the busiest node's time must fall; traffic between nodes must fall always. Nothing
    moves for less than a twentieth of either, so measurements that vary move nothing."""

    def look(self, deployment: Deployment) -> Look:
        try:
            movable = Movable(deployment, self._cluster)
        except PlacementError as error:
            return Look((), "not measured", str(error))
        best, gained = deployment.node_of_task, 0.0
        for counts in self._candidates(deployment, movable):
            node_of_task = movable.placed(counts)
            gain = self._gain(deployment, node_of_task)
            if gain > gained + _LEAST_GAIN:
                best, gained = node_of_task, gain
        if gained:
            return Look.at(deployment, self._cluster, best, "no better placement")
        now = f"busiest node {deployment.busy(self._cluster, best).max():.0%}"
        return Look((), "no better placement", f"{now}, {deployment.crossing(best) / 1e6:.1f} MB/s between nodes")

    def _candidates(self, deployment: Deployment, movable: Movable) -> Iterator[Counts]:
        """Groups x nodes: from where tasks are, and from scratch."""
        room = balanced(movable.graph, movable.cluster, self._tolerance)
        if deployment.busy(self._cluster, deployment.node_of_task).max() < _HIGH:  # more than a share holds nothing up
            pairs = zip(room.nodes, self._cluster.nodes, strict=True)
            room = Cluster(
                tuple(replace(share, capacity=max(share.capacity, _HIGH * whole.capacity)) for share, whole in pairs)
            )
        costs = task_costs(movable.graph)
        begun = relieved(costs, room, movable.counts)
        loads = zip(
            room.nodes, (costs @ begun).tolist(), strict=True
        )  # a node that is too full all the same may stay so
        wide = Cluster(tuple(replace(node, capacity=max(node.capacity, node.reserved + load)) for node, load in loads))
        yield Descent(KeptTraffic(movable.graph, wide), Budget(_WORK)).improve(begun)
        with suppress(PlacementError):  # tasks are too coarse for it; what is near may do
            yield self._allocator.allocate(movable.graph, room).counts

    def _gain(self, deployment: Deployment, node_of_task: NodeOfTask) -> float:
        """The part of the busiest node's time, where that counts, and the part of all traffic that would no longer go
        between nodes."""
        now = deployment.node_of_task
        before, after = (float(deployment.busy(self._cluster, each).max()) for each in (now, node_of_task))
        time = 1 - after / before if max(before, after) >= _HIGH else 0.0
        less = deployment.crossing(now) - deployment.crossing(node_of_task)
        return time + (less / float(deployment.traffic.sum()) if abs(less) >= _LEAST_BYTES else 0.0)


def relieved(costs: Floats, cluster: Cluster, counts: Counts) -> Counts:
    """The placement (groups x nodes) with no node too full, where tasks are fine enough: from the fullest node the
    dearest task that fits goes to the emptiest, again and again."""
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


class Replanning(_ByAllocator):
    """The job's allocator asked at every look as if nothing ran: each task that it puts elsewhere moves."""

    def look(self, deployment: Deployment) -> Look:
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


POLICIES: Mapping[str, Callable[[OnlinePlacement], Policy]] = {"improve": Improving, "replan": Replanning}
"""Those that have a name in a job file."""


def policy_of(online: OnlinePlacement) -> Policy:
    """The policy of a name, or that of the user's which is `package.module:Name`, made for these nodes."""
    name = online.options.policy
    made: Policy = (POLICIES.get(name) or resolved(name))(online)
    return made
