"""One edge as a sending task sees it: records that wait for credit, the grouping, and the routing table of the stage
that receives them."""

from collections import deque
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.measure.load import KeySample, Offered
from dpa.protocol.flow_control import CreditLimits
from dpa.protocol.graph import Stage
from dpa.protocol.task._credit import Credit
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.data import Ack, CreditTransfer, Push
from dpa.routing.change import TableChange
from dpa.routing.keys import Key, to_python
from dpa.routing.members import hand_overs, left_by
from dpa.routing.table import RoutingTable

_ROWS = 2_048  # rows that all senders together sample between two reports: about a thousandth of their time
_LEAST_ROWS = 16  # the least rows of a block that a sender samples
_PARTS = 4  # the largest share of the sample that one block may take, so that later blocks are in it too

_SECONDS = 0.05
"""Once the sample is full, seconds between sampled blocks. Blocks in between are taken to have the same keys."""

_NAMED = 0.01  # a key with this part of a block's records is named


class OfferedMeter:
    """What a sender offers a stage on one edge: records by key, sampled as blocks are made.

    Senders see the load before credit holds it back. If one receiver is overloaded, the records that reach the others
    arrive only as fast as that one is served."""

    def __init__(self, sender: int, senders: int) -> None:
        """Each of `senders` senders samples its share of the rows."""
        self._random = np.random.default_rng(sender)
        self._rows = max(1, _ROWS // senders)  # the first block after a report is always looked at
        self._reported_at: float | None = None
        self._sampled_at = -np.inf
        self._looked_at = 0.0
        self._unsampled = 0
        self._samples: list[KeySample] = []
        self._names: dict[int, Key] = {}

    def add(self, block: Block, now: float) -> None:
        if self._reported_at is None:
            self._reported_at = now
        self._unsampled += block.rows
        if self._looked_at >= self._rows and now - self._sampled_at < _SECONDS:
            return
        self._sampled_at = now
        found, positions = block.sample(max(_LEAST_ROWS, self._rows // _PARTS), self._random)
        self._looked_at += found.rows
        frequent = np.flatnonzero(found.records >= _NAMED * block.rows)
        keys = to_python(block.keys.take(positions[frequent]))
        self._names |= zip(found.hashes[frequent].tolist(), keys, strict=True)
        self._samples.append(found.scaled(self._unsampled))
        self._unsampled = 0

    def report(self, now: float, *, ended: bool = False) -> Offered | None:
        """Since the last report; None if nothing was ever offered."""
        if self._reported_at is None:
            return None
        seconds, sample = now - self._reported_at, KeySample.union(self._samples)
        if self._unsampled:
            sample = sample.scaled(sample.total + self._unsampled)
        names = self._names
        self._reported_at, self._looked_at, self._unsampled, self._samples, self._names = now, 0.0, 0, [], {}
        return Offered(seconds, sample, names, ended)


_STEPS = 4
"""The share of the tightest receiver's window that one step should make, so that no receiver waits long for its
block."""

_STEPS_OF_ALL = 2
"""The share of all credit that one step should make: if credit is small, messages must not become many."""

_MEMORY = 0.8  # the weight that a mean over the last blocks keeps when another block comes


@dataclass(frozen=True, eq=False)
class _Part:
    """Records of one receiver that wait for credit.

    Attributes:
        number: of the block that they are part of, in the order of `keep`.
        read_at: their source time (seconds).
        made_at: since when they wait (seconds).
    """

    number: int
    block: Block
    read_at: float
    made_at: float


class Emitter:
    """Sends blocks along one edge while there is credit.

    A block is routed when it is made. What the credit of its receiver holds back is routed again by the next table, so
    records always go by the newest table known here.

    Attributes:
        stage: the stage that receives.
        held: records that wait for credit.
        credit_seconds: for which the records pushed so far have waited for it, all records together.
    """

    def __init__(
        self, edge: int, origin: Address, stage: Stage, limits: CreditLimits, sender: int, senders: int = 1
    ) -> None:
        """`stage` receives; `sender`: the number of this one among its `senders`, or a later one."""
        table = stage.first_table()
        self.edge = edge
        self.stage = stage.name
        self.table = table
        self.emitted = 0
        self.held = 0
        self.credit_seconds = 0.0
        self.origin = origin
        self._regroup = partial(stage.grouping.create, source=sender)  # the grouping of a table's members
        self._grouping = self._regroup(table)
        self._moved_before = 0
        self._meter = OfferedMeter(sender, senders) if stage.balance.reports.measures_keys else None
        self._migrates = stage.migrates
        self._credit = Credit(limits, table.members)
        self._waiting: dict[int, deque[_Part]] = {one: deque() for one in table.members}
        self._held_for = dict.fromkeys(table.members, 0)
        self._shares = dict.fromkeys(table.members, 1.0 / len(table.members))
        self._blocks = 0
        self._row_bytes: float | None = None

    @property
    def made(self) -> int:
        """Records pushed, or waiting for credit."""
        return self.emitted + self.held

    @property
    def in_flight(self) -> int:
        return self._credit.in_flight

    @property
    def in_flight_to(self) -> dict[int, int]:
        """Records in flight to each receiver; negative for a moment if a receiver has processed what was forwarded to
        it."""
        return {receiver: records for receiver, records in self._credit.in_flight_to.items() if records}

    @property
    def is_open(self) -> bool:
        """Whether it takes more blocks. Held records count as in flight, beside as many as one receiver's window
        holds."""
        if not self.held or self.held > max(0, self._credit.free):
            return not self.held
        return all(held <= self._credit.window(receiver) for receiver, held in self._held_for.items() if held)

    @property
    def step_records(self) -> int:
        shares = ((receiver, self._shares[receiver]) for receiver in self._credit.known)
        windows = (self._credit.window(receiver) / share for receiver, share in shares if share > 0)
        most = self._credit.most
        return max(1, round(min(most / _STEPS_OF_ALL, min(windows, default=most) / _STEPS)))

    @property
    def regrouped(self) -> int:
        return self._moved_before + self._grouping.moved

    def keep(self, block: Block, read_at: float, now: float) -> None:
        if self._meter is not None:
            self._meter.add(block, now)
        self._weigh(block)
        self._blocks += 1
        self.held += block.rows
        for receiver, rows in self._route(_Part(self._blocks, block, read_at, now)).items():
            self._shares[receiver] = _MEMORY * self._shares[receiver] + (1 - _MEMORY) * rows / block.rows

    def release(self, now: float) -> list[tuple[Address, Push]]:
        """The pushes that credit allows now, with their receivers, the longest-waiting first."""
        pushes: list[tuple[Address, Push]] = []
        if not self.held:
            return pushes
        waiting = [(parts[0].number, receiver) for receiver, parts in self._waiting.items() if parts]
        for _, receiver in sorted(waiting):
            parts = self._waiting[receiver]
            while parts and (rows := self._credit.room(receiver, parts[0].block.rows)):
                part = parts.popleft()
                if rows < part.block.rows:
                    rest = part.block.slice(rows, part.block.rows)
                    parts.appendleft(_Part(part.number, rest, part.read_at, part.made_at))
                self._credit.spend(receiver, rows)
                self.held -= rows
                self._held_for[receiver] -= rows
                self.emitted += rows
                self.credit_seconds += rows * (now - part.made_at)
                block = part.block.slice(0, rows)
                push = Push(block, self.table.version, self.origin, self.edge, part.read_at, now, number=part.number)
                pushes.append((Address(self.stage, receiver), push))
        return pushes

    def acknowledged(self, sender: Address, ack: Ack) -> None:
        try:
            self._credit.give_back(sender.index, ack.records)
        except ProtocolError as error:
            raise ProtocolError(f"{self.origin}, from {sender}: {error}") from None
        if ack.window is not None:
            self._credit.resize(sender.index, ack.window)
        if ack.signal is not None and sender.index in self.table.members:
            self._grouping.observe(sender.index, ack.signal)

    def forwarded(self, sender: Address, transfer: CreditTransfer) -> None:
        self._credit.transfer(sender.index, transfer.receiver, transfer.records)

    def offered(self, now: float, *, ended: bool = False) -> Offered | None:
        """Since the last call; None if nothing was offered, or nothing is measured."""
        return None if self._meter is None else self._meter.report(now, ended=ended)

    def update(self, change: TableChange) -> frozenset[int]:
        """Returns the receivers that need a marker of the table: those that leave and, if states migrate, those that
        give some."""
        before = self.table
        self.adopt(change.apply(before))
        if self._migrates:
            return frozenset(source for source, _ in hand_overs(before, self.table))
        return left_by(before, self.table)

    def adopt(self, table: RoutingTable) -> None:
        before, self.table = self.table, table
        has_new_members = before.members != table.members
        if has_new_members:
            self._moved_before, self._grouping = self.regrouped, self._regroup(table)
            self._credit.serve(table.members, table.reducers)
            self._shares = dict.fromkeys(table.members, 1.0 / len(table.members))
        else:
            self._grouping.adopt(table)
        if has_new_members or (self._grouping.forwards and self.held):
            parts = sorted((part for parts in self._waiting.values() for part in parts), key=lambda part: part.number)
            self._waiting = {one: deque() for one in table.members}
            self._held_for = dict.fromkeys(table.members, 0)
            for part in parts:
                self._route(part)

    def _route(self, whole: _Part) -> dict[int, int]:
        """Queue a block's records by receiver; returns the number for each."""
        rows = dict.fromkeys(self._waiting, 0)
        for receiver, block in whole.block.route(self._grouping):
            self._waiting[receiver].append(_Part(whole.number, block, whole.read_at, whole.made_at))
            self._held_for[receiver] += block.rows
            rows[receiver] = block.rows
        return rows

    def _weigh(self, block: Block) -> None:
        if block.row_bytes is None:
            return
        before = block.row_bytes if self._row_bytes is None else self._row_bytes
        self._row_bytes = _MEMORY * before + (1 - _MEMORY) * block.row_bytes
        self._credit.weigh(self._row_bytes)
