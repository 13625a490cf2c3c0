"""The invariants of the protocol, as checks on all machines of a simulated run at once.

What the machines count is held against the messages that were really sent and taken in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

import numpy as np

from dpa.balance.decision import Decision, Outcome
from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.protocol.assembly import BalanceOptions
from dpa.protocol.machine import Instruction, Machine
from dpa.protocol.mapper import MapperMachine
from dpa.protocol.messages import Address, DecisionReport, Envelope, Push, TableUpdate
from dpa.protocol.reducer import ReducerMachine
from dpa.routing.change import TableChange
from dpa.routing.groupings.base import Grouping
from dpa.routing.table import RoutingTable


class Invariants:
    """Numbers in comments are those of the design's list of invariants (docs/design.md)."""

    def __init__(
        self,
        first_table: RoutingTable,
        mappers: Sequence[MapperMachine],
        reducers: Sequence[ReducerMachine],
        in_flight_records: int,
        balance: BalanceOptions,
        pact: Grouping | None = None,
    ) -> None:
        """`pact` tells who may process what where records do not go by routing tables."""
        self._mappers = mappers
        self._reducers = reducers
        self._in_flight_records = in_flight_records
        self._balance = balance
        self._pact = pact
        self._under_way: dict[tuple[Address, Address, int], int] = {}
        self._delivered: dict[tuple[Address, Address], int] = {}
        self._rows_under_way = 0
        self._rows_forwarded = 0
        self._peaks: dict[int, int] = {}
        self._epochs: dict[Address, int] = {}
        self._acted: dict[Address, int] = {}
        self._tables = {first_table.epoch: first_table}
        self._changes: dict[int, TableChange] = {}
        self._rounds: dict[int, int] = {}
        self._at_work: set[Address] = set()

    def sent(self, envelope: Envelope) -> None:
        """A message leaves its sender."""
        message = envelope.message
        if isinstance(message, Push):
            self._sent_push(envelope, message)
        elif isinstance(message, TableUpdate):
            change = message.change
            known = self._changes.setdefault(change.epoch, change)
            self._require(known is change, f"two routing tables are numbered {change.epoch}")  # 2
            if change.epoch not in self._tables:
                self._tables[change.epoch] = change.apply(self._tables[change.epoch - 1])
        elif isinstance(message, DecisionReport):
            for decision in message.decisions:
                self._decided(decision)

    def received(self, envelope: Envelope, machine: Machine) -> None:
        """A message has reached its receiver, perhaps to wait there for an earlier one."""
        channel = (envelope.sender, envelope.receiver)
        delivered = machine.delivered(envelope.sender)
        for seq in range(self._delivered.get(channel, 0), delivered):
            self._rows_under_way -= self._under_way.pop((*channel, seq), 0)
        self._delivered[channel] = delivered

    def works(self, address: Address, instruction: Instruction) -> None:
        """A task lets user code run."""
        twice = f"{address} was to carry out a {type(instruction).__name__} while its user code was at work"
        self._require(address not in self._at_work, twice)  # 9
        self._at_work.add(address)

    def rests(self, address: Address) -> None:
        """User code has returned."""
        self._at_work.discard(address)

    def acted(self, address: Address, epoch: int, owner: int, block: Block) -> None:
        """A task gave records to a reducer, itself perhaps, by the table of an epoch."""
        newest = max(self._acted.get(address, 0), self._epochs.get(address, 0))  # acted on, or held before this step
        self._require(epoch >= newest, f"{address} acted on table {epoch} when it had table {newest}")  # 3
        self._acted[address] = epoch
        self._require(epoch in self._tables, f"{address} acted on table {epoch}, which was never published")  # 3
        allowed = (self._pact or self._tables[epoch]).may_process(owner, block.hashes)
        self._require(bool(np.all(allowed)), f"{address} gave reducer {owner} a key of another reducer")  # 2

    def check(self) -> None:
        """What must hold after every step. Words are only made for what is broken: this is most of a simulation."""
        emitted = sum(machine.emitted for machine in self._mappers)
        processed = sum(machine.processed for machine in self._reducers)
        queued = sum(machine.queue_length for machine in self._reducers)
        found = processed + queued + self._rows_under_way
        if emitted != found:
            self._broken(f"{emitted} records emitted, but {found} are processed, queued or under way")  # 1
        for source in self._mappers:
            if not 0 <= source.in_flight <= self._in_flight_records:
                self._broken(f"{source.address} has {source.in_flight} records in flight")  # 5
        bound = len(self._mappers) * self._in_flight_records
        if queued > bound:
            self._broken(f"{queued} records are queued, more than {bound}")  # 5
        for index, machine in enumerate(self._reducers):
            self._peaks[index] = max(self._peaks.get(index, 0), machine.queue_length)
        holders: list[MapperMachine | ReducerMachine] = [*self._mappers, *self._reducers]
        for holder in holders:
            epoch = holder.table.epoch
            if epoch < self._epochs.get(holder.address, 0):
                self._broken(f"{holder.address} went back to table {epoch}")  # 3
            self._epochs[holder.address] = epoch

    def check_end(self) -> None:
        """What must hold when the job says that it is done; acknowledgements and statistics may still be under way."""
        self._require(not self._under_way, "the job ended with records under way")  # 6
        for machine in self._reducers:
            self._require(not machine.has_records, f"the job ended while {machine.address} had records")  # 6
        finals = {machine.table.epoch for machine in self._reducers}
        self._require(len(finals) == 1, f"reducers merged by different tables: {sorted(finals)}")  # 2

    def check_quiet(self, machines: Iterable[Machine]) -> None:
        """What must hold when nothing at all is under way any more."""
        for machine in machines:
            self._require(machine.idle, f"{machine.address} still waits for a message")  # 6
        for source in self._mappers:
            self._require(source.in_flight == 0, f"{source.address} still has {source.in_flight} credits in use")  # 6
        forwarded = sum(machine.forwarded for machine in self._reducers)
        self._require(
            forwarded == self._rows_forwarded, f"{forwarded} records counted as forwarded, not {self._rows_forwarded}"
        )
        for index, reducer in enumerate(self._reducers):
            within = self._peaks.get(index, 0) <= reducer.peak_queue <= len(self._mappers) * self._in_flight_records
            self._require(within, f"{reducer.address} reports a peak queue of {reducer.peak_queue}")

    def _sent_push(self, envelope: Envelope, push: Push) -> None:
        rows, sender = push.block.rows, envelope.sender
        self._under_way[(sender, envelope.receiver, envelope.seq)] = rows
        self._rows_under_way += rows
        self._rows_forwarded += rows if push.hops else 0
        self._require(rows > 0, f"{sender} pushed an empty block")
        self._require(push.hops <= push.epoch, f"a record was forwarded {push.hops} times in {push.epoch} tables")  # 7
        self.acted(sender, push.epoch, envelope.receiver.index, push.block)

    def _decided(self, decision: Decision) -> None:
        if decision.outcome is not Outcome.APPLIED:
            return
        if self._balance.is_adaptive:
            loaded = any(decision.loads) and (decision.moved or decision.spread)
            cooled = "wider than its key needs" in decision.reason
            self._require(bool(loaded or cooled), f"redistributed without a load reason: {decision}")  # 7
            return
        loads, own = list(decision.loads), decision.loads[decision.reducer]
        second = max(loads[: decision.reducer] + loads[decision.reducer + 1 :], default=0)
        reason = own > 0
        if self._balance.trigger in (None, "queue_length"):
            reason = own > second * (1 + self._balance.tau) and own >= self._balance.least_queue
        self._require(reason, f"redistributed without a load reason: {decision}")  # 7
        self._rounds[decision.reducer] = self._rounds.get(decision.reducer, 0) + 1
        within = self._rounds[decision.reducer] <= self._balance.max_rounds
        self._require(within, f"reducer {decision.reducer} caused more than {self._balance.max_rounds} rounds")  # 7

    def _require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self._broken(otherwise)

    @staticmethod
    def _broken(what: str) -> NoReturn:
        raise ProtocolError(f"invariant broken: {what}")
