"""The mapper's state machine: asks for splits, maps them, routes the records and stays within its credits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.protocol.machine import Machine, MapDone, MapNext, OpenSplit, Start, Tick
from dpa.protocol.messages import (
    COORDINATOR,
    Ack,
    Address,
    MapperReport,
    Push,
    SplitGrant,
    SplitRequest,
    TableUpdate,
    mapper,
    reducer,
)
from dpa.protocol.metrics import MapperStats
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.ring import RingGrouping
from dpa.routing.table import RoutingTable

_BLOCKS_AHEAD = 1
"""A mapper maps so many blocks beyond the one that waits for credit."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """A block that waits for credit, and its source time: when the step that read its rows began (seconds)."""

    block: Block
    read_at: float


class MapperMachine(Machine):
    """States: waiting for a split, mapping, done. What each message does in each:

    | message       | waiting for a split | mapping                          | done              |
    | ------------- | ------------------- | -------------------------------- | ----------------- |
    | `SplitGrant`  | open it, or be done | cannot come                      | cannot come       |
    | `MapDone`     | cannot come         | keep the block, push if credited | cannot come       |
    | `Ack`         | credits back        | credits back, push what waits    | credits back      |
    | `TableUpdate` | adopt               | adopt                            | adopt             |
    | `Tick`        | report              | report                           | nothing           |

    A block is routed when it is pushed, not when it is mapped, so it always goes by the newest table known here.
    """

    def __init__(
        self, index: int, table: RoutingTable, in_flight_records: int, grouping: Grouping | None = None
    ) -> None:
        """Start with routing table 0 and credit for `in_flight_records` records; without a grouping of its own, records
        go by the table."""
        super().__init__(mapper(index))
        self.index = index
        self.table = table
        self.in_flight = 0
        self._first_table = table
        self._grouping = grouping or RingGrouping(table, index)
        self._credit = in_flight_records
        self._waiting: deque[Waiting] = deque()
        self._mapping = False
        self._step_began = self._read_began = 0.0
        self._split_open = False
        self._requested = False
        self._done = False
        self._read = self._mapped = self.emitted = 0
        self._static_load = np.zeros(table.reducers, dtype=np.int64)
        self.on(Start, self._start)
        self.on(SplitGrant, self._grant)
        self.on(MapDone, self._map_done)
        self.on(Ack, self._ack)
        self.on(TableUpdate, self._table_update)
        self.on(Tick, self._tick)

    @property
    def stats(self) -> MapperStats:
        """Statistics so far."""
        load = tuple(int(records) for records in self._static_load)
        return MapperStats(self.index, self._read, self._mapped, self.emitted, load, self._grouping.moved)

    def _start(self, sender: Address, event: Start) -> None:
        self._go_on()

    def _grant(self, sender: Address, message: SplitGrant) -> None:
        if not self._requested:
            raise ProtocolError(f"{self.address} was granted a split that it did not ask for")
        self._requested = False
        if message.split is None:
            self._done = True
            self.send(COORDINATOR, MapperReport(self.stats, done=True))
            return
        self._split_open = True
        self._read_began = self.now
        self.instruct(OpenSplit(message.split))
        self._go_on()

    def _map_done(self, sender: Address, event: MapDone) -> None:
        if not self._mapping:
            raise ProtocolError(f"{self.address} has finished a step that it was not to take")
        self._mapping = False
        if event.step is None:
            self._split_open = False
        else:
            if event.step.read:  # else its records are of rows that an earlier step has read
                self._read_began = self._step_began
            self._read += event.step.read
            self._mapped += event.step.mapped
            if event.step.block is not None:
                self._keep(event.step.block)
        self._go_on()

    def _ack(self, sender: Address, message: Ack) -> None:
        if message.records > self.in_flight:
            raise ProtocolError(f"{self.address} got {message.records} credits back, with {self.in_flight} in use")
        self.in_flight -= message.records
        if message.signal is not None:
            self._grouping.observe(sender.index, message.signal)
        self._go_on()

    def _table_update(self, sender: Address, message: TableUpdate) -> None:
        self.table = message.change.apply(self.table)
        self._grouping.adopt(self.table)

    def _tick(self, sender: Address, event: Tick) -> None:
        if not self._done:
            self.send(COORDINATOR, MapperReport(self.stats))

    def _go_on(self) -> None:
        """Push what credit allows, then map ahead, then ask for more."""
        if self._done:
            return
        while self._waiting and self.in_flight + self._waiting[0].block.rows <= self._credit:
            self._push(self._waiting.popleft())
        if self._mapping:
            return
        if self._split_open:
            if len(self._waiting) <= _BLOCKS_AHEAD:
                self._mapping, self._step_began = True, self.now
                self.instruct(MapNext())
        elif not self._waiting and not self._requested:
            self._requested = True
            self.send(COORDINATOR, SplitRequest())

    def _keep(self, block: Block) -> None:
        if block.rows > self._credit:
            raise ProtocolError(f"{self.address} mapped {block.rows} records at once, with credit for {self._credit}")
        self._waiting.append(Waiting(block, self._read_began))

    def _push(self, waiting: Waiting) -> None:
        block = waiting.block
        self.in_flight += block.rows
        self.emitted += block.rows
        static = self._grouping.forwards and self.table is self._first_table
        if not static:
            self._static_load += block.loads(self._first_table)
        for owner, part in block.route(self._grouping):
            self._static_load[owner] += part.rows if static else 0
            self.send(reducer(owner), Push(part, self.table.epoch, self.index, waiting.read_at))
