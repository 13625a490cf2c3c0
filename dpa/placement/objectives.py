"""What allocators that search minimise: a sum over nodes of what each one's own tasks are worth.

As every task of a group talks to every task of a connected one, a node's load and traffic follow from its own tasks
alone. So every objective here is a sum over nodes, or a greatest one, or both; to judge an exchange between two nodes,
no other has to be looked at."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from dpa.placement.model import SLACK, Cluster, Counts, TaskGraph
from dpa.placement.scores import Floats, rooms, task_costs

Nodes = npt.NDArray[np.int64]


class Objective(ABC):
    """A figure to be minimised: that of the worst node, plus a sum over all nodes."""

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        self.graph, self.cluster = graph, cluster
        self._rooms = rooms(cluster)
        links = graph.links
        self._ends = np.array([(link.upstream, link.downstream) for link in links], dtype=np.int64).reshape(-1, 2)
        self._a_pair = np.array([[link.per_pair] for link in links]).reshape(-1, 1)  # what a pair on a node keeps there
        # Of a task of each group: its processors, and the bytes a second that it sends and receives in all.
        self._a_task = np.zeros((len(graph.groups), 3))
        self._a_task[:, 0] = task_costs(graph)
        self._peers: list[list[tuple[int, int]]] = [[] for _ in graph.groups]  # of each group, and by which link
        for number, link in enumerate(links):
            for ours, theirs, way in ((link.upstream, link.downstream, 1), (link.downstream, link.upstream, 2)):
                self._peers[ours].append((theirs, number))
                self._a_task[ours, way] += link.per_pair * graph.groups[theirs].tasks

    @abstractmethod
    def worth(self, use: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """For each candidate, what counts if it is the worst node's (infinite where there is no room), and what is
        added up. `use`: of each candidate, as `use` returns it; `nodes`: the node of each."""

    def use(self, contents: Floats, groups: Nodes | None = None) -> Floats:
        """What a node's tasks use (candidates x figures): processors, bytes a second sent and received in all, and what
        pairs of them are worth that stay inside, first in bytes a second. `contents`: candidates x groups; of `groups`
        alone, in order, where no candidate has any of the others."""
        ends, a_pair, a_task = self._ends, self._a_pair, self._a_task
        if groups is not None and len(groups) < len(a_task):
            place = np.full(len(a_task), -1)
            place[groups] = np.arange(len(groups))
            inside = (place[ends] >= 0).all(axis=1)
            ends, a_pair, a_task = place[ends[inside]], a_pair[inside], a_task[groups]
        pairs = contents[:, ends[:, 0]] * contents[:, ends[:, 1]]
        return np.concatenate([contents @ a_task, pairs @ a_pair], axis=1)

    @staticmethod
    def network(use: Floats) -> Floats:
        """Bytes a second between each node and the others, in the busier direction."""
        return np.asarray(np.maximum(use[:, 1], use[:, 2]) - use[:, 3])

    def use_of_one_more(self, contents: Floats, group: int) -> Floats:
        """What one more task of a group adds to `use(contents)`."""
        peers, links = np.array(self._peers[group], dtype=np.int64).reshape(-1, 2).T
        alone = np.broadcast_to(self._a_task[group], (len(contents), 3))
        return np.concatenate([alone, contents[:, peers] @ self._a_pair[links]], axis=1)

    def value(self, counts: Counts) -> float:
        """Of a whole placement (groups x nodes)."""
        peaks, sums = self.worth(self.use(counts.T.astype(float)), np.arange(counts.shape[1]))
        return float(peaks.max() + sums.sum())

    def _busy(self, use: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """The used part of each node's room, and 0, or infinity where that is more than all."""
        used: Floats = use[:, 0] / self._rooms[nodes]
        return used, np.where(used > 1 + SLACK, np.inf, 0.0)


class Fullness(Objective):
    """The used part of the fullest node's room, which may be more than all, and a little of the others'."""

    _EVENNESS = 1e-3

    def worth(self, use: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        used = self._busy(use, nodes)[0]
        return used, self._EVENNESS / len(self._rooms) * np.square(used)


class KeptTraffic(Objective):
    """Minus the bytes a second that stay inside nodes (task allocation paper, phi of 2.2)."""

    def worth(self, use: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        return self._busy(use, nodes)[1], -use[:, 3]


class Unevenness(Objective):
    """The sum of squares of every node's busy part, of processors and of bandwidth.

    Processors' part differs from the squared deviation of the elastic allocator (IV-C) by a constant, as the load to be
    shared is given. Of bandwidth the total should be small too, not only its spread."""

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        super().__init__(graph, cluster)
        nodes = cluster.nodes
        self._capacity = np.array([node.capacity for node in nodes])
        self._reserved = np.array([node.reserved for node in nodes])
        self._bandwidth = np.array([node.bandwidth for node in nodes])
        self._reserved_bandwidth = np.array([node.reserved_bandwidth for node in nodes])

    def worth(self, use: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        load, network = self.parts(use, nodes)
        return self._busy(use, nodes)[1], np.square(load) + np.square(network)

    def parts(self, use: Floats, nodes: Nodes) -> tuple[Floats, Floats]:
        """The used part of each node's processors and of its bandwidth, what others use among it."""
        load = (self._reserved[nodes] + use[:, 0]) / self._capacity[nodes]
        return load, (self._reserved_bandwidth[nodes] + self.network(use)) / self._bandwidth[nodes]
