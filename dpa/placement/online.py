"""A placement looked at again while the job runs: what tasks use now goes in; moves, or why there are none, come out.

Policies are arithmetic on what was measured. `Improving` is ours: it begins with where tasks are, so that few move, and
goes by what tasks have really used and sent. `OneTaskACycle` is OTD (N-Storm, section 4), with each node as one worker.
`Replanning` asks an allocator as if nothing ran, and moves whatever is elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from dpa.errors import PlacementError
from dpa.placement._moves import Plan, aligned
from dpa.placement.allocators import ALLOCATORS
from dpa.placement.allocators.base import Allocator
from dpa.placement.allocators.local_search import Climb
from dpa.placement.model import Cluster, Counts, Placement, TaskGraph
from dpa.placement.otd import Measured, OnlineTaskDeployment
from dpa.placement.profile import Profile
from dpa.placement.relaxations import Division, Task, balanced, least_tolerance
from dpa.placement.scores import Floats, rooms, task_costs

NodeOfTask = npt.NDArray[np.int64]
"""The node of each task, shape (tasks,)."""

_HIGH = 0.8
"""From this part of its processors on a node is what holds the job up: only then is it worth a move that others have
less to do."""

_LEAST_BYTES = 1e6
"""Bytes a second between nodes that are not worth a move."""

_MOST_RESERVED = 1 - 1e-6
"""The part of a node that can be taken by tasks which cannot move, so that it is a node still."""

_SHORTEST = 1e-6
"""A cycle of fewer seconds is none; and the part of one that may be rounding."""


@dataclass(frozen=True, kw_only=True)
class OnlineOptions:
    """How a placement follows what is measured while the job runs."""

    policy: Literal["improve", "otd", "replan"] = "improve"
    """Which tasks move: `improve`: those that make the placement better; `otd`: one in each cycle (N-Storm); `replan`:
    all that the section's `allocator` would put elsewhere."""
    seconds: Annotated[float, Ge(1), Le(3600)] = 5.0
    """Seconds from one look to the next (N-Storm's cycle)."""
    min_gain: Annotated[float, Ge(0), Le(1)] = 0.05
    """With `improve`: least gain of all moves together, as a share of the busiest node's time or of the traffic between
    nodes."""
    fetch_seconds: Annotated[float, Ge(0), Le(3600)] = 0.0
    """Seconds between two looks of a node for a new plan (N-Storm's T_S); 0: it learns of one at once."""
    read_seconds: Annotated[float, Ge(0), Le(3600)] = 0.0
    """Seconds between two looks of a node's workers (T_W); 0: they learn of one at once."""

    def read_at(self, published: float) -> float:
        """When all workers know a plan that is published at a moment, in seconds: nodes and workers look at the
        multiples of their cycles (N-Storm, section 3.1)."""
        for cycle in (self.fetch_seconds, self.read_seconds):
            if cycle > _SHORTEST:
                published = math.ceil(published / cycle - _SHORTEST) * cycle
        return published


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
        """The used part of each node's processors, if tasks were there."""
        nodes = cluster.nodes
        reserved, capacity = [node.reserved for node in nodes], np.array([node.capacity for node in nodes])
        part: Floats = (reserved + np.bincount(node_of_task, self.costs, len(nodes))) / capacity
        return part

    def crossing(self, node_of_task: NodeOfTask) -> float:
        """Bytes a second between nodes, if tasks were there."""
        return float(self.traffic[node_of_task[:, None] != node_of_task[None, :]].sum())

    def of_movable(self) -> Deployment:
        """The tasks that can move, alone."""
        free = np.flatnonzero(self.movable)
        return Deployment(
            tuple(self.tasks[task] for task in free),
            self.node_of_task[free],
            self.costs[free],
            self.traffic[np.ix_(free, free)],
            self.queues[free],
            self.movable[free],
        )

    def room_for_movable(self, cluster: Cluster) -> Cluster:
        """The nodes without what tasks that cannot move take of them."""
        taken = np.bincount(self.node_of_task[~self.movable], self.costs[~self.movable], len(cluster.nodes))
        return Cluster(
            tuple(
                replace(node, reserved=min(node.reserved + used, node.capacity * _MOST_RESERVED))
                for node, used in zip(cluster.nodes, taken.tolist(), strict=True)
            )
        )

    def with_movable(self, node_of_task: NodeOfTask) -> NodeOfTask:
        """The nodes of all tasks, if those that can move had these."""
        found = self.node_of_task.copy()
        found[self.movable] = node_of_task
        return found

    def division(self) -> Division:
        """The tasks in groups that are alike, as allocators take them.

        Raises:
            PlacementError: no task has used anything.
        """
        stages = list(dict.fromkeys(stage for stage, _ in self.tasks))
        of = {stage: [at for at, (name, _) in enumerate(self.tasks) if name == stage] for stage in stages}
        if not self.costs.any():
            raise PlacementError("no task that can move has used any processor time")
        traffic = {
            (one, other): float((self.traffic + self.traffic.T)[np.ix_(of[one], of[other])].sum())
            for place, one in enumerate(stages)
            for other in stages[place + 1 :]
        }
        costs = {stage: tuple(self.costs[of[stage]].tolist()) for stage in stages}
        made = Profile(costs, {pair: size for pair, size in traffic.items() if size}).graph(
            {stage: len(places) for stage, places in of.items()}
        )
        places = {
            group: tuple((stage, self.tasks[of[stage][position]][1]) for stage, position in tasks)
            for group, tasks in made.tasks.items()
        }
        return Division(made.graph, places)


@dataclass(frozen=True)
class Look:
    """What one look decides.

    Attributes:
        moves: the position of each task that is to move, and its new node.
        kind: the reason without its numbers.
        reason: with them.
    """

    moves: tuple[tuple[int, int], ...]
    kind: str
    reason: str


class Policy(Protocol):
    """Decides at each look. Positions of tasks mean the same from look to look: a task that has moved keeps its."""

    def look(self, deployment: Deployment) -> Look:
        """Decide; called when nothing moves."""
        ...


class OneTaskACycle:
    """OTD: each node is one worker."""

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


class Replanning:
    """An allocator asked again at every look."""

    def __init__(self, online: OnlinePlacement) -> None:
        self._cluster, self._tolerance = online.cluster, online.tolerance
        self._allocator = ALLOCATORS[online.allocator]()

    def look(self, deployment: Deployment) -> Look:
        """What it would put elsewhere."""
        movable, cluster = deployment.of_movable(), deployment.room_for_movable(self._cluster)
        try:
            division = movable.division()
            counts = _allocated(self._allocator, division.graph, cluster, self._tolerance)
        except PlacementError as error:
            return Look((), "no placement", str(error))
        placement = Placement(division.graph, cluster, counts)
        node_of_task = deployment.with_movable(_node_of_task(movable, division, placement))
        moves = _moves(deployment, node_of_task)
        return Look(
            moves, "moves" if moves else "the same placement", _in_words(deployment, self._cluster, node_of_task)
        )


class Improving:
    """Ours: the moves that make the placement better from where tasks are; from scratch only where that gains more.

    While a node holds the job up, the time that the busiest takes is to fall; what goes between nodes is to fall
    always. Nothing moves for less than `min_gain`, so measurements that vary move nothing.
    """

    def __init__(self, online: OnlinePlacement) -> None:
        self._cluster, self._tolerance = online.cluster, online.tolerance
        self._allocator = ALLOCATORS[online.allocator]()
        self._min_gain = online.options.min_gain

    def look(self, deployment: Deployment) -> Look:
        """The better of the two ways, if it gains enough."""
        movable = deployment.of_movable()
        try:
            division = movable.division()
        except PlacementError as error:
            return Look((), "not measured", str(error))
        best, gained = deployment.node_of_task, 0.0
        for candidate in self._candidates(deployment, movable, division):
            node_of_task = deployment.with_movable(candidate)
            gain = self._gain(deployment, node_of_task)
            if gain > gained + self._min_gain:
                best, gained = node_of_task, gain
        moves = _moves(deployment, best)
        if not moves:
            now = f"busiest node {deployment.busy(self._cluster, best).max():.0%}"
            return Look((), "no better placement", f"{now}, {deployment.crossing(best) / 1e6:.1f} MB/s between nodes")
        return Look(moves, "moves", _in_words(deployment, self._cluster, best))

    def _candidates(self, deployment: Deployment, movable: Deployment, division: Division) -> list[NodeOfTask]:
        """Where tasks that can move could be: by single moves and swaps from where they are, and from scratch."""
        graph, cluster = division.graph, deployment.room_for_movable(self._cluster)
        room = self._room(deployment, graph, cluster)
        now = _counts(movable, division, len(cluster.nodes))
        found = [Climb(graph, room).from_(relieved(task_costs(graph), room, now))]
        with suppress(PlacementError):  # tasks are too coarse for it; what is near may do
            found.append(self._allocator.allocate(graph, room).counts)
        return [_node_of_task(movable, division, Placement(graph, cluster, counts.copy())) for counts in found]

    def _room(self, deployment: Deployment, graph: TaskGraph, cluster: Cluster) -> Cluster:
        """What each node may have: about its share where one holds the job up, else as much as holds nothing up."""
        room = balanced(graph, cluster, self._tolerance)
        if deployment.busy(self._cluster, deployment.node_of_task).max() >= _HIGH:
            return room
        pairs = zip(room.nodes, self._cluster.nodes, strict=True)
        return Cluster(
            tuple(replace(share, capacity=max(share.capacity, _HIGH * whole.capacity)) for share, whole in pairs)
        )

    def _gain(self, deployment: Deployment, node_of_task: NodeOfTask) -> float:
        """What this division is better by: the part of the busiest node's time, where that counts, and the part of all
        traffic that would not go between nodes any more."""
        now = deployment.node_of_task
        before, after = (float(deployment.busy(self._cluster, each).max()) for each in (now, node_of_task))
        time = 1 - after / before if max(before, after) >= _HIGH else 0.0
        less = deployment.crossing(now) - deployment.crossing(node_of_task)
        return time + (less / float(deployment.traffic.sum()) if abs(less) >= _LEAST_BYTES else 0.0)


POLICIES: dict[str, Callable[[OnlinePlacement], Policy]] = {
    "improve": Improving,
    "otd": OneTaskACycle,
    "replan": Replanning,
}
"""By their names in a job file."""


def policy_of(online: OnlinePlacement) -> Policy:
    """The policy that a job asks for."""
    return POLICIES[online.options.policy](online)


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


def _allocated(allocator: Allocator, graph: TaskGraph, cluster: Cluster, tolerance: float) -> Counts:
    """What an allocator gives each node (groups x nodes), if none is to have much more than its share; more where tasks
    are too coarse for that.

    Raises:
        PlacementError: they do not fit at all, or the allocator does not take such a graph.
    """
    placement, _ = least_tolerance(
        lambda tried: allocator.allocate(graph, balanced(graph, cluster, tried)), graph, cluster, tolerance
    )
    return placement.counts.copy()


def _counts(deployment: Deployment, division: Division, nodes: int) -> Counts:
    """Tasks of each group on each node now."""
    place = dict(zip(deployment.tasks, deployment.node_of_task.tolist(), strict=True))
    return np.array(
        [
            np.bincount([place[task] for task in division.tasks[group.name]], minlength=nodes)
            for group in division.graph.groups
        ],
        dtype=np.int64,
    )


def _node_of_task(deployment: Deployment, division: Division, placement: Placement) -> NodeOfTask:
    """The node of each task by a placement, of equal tasks and nodes so that as many as possible stay where they
    are."""
    place = {task: position for position, task in enumerate(deployment.tasks)}
    groups = [[place[task] for task in division.tasks[group.name]] for group in division.graph.groups]
    node_of_task = deployment.node_of_task.copy()
    now = Placement(placement.graph, placement.cluster, _counts(deployment, division, len(placement.cluster.nodes)))
    current = Plan(0, now, tuple(tuple(node_of_task[group].tolist()) for group in groups))
    for group, nodes in zip(groups, current.next(aligned(placement, now)).nodes, strict=True):
        node_of_task[group] = nodes
    return node_of_task


def _moves(deployment: Deployment, node_of_task: NodeOfTask) -> tuple[tuple[int, int], ...]:
    return tuple(
        (int(task), int(node_of_task[task])) for task in np.flatnonzero(node_of_task != deployment.node_of_task)
    )


def _in_words(deployment: Deployment, cluster: Cluster, node_of_task: NodeOfTask) -> str:
    """What becomes of the busiest node, and of what goes between nodes."""
    busy = [float(deployment.busy(cluster, each).max()) for each in (deployment.node_of_task, node_of_task)]
    crossing = [deployment.crossing(each) / 1e6 for each in (deployment.node_of_task, node_of_task)]
    return f"busiest node {busy[0]:.0%} to {busy[1]:.0%}, {crossing[0]:.1f} to {crossing[1]:.1f} MB/s between nodes"
