"""Which tasks stay when a placement follows another, and the choice among equal nodes that lets most of them stay."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from dpa.errors import PlacementError
from dpa.placement.model import Counts, Placement


@dataclass(frozen=True)
class Plan:
    """A placement with a number, which only grows: what tasks and nodes act on.

    Attributes:
        nodes: for each group, the node of each of its tasks.
    """

    number: int
    placement: Placement
    nodes: tuple[tuple[int, ...], ...]

    @classmethod
    def first(cls, placement: Placement) -> Plan:
        """Plan 0, in which a group's tasks are in the order of nodes."""
        groups = range(len(placement.graph.groups))
        return cls(0, placement, tuple(placement.nodes_of(group) for group in groups))

    def next(self, placement: Placement) -> Plan:
        """The next plan, in which as few tasks as possible are elsewhere.

        Raises:
            PlacementError: the placement is of other tasks or other nodes.
        """
        _require_same(placement, self.placement)
        kept = [_reassigned(self.nodes[group], placement.counts[group]) for group in range(len(self.nodes))]
        return Plan(self.number + 1, placement, tuple(kept))


def aligned(placement: Placement, current: Placement) -> Placement:
    """The same placement with nodes of one kind exchanged, so that many tasks stay where they are now.

    Pairs of an old and a new node with most tasks in common are matched first, which is not always the least number of
    moves.

    Raises:
        PlacementError: the current placement is of other tasks or other nodes.
    """
    _require_same(placement, current)
    common = np.minimum(placement.counts[:, :, None], current.counts[:, None, :]).sum(axis=0)  # new x old
    kinds = defaultdict(list)
    for node, each in enumerate(placement.cluster.nodes):
        kinds[each.kind].append(node)
    target = np.arange(len(placement.cluster.nodes))
    for alike in kinds.values():
        shared = common[np.ix_(alike, alike)]
        new_left, old_left = set(range(len(alike))), set(range(len(alike)))
        for flat in np.argsort(-shared, axis=None, kind="stable"):
            new, old = divmod(int(flat), len(alike))
            if new in new_left and old in old_left:
                target[alike[new]] = alike[old]
                new_left.remove(new)
                old_left.remove(old)
    counts = np.empty_like(placement.counts)
    counts[:, target] = placement.counts
    return Placement(placement.graph, placement.cluster, counts)


def _require_same(placement: Placement, current: Placement) -> None:
    """Check that two placements are of the same tasks on the same nodes, whatever these cost by now."""
    tasks = [[(group.name, group.tasks) for group in each.graph.groups] for each in (placement, current)]
    nodes = [[node.name for node in each.cluster.nodes] for each in (placement, current)]
    if tasks[0] != tasks[1] or nodes[0] != nodes[1]:
        raise PlacementError("the next plan must place the same task groups on the same nodes")


def _reassigned(nodes: tuple[int, ...], counts: Counts) -> tuple[int, ...]:
    """Each task where it is as far as `counts` allow; the others fill what is left."""
    left = counts.tolist()
    kept: list[int | None] = []
    for node in nodes:
        stays = left[node] > 0
        left[node] -= stays
        kept.append(node if stays else None)
    free = iter([node for node, tasks in enumerate(left) for _ in range(tasks)])
    return tuple(next(free) if node is None else node for node in kept)
