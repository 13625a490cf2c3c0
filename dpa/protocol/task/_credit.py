"""Credit: how many records a sender may have in flight on one edge, in total and to each receiver.

A receiver's window follows its service time, so that a full queue takes a set time to process, cheap records or dear
(as Flink's buffer debloating, FLIP-183). Each receiver has its own window: a slow one does not use up the credit of
others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

from dpa.errors import ProtocolError
from dpa.protocol.flow_control import CreditLimits
from dpa.protocol.wire.addresses import Address

_ACTIVE_SECONDS = 1.0  # seconds after which an idle sender is not counted, or twice as many

_LEAST_PART = 4
"""A block is split to fit a window, but into no parts smaller than this share of the window: each part is a message."""


class ActiveSenders:
    """Who has sent to a task lately. Windows are divided among these senders alone."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._now: set[tuple[Address, int]] = set()
        self._before: set[tuple[Address, int]] = set()

    @property
    def number(self) -> int:
        """At least 1."""
        return max(1, len(self._now | self._before))

    def sent(self, origin: Address, edge: int, now: float) -> None:
        if now - self._since >= _ACTIVE_SECONDS:
            self._since, self._before, self._now = now, self._now, set()
        self._now.add((origin, edge))


class Credit:
    """The account of one sender on one edge.

    Attributes:
        most: records that may be in flight, to all receivers together.
        in_flight_to: records in flight to each receiver, as known here; receivers without any may be missing.
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
        """Set the receivers. A task numbered `following` or above may report before its table comes. A task that is
        gone keeps its account while it has records."""
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
        """All receivers if no window is known."""
        return [receiver for receiver in self._receivers if receiver in self._windows] or self._receivers

    @property
    def free(self) -> int:
        """Records that may still be sent, to all receivers together; negative if records have become larger."""
        return self.most - self.in_flight

    def room(self, receiver: int, wanted: int) -> int:
        window = self.window(receiver)
        room = min(window - self.in_flight_to[receiver], self.free)
        return min(wanted, room) if room >= min(wanted, -(-window // _LEAST_PART)) else 0

    def spend(self, receiver: int, records: int) -> None:
        self.in_flight += records
        self.in_flight_to[receiver] += records

    def give_back(self, receiver: int, records: int) -> None:
        """Raises ProtocolError if more credit comes back than is in use."""
        if records > self.in_flight:
            raise ProtocolError(f"{records} credits came back, with {self.in_flight} in use")
        self.in_flight -= records
        self.in_flight_to[receiver] -= records

    def transfer(self, sender: int, receiver: int, records: int) -> None:
        """A task has forwarded records to another. An account may be negative for a moment: the receiver's report of
        what it has processed may come first."""
        self.in_flight_to[sender] -= records
        self.in_flight_to[receiver] += records

    def resize(self, receiver: int, window: int) -> None:
        self._windows[receiver] = window

    def weigh(self, row_bytes: float) -> None:
        """Apply the bound in bytes to records of this mean size."""
        if row_bytes > 0:
            records = self._flow.in_flight_mb * 2**20 / row_bytes
            self.most = max(1, int(min(self._flow.in_flight_records, records)))
