"""What a placement is worth, in one set of functions for all allocators.

As every task of a group talks to every task of a connected group, what a node sends and receives follows from its own
tasks alone. Shapes: a figure a node is a vector as long as the cluster."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpa.placement.model import SLACK, Cluster, Counts, Placement, TaskGraph

Floats = npt.NDArray[np.float64]


def utilisation(placement: Placement) -> Floats:
    """The busy part of each node's processors; above 1 a node cannot keep up (the elastic allocator's load, IV-A)."""
    reserved, capacity = np.array([(node.reserved, node.capacity) for node in placement.cluster.nodes]).T
    part: Floats = (reserved + task_costs(placement.graph) @ placement.counts) / capacity
    return part


def busy(placement: Placement) -> Floats:
    """The part of each node's processors for tasks that the placed ones keep busy."""
    part: Floats = task_costs(placement.graph) @ placement.counts / rooms(placement.cluster)
    return part


def overloaded(placement: Placement) -> list[int]:
    return np.flatnonzero(utilisation(placement) > 1 + SLACK).tolist()


def kept_traffic(placement: Placement) -> float:
    """Bytes a second inside nodes (task allocation paper, the gain phi of 2.2)."""
    counts = placement.counts
    return math.fsum(
        link.per_pair * float(counts[link.upstream] @ counts[link.downstream]) for link in placement.graph.links
    )


def crossing_traffic(placement: Placement) -> float:
    return max(0.0, placement.graph.traffic - kept_traffic(placement))


def sent(placement: Placement) -> Floats:
    return _crossing(placement.graph, placement.counts)[0]


def received(placement: Placement) -> Floats:
    return _crossing(placement.graph, placement.counts)[1]


def throughput(placement: Placement) -> float:
    """The multiple of the graph's rate that the busiest resource allows (N-Storm, equation 3); the job falls behind
    below 1."""
    free = np.array([node.bandwidth - node.reserved_bandwidth for node in placement.cluster.nodes])
    used = np.maximum(sent(placement), received(placement)) / free
    worst = float(np.maximum(busy(placement), used).max())
    return math.inf if worst == 0 else 1 / worst


def dearest_first(costs: Sequence[float] | Floats) -> list[int]:
    return sorted(range(len(costs)), key=lambda at: -costs[at])


def task_costs(graph: TaskGraph) -> Floats:
    """Processors that one task of each group keeps busy."""
    return np.array([group.task_cost for group in graph.groups])


def rooms(cluster: Cluster) -> Floats:
    """Processors for tasks on each node."""
    return np.array([node.room for node in cluster.nodes])


def _crossing(graph: TaskGraph, counts: Counts) -> tuple[Floats, Floats]:
    out, into = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])
    for link in graph.links:
        ours, theirs = counts[link.upstream], counts[link.downstream]
        out += link.per_pair * ours * (graph.groups[link.downstream].tasks - theirs)
        into += link.per_pair * theirs * (graph.groups[link.upstream].tasks - ours)
    return out, into
