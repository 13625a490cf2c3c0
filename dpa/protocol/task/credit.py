"""Credit: how many records a sender may have in flight on one edge, in all and towards each task that receives.

The window of a receiver follows the time that it takes for a record, so that what waits in its queue is worth a set
time whatever a record costs (as Flink's buffer debloating does, FLIP-183). Each receiver has a window of its own: the
queue of a slow one fills up no others' credit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
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
        first: records that may be in flight to a receiver whose window is not known yet, where windows follow the
            delay.
        divided: whether each receiver has an even share of the most records, where windows do not: a cut of the stream
            waits for the longest queue, and the receiver of a hot key would have all that is in flight.
    """

    flow: FlowControl
    first: int = _FIRST_WINDOW
    divided: bool = False

    def expecting(self, service_seconds: float | None, senders: int) -> CreditLimits:
        """The same bounds, with the first window for `senders` senders of records that will take about this time."""
        return replace(self, first=self.window(service_seconds, senders) or self.first)

    @property
    def first_window(self) -> int:
        """The records that may be in flight to a receiver whose window is not known yet."""
        most = self.flow.in_flight_records
        return most if self.flow.queue_seconds is None else min(self.first, most)

    def window(self, service_seconds: float | None, senders: int) -> int | None:
        """The records in flight from each of `senders` senders, if a record takes this time; None: windows do not
        follow that, or it is not known."""
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
        if now - self._since >= _ACTIVE_SECONDS:
            self._since, self._before, self._now = now, self._now, set()
        self._now.add((origin, edge))


class Credit:
    """The account of one sender on one edge.

    Attributes:
        most: records that may be in flight, to all receivers together.
        in_flight_to: those of them that each receiver has, as far as it is known here; not of all that have none.
    """

    def __init__(self, limits: CreditLimits, receivers: Collection[int]) -> None:
        self.most = limits.flow.in_flight_records
        self.in_flight = 0
        self.in_flight_to: Counter[int] = Counter()
        self._flow = limits.flow
        self._first_window = limits.first_window
        self._divided = limits.divided and limits.flow.queue_seconds is None
        self._receivers = receivers
        self._windows: dict[int, int] = {}

    def serve(self, receivers: Collection[int], following: int) -> None:
        """These receive from now on. A task numbered `following` or above may be heard of before its table comes; one
        that is gone has an account as long as it has records."""
        self._receivers = receivers
        self.in_flight_to = Counter({receiver: records for receiver, records in self.in_flight_to.items() if records})
        known = self._windows.items()
        self._windows = {one: window for one, window in known if one in receivers or one >= following}

    def window(self, receiver: int) -> int:
        if self._divided:
            return max(1, self.most // len(self._receivers))
        return min(self._windows.get(receiver, self._first_window), self.most)

    @property
    def known(self) -> Collection[int]:
        """The receivers whose windows are known; all while none is."""
        return [receiver for receiver in self._receivers if receiver in self._windows] or self._receivers

    @property
    def free(self) -> int:
        """How many records more may be in flight, to all receivers together; below 0 if records have become larger."""
        return self.most - self.in_flight

    def room(self, receiver: int, wanted: int) -> int:
        window = self.window(receiver)
        room = min(window - self.in_flight_to[receiver], self.free)
        return min(wanted, room) if room >= min(wanted, -(-window // _LEAST_PART)) else 0

    def spend(self, receiver: int, records: int) -> None:
        self.in_flight += records
        self.in_flight_to[receiver] += records

    def give_back(self, receiver: int, records: int) -> None:
        """Records have been processed by a receiver; ProtocolError if more credit comes back than is in use."""
        if records > self.in_flight:
            raise ProtocolError(f"{records} credits came back, with {self.in_flight} in use")
        self.in_flight -= records
        self.in_flight_to[receiver] -= records

    def transfer(self, sender: int, receiver: int, records: int) -> None:
        """A task has forwarded records to another. An account may be below zero for a moment: what the receiver has
        processed may be known earlier."""
        self.in_flight_to[sender] -= records
        self.in_flight_to[receiver] += records

    def resize(self, receiver: int, window: int) -> None:
        self._windows[receiver] = window

    def weigh(self, row_bytes: float) -> None:
        """Keep to the bound in bytes with records of `row_bytes` bytes each."""
        if row_bytes > 0:
            self.most = max(1, int(min(self._flow.in_flight_records, self._flow.in_flight_bytes / row_bytes)))
