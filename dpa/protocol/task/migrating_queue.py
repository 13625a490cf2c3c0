"""The records of a task whose states migrate: queued ones, those that leave with their states, and those that wait for
records emitted earlier.

docs/design.md has hand-overs step by step, and why they are correct.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from dpa.errors import ProtocolError
from dpa.protocol.task._record_queue import Forwards, Queued, RecordQueue
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.data import Push
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, within
from dpa.routing.table import RoutingTable


class MigratingQueue(RecordQueue):
    """Between hand-overs it is a plain queue."""

    def __init__(self, index: int, table: RoutingTable) -> None:
        super().__init__(index, table, eager=True)
        self._before: RoutingTable | None = None
        self._marking: frozenset[Address] = frozenset()
        self._leaving: list[tuple[int, Push]] | None = None
        self._given: list[Interval] = []
        self._waiting: dict[Address, list[Push]] = {}
        self._pieces: defaultdict[int, list[Interval]] = defaultdict(list)
        self._passed: defaultdict[Address, dict[int, int]] = defaultdict(dict)

    @property
    def is_empty(self) -> bool:
        return super().is_empty and not self._leaving and not self._waiting

    @property
    def aside(self) -> int:
        aside = chain((push for _, push in self._leaving or ()), *self._waiting.values())
        return sum(push.block.rows for push in aside)

    def migrate(self, table: RoutingTable, senders: Iterable[Address], *, gives: bool, takes: bool) -> Forwards:
        """Adopt the next table, which `senders` mark. Records that move are leaving until `states_given`; those of
        incoming ranges wait. Records that other tasks forward never went by an older table, and wait for states
        alone."""
        self._marking = frozenset(senders)
        self._leaving = [] if gives else None
        self._before = self.table if takes else None
        return self.retable(table)

    def states_given(self, interval: Interval) -> Forwards:
        """The states of an interval have been sent: forward the leaving records after them, in order, and from now on
        any such record as it comes."""
        leaving = self._leaving or []
        self._given.append(interval)
        if interval == ALL_HASHES:
            self._leaving, self._given = None, []
        else:
            self._leaving = []
        return [forward for owner, push in leaving for forward in self._send_on(owner, push)]

    def given(self, source: int, interval: Interval) -> None:
        self._pieces[source].append(interval)
        self.passed(source, [sender for sender in self._waiting if sender not in self._marking])

    def passed(self, source: int, senders: Iterable[Address]) -> None:
        """Task `source` has forwarded what these senders had pushed to it by older tables, for keys whose states have
        come: queue the records that waited for that."""
        for sender in senders:
            self._passed[sender][source] = len(self._pieces[source])
            for push in self._waiting.pop(sender, ()):
                self._admit(Queued(push, self._random))

    def taken_over(self) -> None:
        """Raises ProtocolError if records still wait."""
        if self._waiting:
            senders = ", ".join(sorted(map(str, self._waiting)))
            raise ProtocolError(
                f"records from {senders} still wait at task {self._index}, which has taken over all ranges"
            )
        self._before = None
        self._passed.clear()
        self._pieces.clear()

    def _admit(self, queued: Queued) -> Forwards:
        push = queued.push
        if self._before is None or push.hops or push.version < self.table.version:
            return super()._admit(queued)
        waits = self._waits(self._before, push.origin, push.block.hashes)
        for is_waiting, block in push.block.by_key(waits.astype(np.int32)):
            part = replace(push, block=block)
            if is_waiting:
                self._waiting.setdefault(push.origin, []).append(part)
            else:
                self._queue.append(Queued(part, self._random))
        return []

    def _waits(self, before: RoutingTable, sender: Address, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether records that `sender` pushed by the newest table wait, by the hash of their key."""
        sources = before.owners_of(hashes)
        waits: npt.NDArray[np.bool_] = sources != self._index
        passed = self._passed[sender] if sender in self._marking else {of: len(self._pieces[of]) for of in self._pieces}
        for source, pieces in passed.items():
            for interval in self._pieces[source][:pieces]:
                waits &= (sources != source) | ~within(hashes, interval)
        return waits

    def _send_on(self, owner: int, push: Push) -> Forwards:
        if self._leaving is None:
            return super()._send_on(owner, push)
        forwards, given = Forwards(), np.zeros(len(push.block.hashes), dtype=np.int32)
        for interval in self._given:
            given[within(push.block.hashes, interval)] = 1
        for is_given, block in push.block.by_key(given):
            part = replace(push, block=block)
            if is_given:
                forwards += super()._send_on(owner, part)
            else:
                self._leaving.append((owner, part))
        return forwards
