"""The machines on which tasks can be, and what says on which of them each task is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


Amounts = Mapping[str, float]
"""Amounts of resources by the names that Ray has for them, such as `CPU`; none is 0."""


@dataclass(frozen=True)
class Resources:
    """What a task requests of its node.

    Attributes:
        cpus: processors; None: the cluster's default.
        memory: bytes.
        custom: amounts of other resources, by the names that Ray has for them.
    """

    cpus: float | None = None
    memory: int = 0
    custom: Mapping[str, float] = field(default_factory=dict)

    def amounts(self, cpus: float = 0.0) -> Amounts:
        """`cpus`: the default."""
        found = {"CPU": cpus if self.cpus is None else self.cpus, "memory": self.memory, **self.custom}
        return {name: amount for name, amount in found.items() if amount}

    def __str__(self) -> str:
        return in_words(self.amounts())


def in_words(amounts: Amounts) -> str:
    """As `2 CPUs, 4 GiB of memory, 1 license`."""
    words = {"CPU": "CPU" if amounts.get("CPU") == 1 else "CPUs", "memory": "GiB of memory"}
    each = {name: amount / 2**30 if name == "memory" else amount for name, amount in amounts.items()}
    return ", ".join(f"{amount:g} {words.get(name, name)}" for name, amount in each.items()) or "nothing"


@dataclass(frozen=True)
class JobDemand:
    """What the tasks of a job request.

    Attributes:
        tasks: how many each stage has at first.
        each: what each of them requests, by stage.
        group: the strategy of the placement group that they are in; None: they are in none.
    """

    tasks: Mapping[str, int]
    each: Mapping[str, Resources]
    group: str | None = None


@dataclass(frozen=True)
class TaskProcess:
    """The process of a task: the `id` of its node, and its number there."""

    node: str
    pid: int


NodesOfStages = Mapping[str, Sequence[str]]  # the node of each task, by its stage; nodes by their `id`


@dataclass(frozen=True)
class Placed:
    """Where the tasks of a job are at first, and how they are placed again while it runs; `online` None: they stay."""

    nodes: NodesOfStages
    online: OnlinePlacement | None = None


Placer = Callable[[Sequence[BackendNode]], Placed]
"""Chooses the nodes of a job's tasks among those that are there."""
