"""The placement papers' algorithms and ours, one file each, by the names that a job file uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpa.placement.allocators.base import Allocator
from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.exact import ExactAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator, ImprovedGreedyMatchingAllocator
from dpa.placement.allocators.local_search import TopDownSearchAllocator
from dpa.placement.allocators.online import OnlineAllocator
from dpa.placement.allocators.pairwise import PairwiseAllocator
from dpa.placement.allocators.random_order import RandomAllocator
from dpa.placement.allocators.task_level import TaskLevelAllocator
from dpa.placement.allocators.top_down import TopDownAllocator

ALLOCATORS: Mapping[str, Callable[[], Allocator]] = {
    "even": EvenAllocator,
    "random": RandomAllocator,
    "task_level": TaskLevelAllocator,
    "top_down": TopDownAllocator,
    "top_down_search": TopDownSearchAllocator,
    "greedy_matching": GreedyMatchingAllocator,
    "greedy_matching_improved": ImprovedGreedyMatchingAllocator,
    "online": OnlineAllocator,
    "exact": ExactAllocator,
    "pairwise": PairwiseAllocator,
}
"""All allocators with their defaults."""

__all__ = ["ALLOCATORS", "Allocator"]
