"""The state machines of `dpa.protocol` in virtual time, under a seeded scheduler that delays, reorders and duplicates.

User code really runs, on real blocks; only time, threads and the network are simulated. The invariants of the protocol
are checked after every step, and a violation carries the seed and the history that led to it.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dpa.errors import DpaError
from dpa.execution.block import Block
from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.reduce_task import ReduceStage
from dpa.execution.states import Reduced
from dpa.protocol.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.events import (
    Event,
    ExtractDone,
    MergeDone,
    ProcessDone,
    Start,
    StepDone,
    TaskRequest,
    TaskStarted,
    Tick,
    UserCodeDone,
)
from dpa.protocol.graph import MAPPER, REDUCER, Graph, map_reduce
from dpa.protocol.instructions import (
    Answer,
    Commit,
    Instruction,
    JobDone,
    JobFailed,
    MergeStates,
    OpenResult,
    OpenSplit,
    Process,
    Send,
    StartTasks,
    StopTasks,
    Write,
)
from dpa.protocol.machine import Machine
from dpa.protocol.machines import load_balancer_of, task_of
from dpa.protocol.messages import Envelope
from dpa.protocol.metrics import Snapshot
from dpa.protocol.nodes import Placed
from dpa.protocol.operator import OperatorMachine
from dpa.protocol.source import SourceMachine
from dpa.protocol.task import TaskMachine
from dpa.protocol.user_code import StageTask, UserCode
from dpa.protocol.words import describe
from dpa.simulation.hosts import Hosts
from dpa.simulation.invariants import Invariants
from dpa.simulation.pauses import NEVER, Pauses
from dpa.simulation.rounds import PublishedRounds
from dpa.sources.splits import Split

_EXCHANGE_SECONDS = 0.001
"""Virtual time to extract, merge, finish or write states."""


class InvariantViolationError(DpaError):
    """A simulated run broke an invariant: says which, and carries the events that led there."""

    def __init__(self, message: str, history: list[str]) -> None:
        super().__init__(message)
        self.history = history


@dataclass(frozen=True)
class Network:
    """How messages travel: each takes between the two delays (seconds), and may be delivered twice."""

    min_delay: float = 0.0005
    max_delay: float = 0.005
    duplicates: float = 0.0


NETWORK = Network()


@dataclass(frozen=True)
class SimulatedJob:
    """A job for the simulator.

    Attributes:
        graph: its stages and edges.
        work: what the tasks of each stage do.
        step_seconds: virtual time in which a task of a stage makes one record.
        service_seconds: virtual time in which task `index` of a stage processes one record.
        ticks: how many ticks each task gets, `tick_seconds` apart on average; None: one every `tick_seconds`
            as long as the job runs.
        variation: by how much the durations of user code vary, relative to the mean: 0.2 is up to 20 % either way.
        work_of: how many records' worth of work a block is at a stage; by default as many as it has records.
        slowness: the factor by which a task of a stage, by number, takes longer for the records that it begins with at
            a virtual time, in seconds.
        cores: how many cores the tasks of a node share (`Cores`); None: each task has one.
        placed: the node of each task, and how they are placed again; None: all are on one, and nobody measures.
        requests: what the coordinator is asked for, with the virtual times, in seconds.
        start_seconds: virtual time that it takes to start a task.
        pauses: when a task of a stage, by number, does no work. Messages reach it, so its queue fills up; a piece of
            user code that is not done when a pause begins goes on after it.
    """

    graph: Graph
    work: Mapping[str, StageTask]
    step_seconds: Callable[[str], float] = lambda stage: 0.0001
    service_seconds: Callable[[str, int], float] = lambda stage, index: 0.001
    network: Network = NETWORK
    ticks: int | None = 0
    tick_seconds: float = 0.25
    variation: float = 0.2
    work_of: Callable[[str, Block], float] = lambda stage, block: block.rows
    slowness: Callable[[str, int, float], float] = lambda stage, index, now: 1.0
    cores: int | None = None
    placed: Placed | None = None
    requests: tuple[tuple[float, TaskRequest], ...] = ()
    start_seconds: float = 0.0
    pauses: Callable[[str, int], Pauses] = lambda stage, index: NEVER


def map_reduce_job(
    splits: Iterable[Split],
    task: MapTask,
    *,
    mappers: int = 4,
    reducers: int = 4,
    map_seconds: float = 0.0001,
    service_seconds: Callable[[int], float] = lambda reducer: 0.001,
    network: Network = NETWORK,
    ticks: int | None = 0,
    tick_seconds: float = 0.25,
    **options: Any,
) -> SimulatedJob:
    """The smallest graph as a simulated job.

    Args:
        splits: the input.
        task: what mappers do, and the reducer.
        mappers, reducers: how many tasks of each.
        map_seconds: virtual time to map one record.
        service_seconds: virtual time in which reducer `i` processes one record.
        network, ticks, tick_seconds: as of `SimulatedJob`.
        options: of the reduce stage, as in `dpa.protocol.graph.Stage`.
    """
    options = {"in_flight_records": 100, "quantum_records": 100, **options}
    return SimulatedJob(
        map_reduce(tuple(splits), mappers, reducers, **options),
        {MAPPER: Emission((task,)), REDUCER: ReduceStage(task.reducer, task.key)},
        lambda stage: map_seconds,
        lambda stage, index: service_seconds(index),
        network,
        ticks,
        tick_seconds,
    )


@dataclass(frozen=True)
class SimulatedRun:
    """A finished simulated run.

    Attributes:
        shares: the result of each task of each queue-fed stage.
        snapshot: the statistics.
        seconds: the virtual time of the whole.
        steps: how many events there were.
        rounds: what each task of a stage published in each round of aggregation.
        answers: what became of the requests that somebody waits for, by their numbers.
    """

    shares: Mapping[str, tuple[Reduced, ...]]
    snapshot: Snapshot
    seconds: float
    steps: int
    rounds: Mapping[str, tuple[tuple[Reduced, ...], ...]]
    answers: Mapping[int, Answer] = field(default_factory=dict)


class SimulatedCluster:
    """One job's machines, network and virtual clock.

    Attributes:
        coordinator, tasks, machines: the state machines, by address.
        user_code: of each task.
        writes: how each task delivered its share.
    """

    def __init__(
        self,
        job: SimulatedJob,
        seed: int,
        *,
        coordinator: type[CoordinatorMachine] = CoordinatorMachine,
        source: type[SourceMachine] = SourceMachine,
        operator: type[OperatorMachine] = OperatorMachine,
    ) -> None:
        """Tests put deliberately broken machines in the place of these, and experiments some that take notes."""
        self._job = job
        self._random = random.Random(seed)
        self._clock = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Address, Event]] = []
        self._finished = self._checked_end = False
        self._failure: str | None = None
        self._steps = 0
        self._log: list[tuple[float, Address, Event]] = []
        self._stopped: set[Address] = set()
        self._answers: dict[int, Answer] = {}
        self._make = partial(task_of, job.graph, source=source, operator=operator)
        graph = job.graph
        self.coordinator = coordinator(graph, None if job.placed is None else job.placed.online)
        self.tasks: dict[Address, TaskMachine] = {address: self._make(address) for address in graph.addresses}
        self.machines: dict[Address, Machine] = {
            COORDINATOR: self.coordinator,
            BALANCER: load_balancer_of(graph),
            **self.tasks,
        }
        self.user_code = {address: self._user_code_of(address) for address in graph.addresses}
        self.writes: dict[Address, Write] = {}
        self._hosts = Hosts(job.placed, job.cores)
        self._invariants = Invariants(graph, self.tasks)
        self._rounds = {
            stage.name: PublishedRounds(stage.first_table(), stage_task.key)
            for stage in graph.queue_fed()
            if stage.aggregate_seconds is not None and isinstance(stage_task := job.work[stage.name], ReduceStage)
        }

    def _user_code_of(self, address: Address) -> UserCode:
        return UserCode(self._job.work[address.stage], address.index, lambda: self._clock)

    def run(self, max_steps: int = 1_000_000) -> SimulatedRun:
        """Run to the end.

        Raises:
            InvariantViolationError: an invariant was broken, or the job cannot end.
        """
        self._schedule(0.0, COORDINATOR, Start())
        for at, request in self._job.requests:
            self._schedule(at, COORDINATOR, request)
        for address in self.machines:
            self._schedule_ticks(address)
        while self._events and self._steps < max_steps and self._failure is None:
            self._clock, _, address, event = heapq.heappop(self._events)
            self._log.append((self._clock, address, event))
            self._steps += 1
            try:
                self._step(address, event)
            except (DpaError, AssertionError) as error:
                raise self._violation(str(error) or repr(error)) from error
        if self._failure is not None:
            raise self._violation(f"the job failed: {self._failure}")
        if not self._finished:
            raise self._violation("the job did not end: nothing is in transit and it is not done")
        if not self._events:
            try:
                alive = [machine for address, machine in self.machines.items() if address not in self._stopped]
                self._invariants.check_quiet(alive)
            except DpaError as error:
                raise self._violation(str(error)) from error
        return SimulatedRun(
            {
                stage.name: tuple(
                    self.user_code[address].operator.share for address in self.coordinator.stages[stage.name].addresses
                )
                for stage in self._job.graph.queue_fed()
            },
            self.coordinator.snapshot(),
            self._clock,
            self._steps,
            {
                stage.name: tuple(self._rounds[stage.name].committed) if stage.name in self._rounds else ()
                for stage in self._job.graph.queue_fed()
            },
            dict(self._answers),
        )

    @property
    def log(self) -> tuple[tuple[float, Address, Event], ...]:
        """All events so far: when each came, in virtual seconds, to whom, and what it was."""
        return tuple(self._log)

    def history(self) -> list[str]:
        """All events so far, a line each."""
        return [describe(*entry) for entry in self._log]

    def _schedule_ticks(self, address: Address) -> None:
        ticks, every = self._job.ticks, self._job.tick_seconds
        if ticks is None:
            self._schedule(self._random.uniform(0, every), address, Tick())
        for _ in range(ticks or 0):
            self._schedule(self._random.uniform(0, 2 * (ticks or 0) * every), address, Tick())

    def _step(self, address: Address, event: Event) -> None:
        if address in self._stopped:
            self._invariants.lost(address, event)
            return
        machine = self.machines[address]
        if isinstance(event, Tick) and self._job.ticks is None and not self._finished:
            self._schedule(self._job.tick_seconds, address, Tick(use=self._hosts.use(address)))
        if isinstance(event, UserCodeDone):
            self._invariants.rests(address)
            self._hosts.end(address)
        if isinstance(event, TaskStarted):
            self._invariants.started(event.address)
        instructions = machine.handle(event, self._clock)
        if isinstance(event, Envelope):
            self._invariants.received(event, machine)
        for instruction in instructions:
            self._execute(address, instruction)
        self._invariants.check(address)
        if self._finished and not self._checked_end:
            self._checked_end = True
            self._invariants.check_end()

    def _execute(self, address: Address, instruction: Instruction) -> None:
        job = self._job
        match instruction:
            case Send(envelope):
                self._invariants.sent(envelope)
                self._hosts.sent(envelope)
                copies = 2 if self._random.random() < job.network.duplicates else 1
                for _ in range(copies):
                    delay = self._random.uniform(job.network.min_delay, job.network.max_delay)
                    self._schedule(delay, envelope.receiver, envelope)
            case StartTasks() | StopTasks() | Answer():
                self._manage(instruction)
            case OpenSplit() | OpenResult():
                self.user_code[address].carry_out(instruction)
            case Commit(stage, number):
                self._rounds[stage].commit(number)
            case JobDone():
                self._finished = True
            case JobFailed(reason):
                self._failure = reason
            case _:
                if isinstance(instruction, Write):
                    self.writes[address] = instruction
                self._invariants.works(address, instruction)
                event, seconds = self._user_code(address, instruction)
                self._invariants.worked(address, event)
                seconds = job.pauses(address.stage, address.index).lasting(self._clock, seconds)
                self._schedule(seconds, address, event)

    def _manage(self, instruction: StartTasks | StopTasks | Answer) -> None:
        """Start or stop tasks, or keep an answer."""
        match instruction:
            case StartTasks(addresses, nodes):
                for place, started in enumerate(addresses):
                    self._hosts.started(started, nodes[place] if nodes else None)
                for new in [one for one in addresses if one not in self.machines]:
                    self.machines[new] = self.tasks[new] = self._make(new)
                    self.user_code[new] = self._user_code_of(new)
                    self._invariants.joined(new)
                    self._schedule_ticks(new)
                network = self._job.network
                for started in addresses:
                    delay = self._random.uniform(network.min_delay, network.max_delay)
                    self._schedule(self._job.start_seconds + delay, COORDINATOR, TaskStarted(started))
            case StopTasks(addresses):
                self._stopped |= set(addresses)
                self._invariants.stopped(addresses)
            case Answer(int(request)):
                self._answers[request] = instruction

    def _user_code(self, address: Address, instruction: Instruction) -> tuple[Event, float]:
        """Run a piece of user code; returns the event that answers it, and its duration without pauses (seconds)."""
        if address.stage in self._rounds:
            self._rounds[address.stage].works(address.index, instruction)
        event = self.user_code[address].carry_out(instruction)
        assert event is not None
        if isinstance(instruction, MergeStates):
            share = self.user_code[address].partial_share()
            self._rounds[address.stage].published(address.index, instruction.round, share)
        variation = self._job.variation
        seconds = self._random.uniform(1 - variation, 1 + variation) * self._mean_seconds(address, instruction, event)
        waited = self._hosts.begin(address, seconds)
        seconds += waited  # as a clock on the wall sees it
        if isinstance(event, StepDone | ProcessDone | ExtractDone | MergeDone):
            event = replace(event, seconds=seconds)
        if isinstance(event, ProcessDone):
            event = replace(event, waited=waited)
        return event, seconds

    def _mean_seconds(self, address: Address, instruction: Instruction, event: Event) -> float:
        """How long a piece of user code takes on average, on a core of its own."""
        job, stage, index = self._job, address.stage, address.index
        if isinstance(event, StepDone):
            records = 0 if event.step is None else event.step.mapped
            return records * job.step_seconds(stage) * job.slowness(stage, index, self._clock)
        if isinstance(instruction, Process):
            work = job.work_of(stage, instruction.block)
            return work * job.service_seconds(stage, index) * job.slowness(stage, index, self._clock)
        return _EXCHANGE_SECONDS

    def _schedule(self, delay: float, address: Address, event: Event) -> None:
        heapq.heappush(self._events, (self._clock + delay, next(self._order), address, event))

    def _violation(self, message: str) -> InvariantViolationError:
        return InvariantViolationError(message, self.history())
