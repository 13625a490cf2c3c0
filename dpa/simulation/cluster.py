"""The state machines of `dpa.protocol` in virtual time, under a seeded scheduler that delays, reorders and duplicates.

User code really runs, on real blocks; only time, threads and the network are imagined. The invariants of the protocol
are checked after every step, and a violation carries the seed and the history that led to it.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dpa.errors import DpaError
from dpa.execution.mapping import Mapped, MapTask
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import Reduced, States, states_for
from dpa.protocol.assembly import BalanceOptions, SignalSettings
from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.load_balancer import LoadBalancerMachine
from dpa.protocol.machine import (
    Commit,
    Event,
    Finish,
    FinishDone,
    Fold,
    FoldDone,
    Instruction,
    JobDone,
    Machine,
    MapDone,
    MapNext,
    OpenSplit,
    Pack,
    PackDone,
    Process,
    ProcessDone,
    Send,
    Start,
    Tick,
    Write,
    WriteDone,
)
from dpa.protocol.mapper import MapperMachine
from dpa.protocol.messages import BALANCER, COORDINATOR, Address, Envelope, Role, mapper, reducer
from dpa.protocol.metrics import Snapshot
from dpa.protocol.reducer import ReducerMachine
from dpa.routing.groupings.options import GroupingOptions
from dpa.simulation.history import describe
from dpa.simulation.invariants import Invariants
from dpa.simulation.rounds import PublishedRounds
from dpa.splits import Split


class InvariantViolationError(DpaError):
    """A simulated run broke an invariant: says which, and carries the events that led there."""

    def __init__(self, message: str, history: list[str]) -> None:
        super().__init__(message)
        self.history = history


@dataclass(frozen=True)
class Network:
    """How messages travel: each takes between the two delays (seconds), and may be delivered twice."""

    least_delay: float = 0.0005
    most_delay: float = 0.005
    duplicates: float = 0.0


@dataclass(frozen=True)
class SimulatedJob:
    """A job for the simulator.

    Attributes:
        splits: the input.
        task: what mappers do.
        mappers, reducers: how many there are.
        balance, grouping, signals: as in a job file.
        in_flight_records: credit of each mapper.
        slice_records: most records a reducer processes at a time.
        map_seconds: virtual time to map one record.
        service_seconds: virtual time in which reducer `i` processes one record.
        ticks: how many ticks each task gets, `tick_seconds` apart on average; None: one every `tick_seconds`
            as long as the job runs.
        aggregate_seconds: virtual time from the end of a round of aggregation to the next; None: there are none.
    """

    splits: tuple[Split, ...]
    task: MapTask
    mappers: int = 4
    reducers: int = 4
    balance: BalanceOptions = field(default_factory=BalanceOptions)
    grouping: GroupingOptions = field(default_factory=GroupingOptions)
    signals: SignalSettings = field(default_factory=SignalSettings)
    in_flight_records: int = 100
    slice_records: int = 100
    map_seconds: float = 0.0001
    service_seconds: Callable[[int], float] = lambda reducer: 0.001
    network: Network = Network()
    ticks: int | None = 0
    tick_seconds: float = 0.25
    aggregate_seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """A finished simulated run: the result of each reducer, the statistics, the virtual time of the whole, and what
    each reducer published in each round of aggregation."""

    reduced: tuple[Reduced, ...]
    snapshot: Snapshot
    seconds: float
    steps: int
    rounds: tuple[tuple[Reduced, ...], ...] = ()


class SimulatedCluster:
    """One job's machines, network and virtual clock."""

    def __init__(
        self,
        job: SimulatedJob,
        seed: int,
        *,
        coordinator: type[CoordinatorMachine] = CoordinatorMachine,
        reducer_machine: type[ReducerMachine] = ReducerMachine,
    ) -> None:
        """Tests put deliberately broken machines in the place of `coordinator` and `reducer_machine`."""
        self._job = job
        self._random = random.Random(seed)
        self._clock = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Address, Event]] = []
        self._finished = self._checked_end = False
        self._steps = 0
        self._log: list[tuple[float, Address, Event]] = []
        balancer = LoadBalancerMachine(job.balance.policy(job.reducers), job.mappers)
        table = balancer.table
        delegation = job.signals.delegation(job.grouping, job.mappers * job.in_flight_records // job.reducers)
        options = job.balance.reducer_options(job.slice_records, 0.1, delegation)
        scattered = job.grouping.leaves_home(aggregates=job.aggregate_seconds is not None)
        self.coordinator = coordinator(
            job.splits, job.mappers, job.reducers, job.aggregate_seconds, scattered=scattered
        )
        self.mappers = [
            MapperMachine(index, table, job.in_flight_records, job.grouping.create(table, index))
            for index in range(job.mappers)
        ]
        self.reducers = [reducer_machine(index, table, options) for index in range(job.reducers)]
        self.machines: dict[Address, Machine] = {COORDINATOR: self.coordinator, BALANCER: balancer}
        self.machines |= {mapper(machine.index): machine for machine in self.mappers}
        self.machines |= {reducer(machine.index): machine for machine in self.reducers}
        self._states: list[States] = [states_for(job.task.reducer) for _ in range(job.reducers)]
        self._reduced: dict[int, Reduced] = {}
        self._open: dict[int, Iterator[Mapped]] = {}
        pact = None if job.grouping.is_ring else job.grouping.create(table, 0)
        self._invariants = Invariants(table, self.mappers, self.reducers, job.in_flight_records, job.balance, pact)
        self._rounds = PublishedRounds(table, job.task.key)

    def run(self, most_steps: int = 1_000_000) -> Outcome:
        """Run to the end.

        Raises:
            InvariantViolationError: an invariant was broken, or the job cannot end.
        """
        for address in self.machines:
            if address.role in (Role.COORDINATOR, Role.MAPPER):
                self._schedule(0.0, address, Start())
            ticks, every = self._job.ticks, self._job.tick_seconds
            if ticks is None:
                self._schedule(self._random.uniform(0, every), address, Tick())
            for _ in range(ticks or 0):
                self._schedule(self._random.uniform(0, 2 * (ticks or 0) * every), address, Tick())
        while self._events and self._steps < most_steps:
            self._clock, _, address, event = heapq.heappop(self._events)
            self._log.append((self._clock, address, event))
            self._steps += 1
            try:
                self._step(address, event)
            except (DpaError, AssertionError) as error:
                raise self._violation(str(error) or repr(error)) from error
        if not self._finished:
            raise self._violation("the job did not end: nothing is under way and it is not done")
        if not self._events:
            try:
                self._invariants.check_quiet(self.machines.values())
            except DpaError as error:
                raise self._violation(str(error)) from error
        reduced = tuple(self._reduced[index] for index in range(self._job.reducers))
        rounds = tuple(self._rounds.committed)
        return Outcome(reduced, self.coordinator.snapshot(), self._clock, self._steps, rounds)

    def history(self) -> list[str]:
        """All events so far, a line each."""
        return [describe(*entry) for entry in self._log]

    def _step(self, address: Address, event: Event) -> None:
        machine = self.machines[address]
        if isinstance(event, Tick) and self._job.ticks is None and not self._finished:
            self._schedule(self._job.tick_seconds, address, Tick())
        if isinstance(event, ProcessDone | PackDone | FoldDone | FinishDone | WriteDone):
            self._invariants.rests(address)
        instructions = machine.handle(event, self._clock)
        if isinstance(event, Envelope):
            self._invariants.received(event, machine)
        for instruction in instructions:
            self._execute(address, instruction)
        self._invariants.check()
        if self._finished and not self._checked_end:
            self._checked_end = True
            self._invariants.check_end()

    def _execute(self, address: Address, instruction: Instruction) -> None:
        job, index = self._job, address.index
        match instruction:
            case Send(envelope):
                self._invariants.sent(envelope)
                copies = 2 if self._random.random() < job.network.duplicates else 1
                for _ in range(copies):
                    delay = self._random.uniform(job.network.least_delay, job.network.most_delay)
                    self._schedule(delay, envelope.receiver, envelope)
            case OpenSplit(split):
                self._open[index] = job.task.blocks(split, lambda: self._clock)
            case MapNext():
                step = next(self._open[index], None)
                mapped = 0 if step is None else step.mapped
                self._schedule(self._takes(mapped * job.map_seconds), address, MapDone(step))
            case Commit(number):
                self._rounds.commit(number)
            case JobDone():
                self._finished = True
            case _:
                self._invariants.works(address, instruction)
                self._reduce(address, instruction)

    def _reduce(self, address: Address, instruction: Instruction) -> None:
        """Let a reducer's user code run."""
        job, index = self._job, address.index
        match instruction:
            case Process(block, epoch):
                self._invariants.acted(address, epoch, index, block)
                self._rounds.processed(index, block)
                self._states[index].reduce(block)
                seconds = self._takes(block.rows * job.service_seconds(index))
                self._schedule(seconds, address, ProcessDone(seconds))
            case Pack(table):
                self._rounds.packed(index)
                parts, seconds = self._states[index].pack(table, index), self._takes(0.001)
                self._schedule(seconds, address, PackDone(parts, seconds))
            case Fold(home, parts, number):
                for part in parts:
                    self._states[index].merge(part)
                share = self._states[index].preview(job.task.key).owned(job.task.key, home, index)
                self._rounds.published(index, number, share)
                seconds = self._takes(0.001)
                self._schedule(seconds, address, FoldDone(share.table.num_rows, seconds))
            case Finish(parts):
                for part in parts:
                    self._states[index].merge(part)
                reduced = self._reduced[index] = self._states[index].finish(job.task.key)
                schema = ShareSchema.of(reduced.table, job.task.key)
                self._schedule(self._takes(0.001), address, FinishDone(schema))
            case Write(schema):
                if schema is not None:
                    self._reduced[index] = self._reduced[index].in_schema(schema, job.task.key)
                self._schedule(self._takes(0.001), address, WriteDone())

    def _takes(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.8, 1.2)

    def _schedule(self, delay: float, address: Address, event: Event) -> None:
        heapq.heappush(self._events, (self._clock + delay, next(self._order), address, event))

    def _violation(self, message: str) -> InvariantViolationError:
        return InvariantViolationError(message, self.history())
