"""Where searches begin: with whatever quick allocators give, and where all refuse, with a packing that looks at room
alone."""

from __future__ import annotations

from collections.abc import Sequence

from dpa.errors import PlacementError
from dpa.placement._packing import evenly_packed, filled
from dpa.placement.allocators.base import Allocator
from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Cluster, Counts, TaskGraph
from dpa.placement.scores import overloaded

QUICK: Sequence[Allocator] = (
    TopDownAllocator(),
    TopDownAllocator("traffic"),
    EvenAllocator(),
    GreedyMatchingAllocator(),
)
"""None is dear, and each is best, or the only one that finds room, somewhere."""


def starts(graph: TaskGraph, cluster: Cluster, allocators: Sequence[Allocator] = QUICK) -> list[Counts]:
    """Placements within every node's room (groups x nodes), each once and at least one.

    Raises:
        PlacementError: none was found; says what the first allocator lacks.
    """
    found: dict[bytes, Counts] = {}
    refusals: list[PlacementError] = []
    for allocator in allocators:
        try:
            counts = allocator.allocate(graph, cluster).counts
        except PlacementError as error:
            refusals.append(error)
        else:
            found.setdefault(counts.tobytes(), counts)
    if found:
        return list(found.values())
    packing = evenly_packed(graph, cluster)
    if not overloaded(packing):
        return [packing.counts]
    if (full := filled(graph, cluster)) is None:
        raise refusals[0]
    return [full]
