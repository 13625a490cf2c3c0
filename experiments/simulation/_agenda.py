"""What is to come in a simulated run, in the order of its virtual time."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import Generic, TypeVar

from dpa.protocol.wire.addresses import Address

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class StartEnds:
    """The driver's own event: tasks that are to come while records flow are up now, unless they cannot be started."""

    addresses: tuple[Address, ...]
    nodes: tuple[str | None, ...]


class Agenda(Generic[T]):
    """Events of machines; of those at one moment, the first that was added comes first.

    Attributes:
        now: virtual time in seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._entries: list[tuple[float, int, Address, T]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def next_at(self) -> float | None:
        """When the next event comes; None: there is none."""
        return self._entries[0][0] if self._entries else None

    @property
    def events(self) -> list[T]:
        """All that are to come."""
        return [event for _, _, _, event in self._entries]

    def add(self, delay: float, address: Address, event: T) -> None:
        """An event is to come: in how many seconds."""
        heapq.heappush(self._entries, (self.now + delay, next(self._order), address, event))

    def take(self) -> tuple[Address, T]:
        """The next event, which comes now, and to whom."""
        self.now, _, address, event = heapq.heappop(self._entries)
        return address, event

    def cancel(self, event: T) -> None:
        """An event does not come."""
        self._entries = [entry for entry in self._entries if entry[3] is not event]
        heapq.heapify(self._entries)
