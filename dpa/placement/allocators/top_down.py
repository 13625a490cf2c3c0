"""TD: whole groups first, and parts of them only where they must be split (task allocation paper, section 4)."""

import math
from typing import Literal

from dpa.placement.model import Cluster, Link, Placement, TaskGraph
from dpa.placement.rooms import Rooms

Priority = Literal["significance", "traffic"]
"""What makes an edge come first: its traffic by the cost of its groups (equation 2), or its traffic."""


class TopDownAllocator:
    """A greedy walk over edges, the most significant first. Time depends on groups and nodes, not on tasks."""

    def __init__(self, priority: Priority = "significance") -> None:
        self._priority = priority

    def allocate(self, graph: TaskGraph, cluster: Cluster) -> Placement:
        rooms = Rooms(graph, cluster)
        for link in by_priority(graph, self._priority):
            one, other = link.upstream, link.downstream
            if rooms.left[one] and rooms.left[other]:
                _place_both(rooms, one, other)
            elif rooms.left[other]:
                _join(rooms, other, one)
            elif rooms.left[one]:
                _join(rooms, one, other)
            else:
                _fuse(rooms, one, other)
        return rooms.place_rest()


def by_priority(graph: TaskGraph, priority: Priority) -> list[Link]:

    def rank(link: Link) -> float:
        traffic = link.per_pair * graph.pairs(link.upstream, link.downstream)
        if priority == "traffic":
            return -traffic
        cost = graph.groups[link.upstream].cost + graph.groups[link.downstream].cost
        return -traffic / cost if cost else -math.inf if traffic else 0.0

    return sorted(graph.links, key=rank)


def _place_both(rooms: Rooms, one: int, other: int) -> None:
    """Place what is left of two groups side by side, in balanced splits where one node does not hold all."""
    while rooms.left[one] and rooms.left[other]:
        few, many = (one, other) if rooms.left[one] <= rooms.left[other] else (other, one)
        node = rooms.roomiest()
        tasks = _split(rooms, few, many, node)
        if not all(tasks):
            return
        rooms.place(few, tasks[0], node)
        rooms.place(many, tasks[1], node)


def _split(rooms: Rooms, few: int, many: int, node: int) -> tuple[int, int]:
    left, cost = rooms.left, rooms.task_cost
    if rooms.fits(cost[few] * left[few] + cost[many] * left[many], node):
        return left[few], left[many]
    # Algorithm 5 slices both groups at k; its text says that a balanced split has floor(|v_j| / |v_i|) tasks of the
    # larger group for each of the smaller one, as it is here.
    ratio = left[many] // left[few]
    splits = rooms.most(cost[few] + ratio * cost[many], node, left[few])  # k of the paper; its denominator is sigma
    if splits:
        return splits, splits * ratio
    # The printed algorithm 5 does not end where not even one balanced split fits the roomiest node (k = 0, and it calls
    # itself with what it was given). To stop would leave tasks apart that belong together: so one task of the smaller
    # group goes with as many of the larger one as fit, and only where that fails too the rest waits.
    if not rooms.fits(cost[few], node):
        return 0, 0
    return 1, rooms.most(cost[many], node, left[many], beside=cost[few])


def _join(rooms: Rooms, group: int, placed: int) -> None:
    """Place as many tasks as fit beside those of a placed group, where most of these are first."""
    hosts = rooms.counts[placed]  # algorithm 5 looks at the best host alone; its text says all
    for node in sorted(hosts, key=lambda node: (-hosts[node], node)):
        if not rooms.left[group]:
            return
        rooms.place(group, rooms.most(rooms.task_cost[group], node, rooms.left[group]), node)


def _fuse(rooms: Rooms, one: int, other: int) -> None:
    """Put the nodes of two groups together, if each is on one node and one node can hold both."""
    hosts = [*rooms.counts[one], *rooms.counts[other]]
    if len(hosts) == 2:
        rooms.fuse(*hosts)
