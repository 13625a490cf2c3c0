"""The machines on which tasks can be, and what says on which of them each task is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # no task needs what plans where tasks are
    from dpa.placement.online import OnlinePlacement


@dataclass(frozen=True)
class BackendNode:
    """A machine.

    Attributes:
        id: how the backend numbers it.
        name: how users name it.
    """

    id: str
    name: str
    processors: float


@dataclass(frozen=True)
class TaskProcess:
    """The process of a task: the `id` of its node, and its number there."""

    node: str
    pid: int


NodesOfStages = Mapping[str, Sequence[str]]
"""The node of each task, by its stage; nodes by their `id`."""


@dataclass(frozen=True)
class Placed:
    """Where the tasks of a job are at first, and how they are placed again while it runs; `online` None: they stay."""

    nodes: NodesOfStages
    online: OnlinePlacement | None = None


Placer = Callable[[Sequence[BackendNode]], Placed]
"""Chooses the nodes of a job's tasks among those that are there."""
