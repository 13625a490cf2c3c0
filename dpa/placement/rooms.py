"""What is placed and what room is left, while an allocator works: counts of tasks, never lists of them.

And tasks packed by what they cost alone, so that the fullest node is as empty as can be."""

import heapq
from collections.abc import Iterable

import numpy as np

from dpa._util.words import plural
from dpa.errors import PlacementError
from dpa.placement._descent import Budget, Descent
from dpa.placement.model import SLACK, Cluster, Counts, Placement, TaskGraph
from dpa.placement.objectives import Fullness
from dpa.placement.scores import Floats, dearest_first, rooms, task_costs

_WORK = 750_000  # groups and links of the ways of dividing what two nodes have that are judged, at most
_ORDERS = 30  # orders of nodes by chance in which these are filled
_STEPS_A_NODE, _STEPS = 5_000, 200_000  # contents that are looked at for one node, and in all, about 0.5 us each


class Rooms:
    """The room of each node, and the tasks that were given some of it.

    A step costs the logarithm of the number of nodes, however many tasks. Plain lists: there are more single accesses
    here than sums.

    Attributes:
        free: processors left on each node.
        counts: for each group, the tasks on each node that has any.
        left: for each group, the tasks that have no node.
        task_cost: for each group, the processors of one task.
    """

    def __init__(self, graph: TaskGraph, cluster: Cluster) -> None:
        self.graph, self.cluster = graph, cluster
        self._room = [node.room for node in cluster.nodes]
        self.free = list(self._room)
        self.counts: list[dict[int, int]] = [{} for _ in graph.groups]
        self.left = [group.tasks for group in graph.groups]
        self.task_cost = [group.task_cost for group in graph.groups]
        self._slack = [SLACK * room for room in self._room]
        self._roomiest = [(-room, node) for node, room in enumerate(self._room)]
        heapq.heapify(self._roomiest)

    def roomiest(self) -> int:
        """The node with most room; of several, the first."""
        heap = self._roomiest  # `_use` pushes each change: entries that are out of date go when they come up
        while -heap[0][0] != self.free[heap[0][1]]:
            heapq.heappop(heap)
        return heap[0][1]

    def fits(self, cost: float, node: int) -> bool:
        return cost <= self.free[node] + self._slack[node]

    def most(self, cost: float, node: int, wanted: int, beside: float = 0.0) -> int:
        """How many of `wanted` tasks of a cost a node has room for, beside something else of a cost."""
        room = self.free[node] + self._slack[node] - beside
        if cost * wanted <= room:
            return wanted
        return int(room / cost) if cost and room > 0 else 0

    def place(self, group: int, tasks: int, node: int) -> None:
        """Callers ask first whether there is room."""
        if tasks:
            on = self.counts[group]
            on[node] = on.get(node, 0) + tasks
            self.left[group] -= tasks
            self._use(node, self.task_cost[group] * tasks)

    def fuse(self, one: int, other: int) -> int | None:
        """Put all tasks of two nodes on the one with more room in all. Returns which; None if they do not fit."""
        if self._room[one] < self._room[other]:
            one, other = other, one
        moved = self._room[other] - self.free[other]
        if one == other or not self.fits(moved, one):
            return None
        for on in self.counts:
            if tasks := on.pop(other, 0):
                on[one] = on.get(one, 0) + tasks
        self._use(one, moved)
        self.free[other] = self._room[other]
        heapq.heappush(self._roomiest, (-self.free[other], other))
        return one

    def place_rest(self) -> Placement:
        """The dearest tasks first, each on the node with most room (task allocation paper, algorithm 3). Raises
        PlacementError if a task does not fit that node."""
        for group in dearest_first(self.task_cost):
            self._place_evenly(group)
        return self.placement()

    def placement(self) -> Placement:
        """Every task must be placed."""
        counts = np.zeros((len(self.counts), len(self.free)), dtype=np.int64)
        for row, on in zip(counts, self.counts, strict=True):
            for node, tasks in on.items():
                row[node] = tasks
        return Placement(self.graph, self.cluster, counts)

    def refusal(self, group: int) -> PlacementError:
        each, node = self.graph.groups[group], self.roomiest()
        return PlacementError(
            f"{self.left[group]} of {plural(each.tasks, 'task')} of {each.name!r} do not fit: one needs "
            f"{each.task_cost:.3g} processors, and node {self.cluster.nodes[node].name!r}, which has most room, has "
            f"{max(0.0, self.free[node]):.3g} left. All tasks need {self.graph.cost:.4g}, all nodes have "
            f"{self.cluster.room:.4g}: declare more capacity, or make the tasks smaller and more"
        )

    def _place_evenly(self, group: int) -> None:
        cost = self.task_cost[group]
        if self.left[group] > 2 * len(self.free) and cost:
            for node, tasks in self._below_level(cost, self.left[group]):
                self.place(group, min(tasks, self.left[group]), node)
        while self.left[group]:
            node = self.roomiest()
            if not self.fits(cost, node):
                raise self.refusal(group)
            self.place(group, 1, node)

    def _below_level(self, cost: float, tasks: int) -> Iterable[tuple[int, int]]:
        """How many tasks each node certainly gets if each goes to the node with most room: what brings it down to the
        level that all would have, were tasks as fine as water."""
        free = np.maximum(np.array(self.free), 0.0)
        order = np.sort(free)[::-1]
        levels = (np.cumsum(order) - tasks * cost) / np.arange(1, len(order) + 1)
        level = max(0.0, float(levels.max()))
        sure = np.floor(np.maximum(free - level, 0.0) / cost).astype(int)
        return [(int(node), int(sure[node])) for node in np.flatnonzero(sure)]

    def _use(self, node: int, cost: float) -> None:
        self.free[node] -= cost
        heapq.heappush(self._roomiest, (-self.free[node], node))


def refilled(graph: TaskGraph, cluster: Cluster, counts: Counts, random: np.random.Generator) -> Counts | None:
    """A step aside for searches: two or three nodes emptied, and their tasks placed on them again in a random order
    (groups x nodes). None if the tasks no longer fit."""
    used = np.flatnonzero(counts.any(axis=0))
    if len(used) < 2:
        return None
    emptied = random.choice(used, size=min(len(used), int(random.integers(2, 4))), replace=False)
    rooms = Rooms(graph, cluster)
    kept = counts.copy()
    kept[:, emptied] = 0
    for group, node in np.argwhere(kept):
        rooms.place(int(group), int(kept[group, node]), int(node))
    for group in random.permutation(len(graph.groups)).tolist():
        for node in random.permutation(emptied).tolist():
            rooms.place(group, rooms.most(rooms.task_cost[group], node, rooms.left[group]), node)
    if any(rooms.left):
        return None
    return rooms.placement().counts


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
