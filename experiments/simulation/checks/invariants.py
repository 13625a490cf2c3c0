"""The invariants of the protocol, as checks on all machines of a simulated run at once.

What the machines count is held against the messages that were really sent and taken in.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dpa.balance.decision import Decision, Outcome
from dpa.balance.options import TokenOptions
from dpa.execution.block import Block
from dpa.execution.states import StatePart
from dpa.protocol.graph import Graph, Stage
from dpa.protocol.history.recording import in_words
from dpa.protocol.machine import Machine
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.wire.addresses import COORDINATOR, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, Redistribute, TasksGone, Tick
from dpa.protocol.wire.instructions import Instruction, NextStep, ProcessBlocks
from dpa.protocol.wire.messages.cuts import GoOn, Paused
from dpa.protocol.wire.messages.data import Ack, CreditTransfer, Push
from dpa.protocol.wire.messages.end import Drain, LastTable, Progress
from dpa.protocol.wire.messages.members import ChangeMembers
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer
from dpa.protocol.wire.messages.splits import Begin, SplitRequest
from dpa.protocol.wire.messages.tables import DecisionReport, TableUpdate
from dpa.routing.change import TableChange
from dpa.routing.groupings.base import Grouping
from dpa.routing.table import RoutingTable
from experiments.simulation.checks.credit_ledger import CreditLedger
from experiments.simulation.checks.input_order import InputOrder
from experiments.simulation.checks.migrations import StatesAndOrder
from experiments.simulation.checks.require import broken, require

_NEEDED = Push | Ack | CreditTransfer | Marker | PassedMarkers | RangeTransfer
"""What must come, though its sender ends."""

_BUSY = re.compile("is busy (9[0-9]|100)% of the time")  # what `adaptive` calls busy nearly all of it

Rounds: TypeAlias = Mapping[str, Mapping[int, int]]
"""By stage, the redistributions that the load of each of its tasks has caused."""


class Tally:
    """A number of each task, and their sum."""

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[Address, int] = {}

    def note(self, address: Address, number: int) -> None:
        """A task's number is this now."""
        self.total += number - self._of.get(address, 0)
        self._of[address] = number


class Invariants:
    """Numbers in comments are those of the design's list of invariants (docs/design.md).

    Attributes:
        rounds_at_cut: by stage, the redistributions that each task's load had caused at the last cut.
    """

    def __init__(
        self, graph: Graph, tasks: Mapping[Address, TaskMachine], numbered: Graph | None, rounds: Rounds | None = None
    ) -> None:
        """`numbered`: the graph with all splits, where the value of each record is the number of its row in these;
        `rounds`: those of the run that this one continues."""
        self._tasks = tasks
        self._stages = [_StageInvariants(graph, stage, tasks, numbered) for stage in graph.queue_fed()]
        self._by_name = {stage.name: stage for stage in self._stages}
        for name, of in (rounds or {}).items():
            self._by_name[name].rounds.update(of)
        self.rounds_at_cut: dict[str, Mapping[int, int]] = {}
        self._in_transit: dict[tuple[Address, Address, int], int] = {}
        self._delivered: dict[tuple[Address, Address], int] = {}
        self._at_work: set[Address] = set()
        self._up: set[Address] = {COORDINATOR}
        self._known: dict[tuple[Address, str], Present] = {}
        self._under_way: defaultdict[Address, set[tuple[Address, int]]] = defaultdict(set)
        self._credit = CreditLedger(graph, tasks)
        self._concerned = {
            stage.name: [one for one in self._stages if one.name == stage.name or stage in graph.upstream(one.name)]
            for stage in graph.stages
        }

    def begins_with(self, address: Address, parts: Sequence[StatePart]) -> None:
        """A task has these states and no others, from the start or behind its timers."""
        self._by_name[address.stage].begins_with(address.index, parts)

    def joined(self, address: Address) -> None:
        """A task is started while the job runs."""
        self._credit.joined(address)
        if address.stage in self._by_name:
            self._by_name[address.stage].joined(address)
        for stage in self._stages:
            stage.has_sender(self._tasks[address])

    def stopped(self, addresses: Iterable[Address]) -> None:
        """Tasks are ended."""
        for address in addresses:
            task = self._tasks[address]
            held = isinstance(task, OperatorMachine) and task.has_records
            require(not held, f"{address} was stopped while it had records")  # 1
            require(task.has_emitted_all, f"{address} was stopped before it had emitted all")  # 1
            lost = [to for to, _ in self._under_way[address] if to in self._up]
            require(not lost, f"{address} was stopped while something of it was on its way to {lost[:1]}")  # 1
            self._up.discard(address)
            self._credit.stopped(address)

    def lost(self, address: Address, event: Event) -> None:
        """Something comes for a task that was stopped."""
        idle = isinstance(event, Tick | TasksGone) or (
            isinstance(event, Envelope)
            and (isinstance(event.message, Ack | CreditTransfer | TableUpdate | Drain | GoOn) or self._is_copy(event))
        )
        require(idle, f"{address} was stopped before it had taken {in_words(event)}")  # 1

    def _is_copy(self, envelope: Envelope) -> bool:
        """Whether a message has been taken in before."""
        return envelope.seq < self._delivered.get((envelope.sender, envelope.receiver), 0)

    def started(self, address: Address) -> None:
        """A task is up."""
        self._up.add(address)

    def knows(self, address: Address, present: Present) -> None:
        """A machine learns which tasks of a stage there are."""
        self._known[address, present.stage] = present

    def asked(self, event: Redistribute) -> None:
        """Somebody asks for a redistribution."""
        self._by_name[event.stage].asked()

    def sent(self, envelope: Envelope) -> None:
        """A message leaves its sender."""
        self._credit.sent(envelope)  # 5
        message = envelope.message
        known = self._known.get((envelope.sender, envelope.receiver.stage))
        if known is not None and known.has_gone(envelope.receiver):
            broken(f"{envelope.sender} sent {envelope.receiver} a message, which it knows to be gone")
        if isinstance(message, Begin | Push) or envelope.sender == COORDINATOR:
            early = f"{envelope.receiver} is sent a {type(message).__name__} while it is not up"
            require(envelope.receiver in self._up, early)
        if isinstance(message, SplitRequest | Paused) or (isinstance(message, Progress) and message.done):
            holds = any(emitter.held for emitter in self._tasks[envelope.sender].emitters)
            require(not holds, f"{envelope.sender} sent a {type(message).__name__} while it had records to push")  # 6
        if isinstance(message, _NEEDED):
            self._under_way[envelope.sender].add((envelope.receiver, envelope.seq))
        if isinstance(message, Push):
            stage, rows = self._by_name[envelope.receiver.stage], message.block.rows
            self._in_transit[(envelope.sender, envelope.receiver, envelope.seq)] = rows
            stage.rows_in_transit += rows
            stage.sent_push(envelope, message)
        elif isinstance(message, TableUpdate):
            self._by_name[message.stage].updated(message.change)
        elif isinstance(message, DecisionReport):
            for decision in message.decisions:
                self._by_name[message.stage].decided(decision)
        elif isinstance(message, LastTable):
            self.rounds_at_cut[message.stage] = dict(self._by_name[message.stage].rounds)
        elif isinstance(message, ChangeMembers):
            for stage in self._stages:
                stage.changes(message)

    def received(self, envelope: Envelope, machine: Machine) -> None:
        """A message has reached its receiver, perhaps to wait there for an earlier one."""
        channel = (envelope.sender, envelope.receiver)
        delivered = machine.delivered(envelope.sender)
        for seq in range(self._delivered.get(channel, 0), delivered):
            rows = self._in_transit.pop((*channel, seq), 0)
            if rows:
                self._by_name[envelope.receiver.stage].rows_in_transit -= rows
            self._credit.taken_in(*channel, seq)
            self._under_way[envelope.sender].discard((envelope.receiver, seq))
        self._delivered[channel] = delivered

    def works(self, address: Address, instruction: Instruction) -> None:
        """A task lets user code run."""
        if address in self._at_work:
            name = type(instruction).__name__
            broken(f"{address} was to carry out a {name} while its user code was at work")  # 9
        self._at_work.add(address)
        if isinstance(instruction, ProcessBlocks | NextStep):
            for emitter in self._tasks[address].emitters:
                holds = f"{address} takes up work while it holds {emitter.held} records for {emitter.stage}"
                bound = self._by_name[emitter.stage].in_flight_records
                require(not emitter.held or emitter.held + emitter.in_flight <= bound, holds)  # 5
        if isinstance(instruction, ProcessBlocks):
            for block in instruction.blocks:
                self._by_name[address.stage].acted(address, instruction.version, address.index, block)
        if address.stage in self._by_name:
            self._by_name[address.stage].works(address.index, instruction)  # 4

    def worked(self, address: Address, event: Event) -> None:
        """User code will return with this event."""
        if address.stage in self._by_name:
            self._by_name[address.stage].worked(address.index, event)  # 4

    def rests(self, address: Address) -> None:
        """User code has returned."""
        self._at_work.discard(address)

    def check(self, address: Address) -> None:
        """What must hold when the machine at an address has handled an event."""
        self._credit.check(address)  # 5
        for stage in self._concerned.get(address.stage, ()):
            stage.check(address)

    def check_end(self) -> None:
        """What must hold when the job says that it is done; acknowledgements and statistics may still be in transit."""
        require(not self._in_transit, "the job ended with records in transit")  # 6
        for stage in self._stages:
            stage.check_end()

    def check_quiet(self, machines: Iterable[Machine]) -> None:
        """What must hold when nothing at all is in transit any more."""
        for machine in machines:
            require(machine.idle, f"{machine.address} still waits for a message")  # 6
        self._credit.check_quiet()  # 6
        for stage in self._stages:
            stage.check_quiet()


class _StageInvariants:
    """The invariants of one operator stage and of the edges that enter it."""

    def __init__(
        self, graph: Graph, stage: Stage, tasks: Mapping[Address, TaskMachine], numbered: Graph | None
    ) -> None:
        self._entering = {number for number, _ in graph.into(stage.name)}
        self._tasks = tasks
        self.name = stage.name
        self.in_flight_records = stage.flow.in_flight_records
        self._stage = stage
        self._operators = [task for at in stage.addresses if isinstance(task := tasks[at], OperatorMachine)]
        self._emitters: defaultdict[Address, list[Emitter]] = defaultdict(list)
        self._emitted = Tally()
        self._processed = Tally()
        self._queued = Tally()
        for sender in graph.senders(stage.name):
            self.has_sender(tasks[sender])
        table = stage.first_table()
        self._pacts: dict[int, RoutingTable | Grouping] = {}
        self._tables = {0: table}
        self._changes: dict[int, TableChange] = {}
        self._versions: dict[Address, int] = {}
        self._acted: dict[Address, int] = {}
        self._peaks: dict[Address, int] = defaultdict(int)
        self.rounds: dict[int, int] = defaultdict(int)
        self._migration = StatesAndOrder(stage.name) if stage.migrates else None
        self._asked = 0
        self._order = InputOrder(graph, numbered, stage.name) if stage.migrates and numbered is not None else None
        self._rows_forwarded = 0
        self.rows_in_transit = 0

    def begins_with(self, index: int, parts: Sequence[StatePart]) -> None:
        """A task has these states and no others."""
        if self._migration is not None:
            self._migration.begins_with(index, parts)

    def joined(self, address: Address) -> None:
        """The stage has another task."""
        task = self._tasks[address]
        assert isinstance(task, OperatorMachine) and address.index == len(self._operators)
        self._operators.append(task)

    def has_sender(self, task: TaskMachine) -> None:
        """A task's emitters may send to the stage."""
        self._emitters[task.address] += [emitter for emitter in task.emitters if emitter.edge in self._entering]

    @property
    def _bound(self) -> int:
        """The most records that all its queues can hold together."""
        return sum(map(len, self._emitters.values())) * self.in_flight_records

    def _pact(self, version: int) -> RoutingTable | Grouping:
        """Who may process which key, by the table of a version."""
        if version not in self._pacts:
            table, grouping = self._tables[version], self._stage.grouping
            self._pacts[version] = table if grouping.is_ring else grouping.create(table, 0)
        return self._pacts[version]

    def updated(self, change: TableChange) -> None:
        """A table was published."""
        known = self._changes.setdefault(change.version, change)
        require(known is change, f"two routing tables of {self.name} have version {change.version}")  # 2
        if change.version not in self._tables:
            self._tables[change.version] = change.apply(self._tables[change.version - 1])

    def sent_push(self, envelope: Envelope, push: Push) -> None:
        """Records leave a sender, or a task that forwards them."""
        rows, sender = push.block.rows, envelope.sender
        self._rows_forwarded += rows if push.hops else 0
        require(rows > 0, f"{sender} pushed an empty block")
        often = f"a record was forwarded {push.hops} times in {push.version} tables"
        require(push.hops <= push.version, often)  # 7
        self.acted(sender, push.version, envelope.receiver.index, push.block)
        if self._migration is not None and not push.hops:
            self._migration.emitted(push)

    def works(self, index: int, instruction: Instruction) -> None:
        """A task lets user code run."""
        if self._migration is None:
            return
        pushes = self._operators[index].working_on if isinstance(instruction, ProcessBlocks) else ()
        self._migration.works(index, instruction, pushes)
        if self._order is not None:
            for push in pushes:
                self._order.works(index, push)  # 10

    def changes(self, message: ChangeMembers) -> None:
        """Tasks come and go, perhaps of a source that feeds the stage."""
        if self._order is not None:
            self._order.changes(message.stage, message.change)

    def worked(self, index: int, event: Event) -> None:
        """User code will return with this event."""
        if self._migration is not None:
            self._migration.worked(index, event)

    def acted(self, address: Address, version: int, owner: int, block: Block) -> None:
        """A task gave records to a task of this stage, itself perhaps, by the table of a version."""
        newest = max(self._acted.get(address, 0), self._versions.get(address, 0))  # acted on, or held before this step
        require(version >= newest, f"{address} acted on table {version} when it had table {newest}")  # 3
        self._acted[address] = version
        require(version in self._tables, f"{address} acted on table {version}, which was never published")  # 3
        if not self._stage.grouping.is_ring and address == Address(self.name, owner):
            return  # what came by an older table stays with whoever has it
        allowed = self._pact(version).may_process(owner, block.hashes)
        require(bool(np.all(allowed)), f"{address} gave {self.name} {owner} a key of another task")  # 2

    def check(self, address: Address) -> None:
        """What must hold when the task at an address has handled an event. What others count is as it was, so only this
        task is looked at; words are only made for what is broken: this is much of a simulation."""
        for emitter in self._emitters.get(address, ()):
            if not 0 <= emitter.in_flight <= self.in_flight_records:
                broken(f"a sender has {emitter.in_flight} records in flight towards {self.name}")  # 5
            self._require_growing(address, emitter.table.version)
        self._emitted.note(address, sum(emitter.emitted for emitter in self._emitters.get(address, ())))
        if address.stage == self.name:
            self._check_operator(self._operators[address.index])
        found = self._processed.total + self._queued.total + self.rows_in_transit
        if self._emitted.total != found:
            emitted = f"{self._emitted.total} records emitted to {self.name}"
            broken(f"{emitted}, but {found} processed, queued or in transit")  # 1

    def _check_operator(self, task: OperatorMachine) -> None:
        """What must hold of one of its tasks, and of the queues of all."""
        self._processed.note(task.address, task.processed)
        self._queued.note(task.address, task.queue.length)
        if self._queued.total > self._bound:
            broken(f"{self._queued.total} records are queued at {self.name}, more than {self._bound}")  # 5
        self._peaks[task.address] = max(self._peaks[task.address], task.queue.length)
        self._require_growing(task.address, task.table.version)

    def _require_growing(self, holder: Address, version: int) -> None:
        if version < self._versions.get(holder, 0):
            broken(f"{holder} went back to table {version} of {self.name}")  # 3
        self._versions[holder] = version

    def check_end(self) -> None:
        """What must hold when the job says that it is done."""
        for task in self._operators:
            require(not task.has_records, f"the job ended while {task.address} had records")  # 6
        members = self._tables[max(self._tables)].members
        finals = {self._operators[index].table.version for index in members}
        require(len(finals) == 1, f"tasks of {self.name} merged by different tables: {sorted(finals)}")  # 2
        if self._migration is not None:
            self._migration.check_end()  # 4

    def check_quiet(self) -> None:
        """What must hold when nothing is in transit."""
        forwarded = sum(task.queue.forwarded_out for task in self._operators)
        counted = f"{forwarded} records counted as forwarded, not {self._rows_forwarded}"
        require(forwarded == self._rows_forwarded, counted)
        for task in self._operators:
            within = self._peaks[task.address] <= task.queue.peak <= self._bound
            require(within, f"{task.address} reports a peak queue of {task.queue.peak}")

    def asked(self) -> None:
        """Somebody asks to relieve a task, whatever its load."""
        self._asked += 1

    def decided(self, decision: Decision) -> None:
        """The load balancer decided about this stage."""
        balance = self._stage.balance
        if decision.outcome is not Outcome.APPLIED:
            return
        if self._asked and decision.reason.startswith("asked for"):
            self._asked -= 1
            return
        if not isinstance(balance, TokenOptions):
            # Senders may be what holds the work: then all queues are short, and overload shows in a busy task.
            loaded = (any(decision.loads) or _BUSY.search(decision.reason)) and (decision.moved or decision.split)
            unsplit = "over more tasks than it needs" in decision.reason
            require(bool(loaded or unsplit), f"redistributed without a load reason: {decision}")  # 7
            return
        loads = decision.load_of
        own, second = loads.pop(decision.reducer), max(loads.values(), default=0)
        reason = own > second * (1 + balance.tau) and own >= balance.min_queue
        require(reason, f"redistributed without a load reason: {decision}")  # 7
        self.rounds[decision.reducer] += 1
        within = self.rounds[decision.reducer] <= balance.max_rounds
        require(within, f"task {decision.reducer} caused more than {balance.max_rounds} rounds")  # 7
