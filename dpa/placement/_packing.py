"""Tasks packed by what they cost alone, so that the fullest node is as empty as can be."""

from __future__ import annotations

import numpy as np

from dpa.placement._descent import Budget, Descent
from dpa.placement.model import SLACK, Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import Fullness
from dpa.placement.scores import Floats, dearest_first, rooms, task_costs

_WORK = 750_000
"""Groups and links of the ways of dividing what two nodes have that are judged, at most."""

_ORDERS = 30
"""Orders of nodes by chance in which these are filled."""

_STEPS_A_NODE, _STEPS = 5_000, 200_000
"""Contents that are looked at for one node, and in all, about 0.5 us each."""


def evenly_packed(graph: TaskGraph, cluster: Cluster) -> Placement:
    """A placement whose fullest node, by the used part of its room, is nearly as empty as can be. Nodes may be
    overloaded."""
    counts = Descent(Fullness(graph, cluster), Budget(_WORK)).improve(_dearest_first(graph, cluster))
    return Placement(graph, cluster, counts)


def _dearest_first(graph: TaskGraph, cluster: Cluster) -> Counts:
    """The dearest tasks first, each on the node that is then least full (groups x nodes)."""
    costs, room = task_costs(graph), rooms(cluster)
    counts = np.zeros((len(costs), len(room)), dtype=np.int64)
    loads = np.zeros(len(room))
    for group in dearest_first(costs):
        tasks, cost = graph.groups[group].tasks, float(costs[group])
        if not cost:
            counts[group, 0] = tasks
            continue
        counts[group] = _sure(loads, room, cost, tasks)
        for _ in range(tasks - int(counts[group].sum())):
            counts[group, int(((loads + cost * (counts[group] + 1)) / room).argmin())] += 1
        loads += cost * counts[group]
    return counts


def _sure(loads: Floats, room: Floats, cost: float, tasks: int) -> Counts:
    """The tasks of one cost that each node gets for certain: those below the fullness that all nodes would have, were
    tasks as fine as water. Only the last few are then placed one by one."""
    fullness = loads / room
    order = np.argsort(fullness, kind="stable")
    levels = (np.cumsum(loads[order]) + tasks * cost) / np.cumsum(room[order])
    below = int(np.flatnonzero(fullness[order] <= levels)[-1])  # the nodes that the water reaches
    sure: Counts = np.floor(np.maximum(levels[below] * room - loads, 0.0) / cost * (1 - SLACK)).astype(np.int64)
    return sure


def filled(graph: TaskGraph, cluster: Cluster, seed: int = 0) -> Counts | None:
    """One node after the other filled to the brim, the dearest tasks first (the minimum bin slack heuristic), with
    nodes in several orders; groups x nodes, None where none of them works. It finds what nothing else does where nodes
    have just the room of their tasks."""
    costs, room = task_costs(graph), rooms(cluster)
    random, tasks = np.random.default_rng(seed), [group.tasks for group in graph.groups]
    orders = [np.argsort(-room, kind="stable"), np.argsort(room, kind="stable")]
    orders += [random.permutation(len(room)) for _ in range(_ORDERS)]
    filling = _Filling(costs.tolist())
    for order in orders:
        left, counts = list(tasks), np.zeros((len(costs), len(room)), dtype=np.int64)
        for node in order.tolist():
            counts[:, node] = chosen = filling.fullest(left, float(room[node]))
            left = [there - taken for there, taken in zip(left, chosen, strict=True)]
        if not any(left):
            return counts
        if filling.steps > _STEPS:
            break
    return None


class _Filling:
    """The fullest content of one node, by a search of depth first; `steps` are the contents looked at so far."""

    def __init__(self, costs: list[float]) -> None:
        self._costs = costs
        self._dearest = dearest_first(costs)
        self.steps = 0

    def fullest(self, left: list[int], room: float) -> list[int]:
        """Counts of each group, of those left, that use most of a room."""
        slack, until = SLACK * room, self.steps + _STEPS_A_NODE
        behind = [0.0] * (len(left) + 1)  # what all tasks from a place of the order on would use
        for place in reversed(range(len(left))):
            group = self._dearest[place]
            behind[place] = behind[place + 1] + self._costs[group] * left[group]
        best, most, used, place = [0] * len(left), -1.0, 0.0, 0
        chosen, trail = [0] * len(left), list[tuple[int, float]]()  # places with chosen tasks, and what was used before
        while self.steps <= until:
            self.steps += 1
            if used > most + slack:
                most, best = used, list(chosen)
            # What is chosen is worth going on with only if all that could still follow would beat the best.
            if place < len(left) and used + min(room - used, behind[place]) > most + slack:
                group = self._dearest[place]
                cost, free = self._costs[group], room - used + slack
                count = left[group] if cost * left[group] <= free else int(free / cost)
                trail += [(place, used)] * (count > 0)
            elif trail:  # one task less of the last group
                place, used = trail[-1]
                group = self._dearest[place]
                count = chosen[group] - 1
                if not count:
                    trail.pop()
            else:
                break
            chosen[group] = count
            used += self._costs[group] * count
            place += 1
        return best
