"""The placement papers' algorithms and ours, one file each, by the names that a job file uses."""

from collections.abc import Callable, Mapping

from dpa.placement.allocators.by_task import EvenAllocator, OnlineAllocator, RandomAllocator, TaskLevelAllocator
from dpa.placement.allocators.exact import ExactAllocator
from dpa.placement.allocators.greedy_matching import GreedyMatchingAllocator, ImprovedGreedyMatchingAllocator
from dpa.placement.allocators.search import PairwiseAllocator, TopDownSearchAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Allocator

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
