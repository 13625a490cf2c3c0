"""The placement papers' algorithms and ours, one file each, by the names that a job file uses."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from dpa.placement.model import Allocator


def _made(module: str, name: str) -> Allocator:
    allocator: Allocator = getattr(import_module(f"{__name__}.{module}"), name)()
    return allocator


ALLOCATORS: Mapping[str, Callable[[], Allocator]] = {
    "even": partial(_made, "by_task", "EvenAllocator"),
    "random": partial(_made, "by_task", "RandomAllocator"),
    "task_level": partial(_made, "by_task", "TaskLevelAllocator"),
    "top_down": partial(_made, "top_down", "TopDownAllocator"),
    "top_down_search": partial(_made, "search", "TopDownSearchAllocator"),
    "greedy_matching": partial(_made, "greedy_matching", "GreedyMatchingAllocator"),
    "greedy_matching_improved": partial(_made, "search", "ImprovedGreedyMatchingAllocator"),
    "exact": partial(_made, "exact", "ExactAllocator"),
    "pairwise": partial(_made, "search", "PairwiseAllocator"),
}
"""All allocators with their defaults. An allocator is imported when it is made: most jobs place no tasks."""

__all__ = ["ALLOCATORS", "Allocator"]
