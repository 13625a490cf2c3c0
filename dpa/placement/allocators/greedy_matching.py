"""GMA, the elastic allocator's greedy matching (IV-E, algorithm 1).

The printed algorithm assigns an operator to every node in turn that improves the objective, without undoing the one
before; here the operator has one node, that which improves the objective most. The paper's first objective,
utilisation, cannot choose among nodes: an operator adds the same to the sum wherever it is. So this goes by its second
one, the deviation R_dev."""

import numpy as np
import numpy.typing as npt

from dpa.placement.model import SLACK, Cluster, Placement, TaskGraph
from dpa.placement.objectives import Unevenness
from dpa.placement.rooms import Rooms
from dpa.placement.scores import Floats

LIGHT, MODERATE = 0.4, 0.8
"""Use of the busier resource below which a node's load is light, and below which it is moderate; else it is heavy."""

_BOUND = 0.8  # use of processors and of bandwidth that no node exceeds while another can be found


class GreedyMatchingAllocator:
    """Task after task, in the order of the graph, on light nodes first and then on moderate ones."""

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        matching = _Matching(graph, cluster)
        for group in range(len(graph.groups)):
            while matching.rooms.left[group] and (node := matching.evenest_node(group)) is not None:
                matching.place(group, node)
        return matching.rooms.place_rest()


class _Matching:
    """How much every node uses, and would use with one more task. Peers without a node count as being elsewhere."""

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        self.rooms, self.objective = Rooms(graph, cluster), Unevenness(graph, cluster)
        self._nodes = np.arange(len(cluster.nodes))
        self.contents = np.zeros((len(cluster.nodes), len(graph.groups)))
        self.use = self.objective.use(self.contents)

    def place(self, group: int, node: int) -> None:
        self.rooms.place(group, 1, node)
        self.use[node] += self.objective.use_of_one_more(self.contents[[node]], group)[0]
        self.contents[node, group] += 1

    def evenest_node(self, group: int) -> int | None:
        """Of the light nodes that stay within the bounds with one more task, else of the moderate ones, the one with
        which use deviates least (R_dev), of processors and of bandwidth added up."""
        load, network = self.objective.parts(self.use, self._nodes)
        level = np.maximum(load, network)
        after = self._with(group)
        allowed = self._allowed(after)
        then = self.objective.parts(after, self._nodes)
        for low, high in ((-np.inf, LIGHT), (LIGHT, MODERATE)):
            feasible = np.flatnonzero(allowed & (level >= low) & (level < high))
            if len(feasible):
                spread = _deviation(load, then[0]) + _deviation(network, then[1])
                return int(feasible[spread[feasible].argmin()])
        return None

    def _with(self, group: int) -> Floats:
        return self.use + self.objective.use_of_one_more(self.contents, group)

    def _allowed(self, after: Floats) -> npt.NDArray[np.bool_]:
        load, network = self.objective.parts(after, self._nodes)
        peaks, _ = self.objective.worth(after, self._nodes)
        allowed: npt.NDArray[np.bool_] = (np.maximum(load, network) <= _BOUND + SLACK) & np.isfinite(peaks)
        return allowed


def _deviation(use: Floats, then: Floats) -> Floats:
    """sqrt(sum (R_i - R_avg)^2), for each node with its use as in `then` and that of all others as now."""
    mean = (use.sum() - use + then) / len(use)
    squares = np.square(use).sum() - np.square(use) + np.square(then)
    spread: Floats = np.sqrt(np.maximum(0.0, squares - len(use) * np.square(mean)))
    return spread
