"""What allocators that search minimise: a sum over nodes of what each one's own tasks are worth.

As every task of a group talks to every task of a connected one, a node's load and traffic follow from its own tasks
alone. So every objective here is a sum over nodes, or a greatest one, or both; to judge an exchange between two nodes,
no other has to be looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from dpa.placement.model import SLACK, Cluster, Counts, TaskGraph
from dpa.placement.scores import DELAYS, Delays, Floats, rooms, task_costs

Nodes = npt.NDArray[np.int64]


class Objective(ABC):
    """A figure to be minimised: that of the worst node, plus a sum over all nodes."""

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        self.graph, self.cluster = graph, cluster
        self._costs = task_costs(graph)
        self._rooms = rooms(cluster)
        links = graph.links
        self._upstream = np.array([link.upstream for link in links], dtype=np.int64)
        self._downstream = np.array([link.downstream for link in links], dtype=np.int64)
        self._per_pair = np.array([link.per_pair for link in links])
        # Bytes a second that a task of each group sends and receives in all.
        self._sends, self._receives = np.zeros(len(graph.groups)), np.zeros(len(graph.groups))
        for link in links:
            self._sends[link.upstream] += link.per_pair * graph.groups[link.downstream].tasks
            self._receives[link.downstream] += link.per_pair * graph.groups[link.upstream].tasks

    @abstractmethod
    def of_nodes(self, contents: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """What each node would be worth.

        Args:
            contents: candidates x groups, the tasks that a node would have.
            nodes: for each candidate, the node.

        Returns:
            For each candidate, what counts if it is the worst node's (infinite where there is no room), and what is
            added up.
        """

    @property
    def guide(self) -> Objective:
        """What a search had better minimise first, so that it does not stop early; by default this."""
        return self

    def value(self, counts: Counts) -> float:
        """The objective of a whole placement, given as groups x nodes."""
        peaks, sums = self.of_nodes(counts.T.astype(float), np.arange(counts.shape[1]))
        return float(peaks.max() + sums.sum())

    def _busy(self, contents: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """The used part of each node's room, and 0, or infinity where that is more than all."""
        used: Floats = contents @ self._costs / self._rooms[nodes]
        return used, np.where(used > 1 + SLACK, np.inf, 0.0)

    def _kept_pairs(self, contents: Floats) -> Floats:
        """For each candidate and link, the pairs of tasks that are on the node."""
        kept: Floats = contents[:, self._upstream] * contents[:, self._downstream]
        return kept

    def _network(self, contents: Floats, kept_pairs: Floats) -> Floats:
        """Bytes a second between each node and the others, in the busier direction."""
        kept = kept_pairs @ self._per_pair
        traffic: Floats = np.maximum(contents @ self._sends, contents @ self._receives) - kept
        return traffic


class Fullness(Objective):
    """The used part of the fullest node's room, which may be more than all, and a little of the others'."""

    _EVENNESS = 1e-3

    def of_nodes(self, contents: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """As `Objective.of_nodes`."""
        used = self._busy(contents, nodes)[0]
        return used, self._EVENNESS / len(self._rooms) * np.square(used)


class KeptTraffic(Objective):
    """Minus the bytes a second that stay inside nodes (task allocation paper, phi of 2.2)."""

    def of_nodes(self, contents: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """As `Objective.of_nodes`."""
        return self._busy(contents, nodes)[1], -(self._kept_pairs(contents) @ self._per_pair)


class Unevenness(Objective):
    """The sum of squares of every node's busy part, of processors and of bandwidth.

    Processors' part differs from the squared deviation of the elastic allocator (IV-C) by a constant, as the load to be
    shared is given. Of bandwidth also the total is to be small, not only its spread.
    """

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        super().__init__(graph, cluster)
        nodes = cluster.nodes
        self._capacity = np.array([node.capacity for node in nodes])
        self._reserved = np.array([node.reserved for node in nodes])
        self._bandwidth = np.array([node.bandwidth for node in nodes])
        self._reserved_bandwidth = np.array([node.reserved_bandwidth for node in nodes])

    def of_nodes(self, contents: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """As `Objective.of_nodes`."""
        load, network = self.use_of_nodes(contents, nodes)
        return self._busy(contents, nodes)[1], np.square(load) + np.square(network)

    def use_of_nodes(self, contents: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """The used part of each node's processors and of its bandwidth, what others use among it."""
        load = (self._reserved[nodes] + contents @ self._costs) / self._capacity[nodes]
        traffic = self._network(contents, self._kept_pairs(contents))
        return load, (self._reserved_bandwidth[nodes] + traffic) / self._bandwidth[nodes]


class Makespan(Objective):
    """Seconds until the records of `seconds` are processed (`dpa.placement.scores.makespan`).

    Args:
        evenness: what the mean square of the nodes' busy parts counts besides, in the time of one node that is busy all
            the time: of two placements that are equally slow, the evener one is closer to a faster one.
    """

    _EVENNESS_OF_GUIDE = 1e-3

    def __init__(
        self,
        graph: TaskGraph,
        cluster: Cluster,
        seconds: float = 60.0,
        delays: Delays = DELAYS,
        evenness: float = 0.0,
    ) -> None:
        super().__init__(graph, cluster)
        self._seconds, self._delays = seconds, delays
        self._bandwidth = np.array([node.bandwidth - node.reserved_bandwidth for node in cluster.nodes])
        pairs = np.array([graph.pairs(link.upstream, link.downstream) for link in graph.links], dtype=float)
        self._saved = (delays.network - delays.local) / pairs
        self._evenness = evenness * seconds / len(cluster.nodes)

    @property
    def guide(self) -> Makespan:
        """The same with a little for evenness."""
        return Makespan(self.graph, self.cluster, self._seconds, self._delays, self._EVENNESS_OF_GUIDE)

    def of_nodes(self, contents: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """As `Objective.of_nodes`."""
        used, impossible = self._busy(contents, nodes)
        kept_pairs = self._kept_pairs(contents)
        busiest = np.maximum(used, self._network(contents, kept_pairs) / self._bandwidth[nodes])
        return (
            self._seconds * busiest + impossible,
            self._evenness * np.square(busiest) - kept_pairs @ self._saved,
        )
