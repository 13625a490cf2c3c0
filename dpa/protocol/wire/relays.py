"""Relays: in a job of many tasks, messages to and from the coordinator pass through a few processes, several in a call.
Channels put messages in order, whichever way they came (`channel.py`)."""

import math
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from dpa.protocol.wire.addresses import RESERVED, Address, Present

M = TypeVar("M")
"""A message, in whichever form it travels."""

RELAYED_TASKS = 48
"""A job of no more tasks than this has no relays: its coordinator has some hundreds of messages a second, of the
2,500 that Ray carries of one caller."""

_TASKS_OF_A_RELAY = 96  # at most; each has some messages an epoch, in and out

RELAYED_BYTES = 2**16
"""Larger messages go directly: to copy one twice costs as much as a call."""

_GATHER_SECONDS = 0.005
"""What comes this soon after the first message goes with it: tasks answer a question of the coordinator's together."""

_BUNDLE_SECONDS = 0.04  # from one bundle to the next of the same relay


def relays_for(tasks: int) -> int:
    return 0 if tasks <= RELAYED_TASKS else math.ceil(tasks / _TASKS_OF_A_RELAY)


def relay_of(task: Address, relays: int) -> int | None:
    """The number of the relay between a task and the coordinator; None: they are direct."""
    return task.index % relays if relays and task.stage not in RESERVED else None


class Relay(Generic[M]):
    """One relay of one generation. Moments are in seconds, of any clock."""

    def __init__(self) -> None:
        self._due = -math.inf  # of the last bundle
        self._gathered: list[M] = []
        self._tasks: set[Address] = set()

    def meet(self, tasks: Iterable[Address]) -> None:
        self._tasks.update(tasks)

    def part(self, present: Present) -> None:
        self._tasks = {task for task in self._tasks if not present.has_gone(task)}

    def gather(self, message: M, at: float) -> float | None:
        """Take in a message to the coordinator. Returns when to pass its bundle on; None: that is known already."""
        self._gathered.append(message)
        if len(self._gathered) > 1:
            return None
        self._due = max(at + _GATHER_SECONDS, self._due + _BUNDLE_SECONDS)
        return self._due

    def take(self) -> list[M]:
        """The bundle that is due, in the order in which its messages came."""
        bundle, self._gathered = self._gathered, []
        return bundle

    def spread(self, bundle: Sequence[tuple[Address, M]]) -> list[tuple[Address, M]]:
        """The messages of a bundle to pass on: those to tasks that have gone are dropped."""
        return [(to, message) for to, message in bundle if to in self._tasks]
