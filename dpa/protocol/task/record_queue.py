"""The records that an operator task has accepted: those in its queue, and those held until their routing table comes.

A forwarded record was admitted once and never waits for credit again, so tasks that forward to each other cannot block
each other."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt

from dpa.errors import ProtocolError
from dpa.measure.load import KeySample
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.data import Push
from dpa.routing.assignment import Distributor, KeySplit
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.plain import RingGrouping
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, within
from dpa.routing.table import RoutingTable

_MOST_PUSHES = 1_000  # that are taken together
_SAMPLED = 256  # rows of a block that are sampled: all of a small block, one in a thousand of the largest

Forwards = list[tuple[int, Push]]
"""Pushes for other tasks of the stage, each with the task's number."""


@dataclass(eq=False)
class Queued:
    """The records of one push from `start` on, which are still to be processed. `random` is the queue's."""

    push: Push
    random: np.random.Generator
    start: int = 0
    measured: KeySample | None = None

    def rest(self) -> Push:
        return replace(self.push, block=self.push.block.slice(self.start, self.push.block.rows))

    def sample(self) -> KeySample:
        """The keys of its records, measured once for the whole push."""
        if self.measured is None:
            self.measured, _ = self.push.block.sample(_SAMPLED, self.random)
        return self.measured.scaled(self.push.block.rows - self.start) if self.start else self.measured


class RecordQueue:
    """Every method returns the records to forward, which the table gives to other tasks.

    Attributes:
        table: the newest routing table that the task holds.
        length: records accepted and neither processed nor forwarded.
        forwarded_out, forwarded_in: records forwarded to other tasks so far, and accepted from them.
    """

    def __init__(
        self, index: int, table: RoutingTable, *, eager: bool, regroup: Callable[[RoutingTable], Grouping] | None = None
    ) -> None:
        """`eager`: forward queued records as soon as a table moves them, not only when they reach the head. `regroup`:
        how senders choose among the members if the table does not say; any member may then keep a record."""
        self.table = table
        self.length = 0
        self.peak = 0
        self.forwarded_out = 0
        self.forwarded_in = 0
        self._index = index
        self._eager = eager
        self._distributor = Distributor(index)
        self._regroup = regroup
        self._leaves_by: Grouping | None = None
        self._random = np.random.default_rng(index)
        self._queue: deque[Queued] = deque()
        self._held: list[Queued] = []

    @property
    def is_empty(self) -> bool:
        return not (self._queue or self._held)

    @property
    def has_next(self) -> bool:
        return bool(self._queue)

    def sample(self) -> KeySample:
        return KeySample.union(queued.sample() for queued in chain(self._queue, self._held))

    def accept(self, push: Push) -> Forwards:
        """Queue a push, or hold it if its table has not come yet."""
        queued, forwards = Queued(push, self._random), Forwards()
        self.length += push.block.rows
        self.forwarded_in += push.block.rows if push.hops else 0
        if push.version > self.table.version:
            self._held.append(queued)
        else:
            forwards = self._admit(queued)
        self.peak = max(self.peak, self.length)
        return forwards

    def retable(self, table: RoutingTable) -> Forwards:
        self.table = table
        self._distributor.retain(table.splits.values())
        if self._regroup is not None:
            self._leaves_by = None if self._index in table.members else self._regroup(table)
        here = [queued for queued in self._held if queued.push.version <= table.version]
        self._held = [queued for queued in self._held if queued.push.version > table.version]
        if self._eager:
            before, self._queue = self._queue, deque()
            here = [*before, *here]
        return [forward for queued in here for forward in self._admit(queued)]

    def migrate(self, table: RoutingTable, senders: Iterable[Address], *, gives: bool, takes: bool) -> Forwards:
        """Adopt the next table, which `senders` mark: this task gives states to others, takes some, or both.
        Here no record waits for the states of its key."""
        return self.retable(table)

    def states_given(self, interval: Interval) -> Forwards:
        """Called when the states of an interval have been sent to other tasks."""
        return Forwards()

    def given(self, source: int, interval: Interval) -> None:
        """Called when the states of an interval have come from task `source`."""

    def passed(self, source: int, senders: Iterable[Address]) -> None:
        """Task `source` has forwarded all that these senders had pushed to it by older tables."""

    def taken_over(self) -> None:
        """All states have come."""

    def take(self, records: int, together: int = 1) -> tuple[list[Push], Forwards]:
        """Take out up to `records` records that this task owns: of one push, or of several until they have as many as
        `together`; none if none is left."""
        taken, forwards = list[Push](), Forwards()
        rows = 0
        while self._queue and rows < min(together, records) and len(taken) < _MOST_PUSHES:
            kept, others = self._owned(self._queue.popleft())
            forwards += others
            for queued in kept:
                push, start, stop = queued.push, queued.start, queued.start + records - rows
                if push.block.rows > stop:
                    queued.start = stop
                    self._queue.appendleft(queued)
                taken.append(replace(push, block=push.block.slice(start, stop)))
                rows += taken[-1].block.rows
        return taken, forwards

    def processed(self, records: int) -> None:
        self.length -= records

    def _admit(self, queued: Queued) -> Forwards:
        if self._eager and queued.push.version < self.table.version:
            kept, forwards = self._owned(queued)
            self._queue.extend(kept)
            return forwards
        self._queue.append(queued)
        return []

    def _owned(self, queued: Queued) -> tuple[list[Queued], Forwards]:
        """The records of a push that stay, marked with the newest table's version, and those that go to other tasks."""
        version = queued.push.version
        if version == self.table.version:
            return [queued], []
        if self._regroup is not None and self._leaves_by is None:
            queued.push = replace(queued.push, version=self.table.version)
            return [queued], []
        kept, forwards, push = [], Forwards(), queued.rest()
        by = self._leaves_by or RingGrouping(self.table, distribute=partial(self._distribute, version))
        for owner, block in push.block.route(by):
            part = replace(push, block=block, version=self.table.version)
            if owner == self._index:
                kept.append(Queued(part, self._random))
            else:
                forwards += self._send_on(owner, part)
        return kept, forwards

    def _send_on(self, owner: int, push: Push) -> Forwards:
        self.length -= push.block.rows
        self.forwarded_out += push.block.rows
        return [(owner, replace(push, hops=push.hops + 1))]

    def _distribute(self, version: int, split: KeySplit, records: int) -> npt.NDArray[np.int64]:
        """Distribute the records of a split key that an older table routed. If the split is the same, they stay."""
        if split.since <= version and self._index in split.reducers:
            return np.array([records if index == self._index else 0 for index in split.reducers])
        return self._distributor.distribute(split, records, self._index)


class MigratingQueue(RecordQueue):
    """The records of a task whose states migrate: queued ones, those that leave with their states, and those that wait
    for records emitted earlier. Between hand-overs it is a plain queue.

    docs/design.md has hand-overs step by step, and why they are correct."""

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
