"""The placement papers' algorithms and ours, one file each, by the names that a job file uses."""

from collections.abc import Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any

from dpa.placement.model import Allocator

ALLOCATORS: Mapping[str, str] = {
    "even": f"{__name__}.even:EvenAllocator",
    "top_down": f"{__name__}.top_down:TopDownAllocator",
    "top_down_search": f"{__name__}.search:TopDownSearchAllocator",
    "greedy_matching": f"{__name__}.greedy_matching:GreedyMatchingAllocator",
    "greedy_matching_improved": f"{__name__}.search:ImprovedGreedyMatchingAllocator",
}
"""Those that have a name, and where they are."""


def allocator_of(name: str) -> Allocator:
    """The allocator of a name, or that of the user's which is `package.module:Name`: an object, or a class that is made
    without arguments. It is imported only now: most jobs place no tasks."""
    found = resolved(ALLOCATORS.get(name, name))
    allocator: Allocator = found() if isinstance(found, type) else found
    return allocator


def resolved(name: str) -> Any:
    """What `package.module:Name` names."""
    module, _, attribute = name.partition(":")
    return attrgetter(attribute)(import_module(module))


__all__ = ["ALLOCATORS", "Allocator", "allocator_of"]
