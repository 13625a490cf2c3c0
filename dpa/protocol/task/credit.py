"""Credit: how many records a sender may have in flight on one edge, in all and towards each task that receives.

The window of a receiver follows the time that it takes for a record, so that what waits in its queue is worth a set
time whatever a record costs (as Flink's buffer debloating does, FLIP-183). Each receiver has a window of its own: the
queue of a slow one fills up no others' credit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpa.errors import ProtocolError
from dpa.protocol.task.flow_control import FlowControl
from dpa.protocol.wire.addresses import Address

_FIRST_WINDOW = 64
"""Records that may be in flight towards a receiver of which nothing is known: a few of its first quanta."""

_ACTIVE_SECONDS = 1.0
"""A sender that has sent nothing for longer than this, or twice as long, is not counted."""

_LEAST_PART = 4
"""What waits is cut to fit a window, but not into less than this part of the window, lest messages become many."""


@dataclass(frozen=True)
class CreditLimits:
    """Bounds on what one sender may have in flight on one edge.

    Attributes:
        flow: the most records and bytes, to all receivers together, and the queueing delay that windows aim at; without
            one a window is as large as the other bounds let it be.
        first: records that may be in flight to a receiver that has not told its window yet, where windows follow the
            delay.
    """

    flow: FlowControl
    first: int = _FIRST_WINDOW

    def expecting(self, service_seconds: float | None, senders: int) -> CreditLimits:
        """The same bounds, with the first window that `senders` senders should have if a record will take about so
        long; None: nobody knows."""
        return replace(self, first=self.window(service_seconds, senders) or self.first)

    @property
    def first_window(self) -> int:
        """The records that may be in flight to a receiver that has not told its window yet."""
        most = self.flow.in_flight_records
        return most if self.flow.queue_seconds is None else min(self.first, most)

    def window(self, service_seconds: float | None, senders: int) -> int | None:
        """The records that a receiver would have in flight from each of `senders` senders, if a record takes it so
        long; None if windows do not follow that, or it is not known."""
        seconds, most = self.flow.queue_seconds, self.flow.in_flight_records
        if seconds is None or service_seconds is None:
            return None
        fitting = seconds / senders / service_seconds if service_seconds > 0 else most
        return max(1, int(min(most, fitting)))


class ActiveSenders:
    """Who sends to a task now: windows are shares of those, as others use none."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._now: set[tuple[Address, int]] = set()
        self._before: set[tuple[Address, int]] = set()

    @property
    def number(self) -> int:
        """How many emitters have sent lately; one at least."""
        return max(1, len(self._now | self._before))

    def sent(self, origin: Address, edge: int, now: float) -> None:
        """An emitter has sent records."""
        if now - self._since >= _ACTIVE_SECONDS:
            self._since, self._before, self._now = now, self._now, set()
        self._now.add((origin, edge))


class Credit:
    """The account of one sender on one edge.

    Attributes:
        most: records that may be in flight, to all receivers together.
        in_flight: records pushed and not acknowledged yet.
        in_flight_to: those of them that each receiver has, as far as it is known here.
    """

    def __init__(self, limits: CreditLimits, receivers: int) -> None:
        self.most = limits.flow.in_flight_records
        self.in_flight = 0
        self.in_flight_to = [0] * receivers
        self._limits = limits
        self._windows: list[int | None] = [None] * receivers

    def reach(self, receivers: int) -> None:
        """There are at least so many receivers: a later one may be heard of before the table that has it comes."""
        new = receivers - len(self._windows)
        if new > 0:
            self.in_flight_to += [0] * new
            self._windows += [None] * new

    def window(self, receiver: int) -> int:
        """Records that may be in flight to a receiver."""
        told = self._windows[receiver]
        return min(self._limits.first_window if told is None else told, self.most)

    @property
    def told(self) -> list[int]:
        """The receivers that have told their window; all as long as none has."""
        told = [receiver for receiver, window in enumerate(self._windows) if window is not None]
        return told or list(range(len(self._windows)))

    @property
    def free(self) -> int:
        """How many records more may be in flight, to all receivers together; below 0 if records have become larger."""
        return self.most - self.in_flight

    def room(self, receiver: int, wanted: int) -> int:
        """How many of `wanted` records may be pushed to a receiver now."""
        window = self.window(receiver)
        room = min(window - self.in_flight_to[receiver], self.free)
        return min(wanted, room) if room >= min(wanted, -(-window // _LEAST_PART)) else 0

    def spend(self, receiver: int, records: int) -> None:
        """Records are pushed to a receiver."""
        self.in_flight += records
        self.in_flight_to[receiver] += records

    def give_back(self, receiver: int, records: int) -> None:
        """Records have been processed by a receiver.

        Raises:
            ProtocolError: more credit comes back than is in use.
        """
        if records > self.in_flight:
            raise ProtocolError(f"{records} credits came back, with {self.in_flight} in use")
        self.reach(receiver + 1)
        self.in_flight -= records
        self.in_flight_to[receiver] -= records

    def transfer(self, sender: int, receiver: int, records: int) -> None:
        """A task has forwarded records to another. What that one has processed already may be known earlier, so its
        account is below zero for a moment; so is that of a task of which nothing is known yet."""
        self.reach(max(sender, receiver) + 1)
        self.in_flight_to[sender] -= records
        self.in_flight_to[receiver] += records

    def resize(self, receiver: int, window: int) -> None:
        """Set the window of a receiver, in records."""
        self._windows[receiver] = window

    def weigh(self, row_bytes: float) -> None:
        """Keep to the bound in bytes with records that have so many bytes each."""
        if row_bytes > 0:
            flow = self._limits.flow
            self.most = max(1, int(min(flow.in_flight_records, flow.in_flight_bytes / row_bytes)))
