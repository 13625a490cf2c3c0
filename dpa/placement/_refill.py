"""A step aside for searches that end in a local optimum: a few nodes emptied and filled by chance."""

from __future__ import annotations

import numpy as np

from dpa.placement._rooms import Rooms
from dpa.placement.model import Cluster, Counts, TaskGraph


def refilled(graph: TaskGraph, cluster: Cluster, counts: Counts, random: np.random.Generator) -> Counts | None:
    """Two or three nodes emptied, and their tasks placed on them again, group after group in a random order.

    Returns:
        The new table (groups x nodes); None where the tasks no longer fit.
    """
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
