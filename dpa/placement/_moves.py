"""Which tasks stay when a placement follows another, and the choice among equal nodes that lets most of them stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpa.placement.model import Cluster, Counts


def aligned(cluster: Cluster, counts: Counts, current: Counts) -> Counts:
    """The same placement (groups x nodes) with nodes of one kind exchanged, so that many tasks stay where they are now.

    Pairs of an old and a new node with most tasks in common are matched first, which is not always the least number of
    moves.
    """
    common = np.minimum(counts[:, :, None], current[:, None, :]).sum(axis=0)  # new x old
    kinds = [node.kind for node in cluster.nodes]
    common[np.array([[one != other for other in kinds] for one in kinds])] = -1
    found = np.empty_like(counts)
    for _ in kinds:
        new, old = np.unravel_index(int(common.argmax()), common.shape)
        found[:, old] = counts[:, new]
        common[new], common[:, old] = -1, -1
    return found


def reassigned(nodes: Sequence[int], counts: Counts) -> list[int]:
    """The node of each task of a group that has `counts` tasks on each node, given where they are: as many as possible
    stay, and the others fill what is left."""
    left = counts.tolist()
    kept: list[int | None] = []
    for node in nodes:
        stays = left[node] > 0
        left[node] -= stays
        kept.append(node if stays else None)
    free = iter([node for node, tasks in enumerate(left) for _ in range(tasks)])
    return [next(free) if node is None else node for node in kept]
