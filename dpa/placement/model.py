"""What is placed, and where: task groups that exchange records, nodes that bear tasks, and a placement on them.

The model of the task allocation paper (2.1, 2.2), whose groups' tasks are alike, so that a placement is a table of
counts and needs no list of tasks. Every task of a group talks to every task of a group that it has an edge with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal, Protocol

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from dpa.errors import PlacementError

Counts = npt.NDArray[np.int64]
"""Tasks of each group (row) on each node (column)."""

SLACK = 1e-9
"""By which part of a node's capacity rounding may exceed it."""


@dataclass(frozen=True, kw_only=True)
class OnlineOptions:
    """How a placement follows what is measured while the job runs."""

    policy: Literal["improve", "replan"] | str = "improve"
    """`improve`: move the tasks that make the placement better; `replan`: all that the section's `allocator` would put
    elsewhere; or `package.module:Name` of your own."""
    seconds: Annotated[float, Ge(1), Le(3600)] = 5.0
    """Seconds between two looks at the placement (N-Storm's cycle)."""


@dataclass(frozen=True)
class TaskGroup:
    """The tasks of a stage, or those of them that are alike. `cost`: processors that all of them together keep busy at
    the graph's rate (the paper's c^pc, there in percent)."""

    name: str
    tasks: int
    cost: float

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise PlacementError(f"task group {self.name!r} has {self.tasks} tasks; it needs at least 1")
        if not 0 <= self.cost < math.inf:
            raise PlacementError(f"task group {self.name!r} costs {self.cost} processors; it must be 0 or more")

    @property
    def task_cost(self) -> float:
        """Processors that one task keeps busy (equation 1)."""
        return self.cost / self.tasks


@dataclass(frozen=True)
class GroupEdge:
    """Records that flow from one group to another. `traffic`: bytes a second between all pairs of their tasks together
    (the paper's c^imc)."""

    upstream: str
    downstream: str
    traffic: float

    def __post_init__(self) -> None:
        if self.upstream == self.downstream:
            raise PlacementError(f"an edge leads from task group {self.upstream!r} to itself")
        if not 0 <= self.traffic < math.inf:
            raise PlacementError(
                f"{self.upstream!r} sends {self.downstream!r} {self.traffic} bytes/s; must be 0 or more"
            )


def _names(whole: str, part: str, parts: Sequence[TaskGroup | Node]) -> list[str]:
    names = [each.name for each in parts]
    if not names:
        raise PlacementError(f"{whole} needs at least one {part}")
    if len(set(names)) < len(names):
        raise PlacementError(f"{part}s need different names; these are {', '.join(names)}")
    return names


@dataclass(frozen=True)
class TaskGraph:
    """A job: its task groups, sources first, and what flows between them."""

    groups: tuple[TaskGroup, ...]
    edges: tuple[GroupEdge, ...] = ()

    def __post_init__(self) -> None:
        names = _names("a graph", "task group", self.groups)
        for edge in self.edges:
            for name in (edge.upstream, edge.downstream):
                if name not in names:
                    raise PlacementError(f"an edge leads to or from {name!r}; the task groups are {', '.join(names)}")

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Several edges between two groups are one link."""
        number = {group.name: place for place, group in enumerate(self.groups)}
        traffic: dict[tuple[int, int], float] = {}
        for edge in self.edges:
            ends = number[edge.upstream], number[edge.downstream]
            traffic[ends] = traffic.get(ends, 0.0) + edge.traffic
        return tuple(Link(one, other, amount / self.pairs(one, other)) for (one, other), amount in traffic.items())

    def pairs(self, one: int, other: int) -> int:
        return self.groups[one].tasks * self.groups[other].tasks

    def scaled(self, factor: float) -> TaskGraph:
        groups = [replace(group, cost=group.cost * factor) for group in self.groups]
        return TaskGraph(tuple(groups), tuple(replace(edge, traffic=edge.traffic * factor) for edge in self.edges))

    @property
    def cost(self) -> float:
        return sum(group.cost for group in self.groups)

    @property
    def traffic(self) -> float:
        """Bytes a second, also between tasks on one node."""
        return sum(edge.traffic for edge in self.edges)

    @property
    def tasks(self) -> int:
        return sum(group.tasks for group in self.groups)


@dataclass(frozen=True)
class Link:
    """An edge by the numbers of its groups, with the bytes a second between a task of one and a task of the other."""

    upstream: int
    downstream: int
    per_pair: float


@dataclass(frozen=True)
class Node:
    """A machine.

    Attributes:
        capacity: its processors, in those of the machine that costs were measured on: a node twice as fast has twice
            as many (task allocation paper, section 5).
        reserved: processors that others use (the elastic allocator's C0).
        bandwidth: bytes a second that it can send, and as many that it can receive.
        reserved_bandwidth: of these, what others use (B0).
    """

    name: str
    capacity: float
    reserved: float = 0.0
    bandwidth: float = math.inf
    reserved_bandwidth: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.reserved < self.capacity < math.inf:
            raise PlacementError(
                f"node {self.name!r} has {self.capacity:g} processors and reserves {self.reserved:g}; some must be left"
            )
        if not 0 <= self.reserved_bandwidth < self.bandwidth:
            raise PlacementError(
                f"node {self.name!r} has a bandwidth of {self.bandwidth:g} bytes/s and "
                f"reserves {self.reserved_bandwidth:g}; some must be left"
            )

    @property
    def room(self) -> float:
        """Processors for tasks (the paper's mu)."""
        return self.capacity - self.reserved

    @property
    def kind(self) -> tuple[float, float, float, float]:
        """What an allocator goes by; nodes of one kind can change places."""
        return self.capacity, self.reserved, self.bandwidth, self.reserved_bandwidth


@dataclass(frozen=True)
class Cluster:
    """Nodes, each connected with each."""

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        _names("a cluster", "node", self.nodes)

    @classmethod
    def alike(cls, nodes: int, capacity: float, bandwidth: float = math.inf) -> Cluster:
        return cls(tuple(Node(f"node {number}", capacity, bandwidth=bandwidth) for number in range(nodes)))

    @property
    def room(self) -> float:
        return sum(node.room for node in self.nodes)


@dataclass(frozen=True, eq=False)
class Placement:
    """How many tasks of each group are on each node (`counts`: groups x nodes); every task is on one node."""

    graph: TaskGraph
    cluster: Cluster
    counts: Counts = field(repr=False)

    def __post_init__(self) -> None:
        expected = [group.tasks for group in self.graph.groups]
        if self.counts.shape != (len(expected), len(self.cluster.nodes)):
            raise PlacementError(f"counts have the shape {self.counts.shape}, not groups x nodes")
        if (self.counts < 0).any() or self.counts.sum(axis=1).tolist() != expected:
            raise PlacementError(f"tasks placed: {self.counts.sum(axis=1).tolist()}; the groups have {expected}")
        self.counts.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        return (self.graph, self.cluster) == (other.graph, other.cluster) and bool((self.counts == other.counts).all())

    def __hash__(self) -> int:
        return hash((self.graph, self.cluster, self.counts.tobytes()))

    def nodes_of(self, group: int) -> tuple[int, ...]:
        """The node of each task of a group, tasks in the order of nodes."""
        return tuple(np.repeat(np.arange(self.counts.shape[1]), self.counts[group]).tolist())


class Allocator(Protocol):
    """Places the tasks of a graph on the nodes of a cluster.

    The same question gets the same answer, in every process: chance comes from a seed."""

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        """A placement of all tasks that exceeds no node's room. Raises PlacementError, which says what is lacking, if
        none is found."""
        ...
