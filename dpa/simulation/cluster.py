"""The state machines of `dpa.protocol` in virtual time, under a seeded scheduler that delays, reorders and duplicates.

User code really runs, on real blocks; only time, threads and the network are simulated. The invariants of the protocol
are checked after every step, and a violation carries the seed and the history that led to it.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from dpa.errors import DpaError, JobFailedError
from dpa.execution.reduce_task import ReduceStage
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.history.words import describe
from dpa.protocol.machine import Machine
from dpa.protocol.machines import task_of
from dpa.protocol.restore import begins_with
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, RESERVED, Address
from dpa.protocol.wire.cut import Cut
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import (
    CheckpointFailed,
    CheckpointWritten,
    Event,
    ExtractDone,
    FailureKind,
    MergeDone,
    ProcessDone,
    Redistribute,
    Start,
    StartFailed,
    StepDone,
    TaskDied,
    TasksGone,
    TaskStarted,
    Tick,
    UserCodeDone,
)
from dpa.protocol.wire.instructions import (
    Answer,
    CancelStart,
    CloseSplit,
    Commit,
    Instruction,
    JobDone,
    JobFailed,
    MergeStates,
    OpenResult,
    OpenSplit,
    ProcessBlock,
    Send,
    StartTasks,
    StopTasks,
    WriteCheckpoint,
)
from dpa.simulation._hosts import Hosts
from dpa.simulation._invariants import Invariants
from dpa.simulation._require import require
from dpa.simulation._rounds import PublishedRounds
from dpa.simulation.job import SimulatedJob, SimulatedRun

_EXCHANGE_SECONDS = 0.001
"""Virtual time to extract, merge, finish or write states."""


class InvariantViolationError(DpaError):
    """A simulated run broke an invariant: says which, and carries the events that led there."""

    def __init__(self, message: str, history: list[str]) -> None:
        super().__init__(message)
        self.history = history


@dataclass(frozen=True, eq=False)
class _StartEnds:
    """The driver's own: tasks that are to come while records flow are up now, unless they cannot be started."""

    addresses: tuple[Address, ...]
    nodes: tuple[str | None, ...]


class SimulatedCluster:
    """One job's machines, network and virtual clock.

    Attributes:
        graph: the job's stages and edges.
        coordinator, balancer, tasks, machines: the state machines, by address.
        user_code: of each task.
        answers: what became of the requests that somebody waits for, by their numbers.
        checkpoints: the cuts that have been written; snapshots are pickled.
    """

    def __init__(
        self,
        job: SimulatedJob,
        seed: int,
        *,
        coordinator: type[CoordinatorMachine] = CoordinatorMachine,
        source: type[SourceMachine] = SourceMachine,
        operator: type[OperatorMachine] = OperatorMachine,
        watch: Callable[[SimulatedCluster], None] | None = None,
    ) -> None:
        """Tests put deliberately broken machines in the place of these, and experiments some that take notes; `watch`
        is called after every event of the coordinator and of the load balancer."""
        self._job = job
        self._watch = watch
        self._random = random.Random(seed)
        self._starts = random.Random(f"starts of {seed}")
        self._late = random.Random(f"ends of {seed}")
        self._clock = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Address, Event | _StartEnds]] = []
        self._finished = self._checked_end = False
        self._failure: str | None = None
        self._steps = 0
        self._log: list[tuple[float, Address, Event]] = []
        self._starting: _StartEnds | None = None
        self._stopped: set[Address] = set()
        self._dead: set[Address] = set()
        self.answers: dict[int, Answer] = {}
        self.checkpoints: list[Cut] = []
        self._make = partial(task_of, job.graph, source=source, operator=operator)
        self.graph = graph = job.graph
        self.coordinator = coordinator(graph, None if job.placed is None else job.placed.online)
        self.balancer = load_balancer_of(graph)
        self.tasks: dict[Address, TaskMachine] = {address: self._make(address) for address in graph.addresses}
        self.machines: dict[Address, Machine] = {
            COORDINATOR: self.coordinator,
            BALANCER: self.balancer,
            **self.tasks,
        }
        self.user_code = {address: self._user_code_of(address) for address in graph.addresses}
        self._hosts = Hosts(job.placed, job.cores)
        self._invariants = Invariants(graph, self.tasks, (job.whole or graph) if job.numbered else None)
        self._rounds = {
            stage.name: PublishedRounds(stage.first_table(), stage_task.key)
            for stage in graph.queue_fed()
            if stage.aggregate_seconds is not None and isinstance(stage_task := job.work[stage.name], ReduceStage)
        }
        self._restore()

    def _user_code_of(self, address: Address) -> UserCode:
        work, delivery = self._job.work[address.stage], self._job.deliveries.get(address.stage)
        return UserCode(work, address.index, lambda: self._clock, delivery, lambda slot, found: pickle.dumps(found))

    def _restore(self) -> None:
        """Let tasks begin with the states that the job begins with."""
        for stage, snapshots in self._job.begins_with.items():
            for address in self.graph[stage].addresses:
                task = self.user_code[address].reduce_task
                task.restore(*begins_with(self.graph[stage], snapshots, address.index))
                part = task.snapshot().part
                if part is not None:
                    self._invariants.begins_with(address, part)
                    if stage in self._rounds:
                        self._rounds[stage].begins_with(address.index, part)

    def run(self, max_steps: int = 1_000_000) -> SimulatedRun:
        """Run to the end.

        Raises:
            InvariantViolationError: an invariant was broken, or the job cannot end.
            JobFailedError: a task died, as the job says.
        """
        self._schedule(0.0, COORDINATOR, Start())
        for at, request in self._job.requests:
            self._schedule(at, BALANCER if isinstance(request, Redistribute) else COORDINATOR, request)
        for at, task in self._job.deaths:
            self._schedule(at, task, TaskDied(task, FailureKind.DIED, "the simulated job has it die now"))
        for address in self.machines:
            self._schedule_ticks(address)
        while self._events and self._steps < max_steps and self._failure is None:
            self._clock, _, address, event = heapq.heappop(self._events)
            self._steps += 1
            try:
                if isinstance(event, _StartEnds):
                    self._end_start(event)
                else:
                    self._log.append((self._clock, address, event))
                    self._step(address, event)
            except Exception as error:  # no machine may fail in any way
                raise self._violation(str(error) if isinstance(error, DpaError) else repr(error)) from error
        if self._failure is not None and self._dead:
            raise JobFailedError(self._failure)
        if self._failure is not None:
            raise self._violation(f"the job failed: {self._failure}")
        if not self._finished:
            raise self._violation("the job did not end: nothing is in transit and it is not done")
        if not self._events and not self._dead:
            try:
                alive = [machine for address, machine in self.machines.items() if address not in self._stopped]
                self._invariants.check_quiet(alive)
            except DpaError as error:
                raise self._violation(str(error)) from error
        return SimulatedRun(
            {
                stage.name: tuple(
                    self.user_code[address].reduce_task.share
                    for address in self.coordinator.stages[stage.name].addresses
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
            dict(self.answers),
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
        if address in self._dead:
            return
        if isinstance(event, TaskDied) and address != COORDINATOR:
            self._die(event)
            return
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
        if isinstance(event, Redistribute):
            self._invariants.asked(event)
        if isinstance(event, TasksGone):
            self._invariants.knows(address, event.present)
            self._hosts.learns(address, event.present)
        instructions = machine.handle(event, self._clock)
        if isinstance(event, Envelope):
            self._invariants.received(event, machine)
        for instruction in instructions:
            self._execute(address, instruction)
        self._invariants.check(address)
        if self._watch is not None and address.stage in RESERVED:
            self._watch(self)
        if self._finished and not self._checked_end:
            self._checked_end = True
            self._invariants.check_end()

    def _die(self, event: TaskDied) -> None:
        """A task dies, if it is there; the coordinator learns of it later."""
        if event.address in self.machines and event.address not in self._stopped:
            self._dead.add(event.address)
            self._schedule(self._job.network.max_delay, COORDINATOR, event)

    def _execute(self, address: Address, instruction: Instruction) -> None:
        job = self._job
        match instruction:
            case Send(envelope):
                self._invariants.sent(envelope)
                self._hosts.sent(envelope)
                copies = 2 if self._random.random() < job.network.duplicates else 1
                for _ in range(copies):
                    self._schedule(job.network.delay(self._random), envelope.receiver, envelope)
            case StartTasks() | CancelStart() | StopTasks() | Answer():
                self._manage(instruction)
            case OpenSplit() | CloseSplit() | OpenResult():
                self.user_code[address].carry_out(instruction)
            case WriteCheckpoint(cut):
                self._write(cut)
            case Commit(stage, number):
                self._rounds[stage].commit(number)
            case JobDone():
                self._finished = True
            case JobFailed(reason):
                self._failure = reason
            case _:
                self._invariants.works(address, instruction)
                event, seconds = self._user_code(address, instruction)
                self._invariants.worked(address, event)
                seconds = job.lasting(address.stage, address.index, self._clock, seconds)
                self._schedule(seconds, address, event)

    def _write(self, cut: Cut) -> None:
        seconds = self._starts.uniform(0, self._job.write_seconds)
        failed = self._starts.random() < self._job.write_failures
        if not failed:
            self.checkpoints.append(cut)
        slot = cut.slot + (not failed)
        event = CheckpointFailed("the disk is full", slot) if failed else CheckpointWritten(slot)
        self._schedule(seconds, COORDINATOR, event)

    def _manage(self, instruction: StartTasks | CancelStart | StopTasks | Answer) -> None:
        """Start or stop tasks, or keep an answer."""
        match instruction:
            case StartTasks(addresses, nodes) if addresses[0] in self.machines:
                self._are_up(addresses, nodes)
            case StartTasks(addresses, nodes):
                self._starting = _StartEnds(addresses, nodes)
                self._schedule(self._job.start_seconds, COORDINATOR, self._starting)
            case CancelStart():
                if self._starting is not None:
                    self._events = [entry for entry in self._events if entry[3] is not self._starting]
                    heapq.heapify(self._events)
                    self._not_up(self._starting, "was not to start any more")
            case StopTasks(addresses, present):
                self._stopped |= set(addresses)
                self._invariants.stopped(addresses)
                for address in self.machines:
                    if address not in self._stopped:
                        self._schedule(self._job.network.delay(self._late), address, TasksGone(present))
            case Answer(int(request)):
                self.answers[request] = instruction

    def _end_start(self, start: _StartEnds) -> None:
        name = start.addresses[0].stage
        require(not self.coordinator.stages[name].has_nothing_left, f"{name} was open for tasks that were not up")
        if self._starts.random() < self._job.start_failures:
            self._not_up(start, "did not start")
            return
        self._starting = None
        for new in start.addresses:
            self.machines[new] = self.tasks[new] = self._make(new)
            self.user_code[new] = self._user_code_of(new)
            self._invariants.joined(new)
            self._schedule_ticks(new)
        self._are_up(start.addresses, start.nodes)

    def _not_up(self, start: _StartEnds, why: str) -> None:
        self._starting = None
        self._schedule(self._job.network.max_delay, COORDINATOR, StartFailed(f"{start.addresses[0]} {why}"))

    def _are_up(self, addresses: tuple[Address, ...], nodes: tuple[str | None, ...]) -> None:
        for place, started in enumerate(addresses):
            self._hosts.started(started, nodes[place] if nodes else None)
            self._schedule(self._job.network.delay(self._random), COORDINATOR, TaskStarted(started))

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
        if isinstance(event, StepDone) and event.step is not None:
            made = self.tasks[address].mapped + event.step.mapped
            seconds = max(seconds, self._job.due(address.stage, address.index, made) - self._clock)
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
        if isinstance(instruction, ProcessBlock):
            work = job.work_of(stage, instruction.block)
            return work * job.service_seconds(stage, index) * job.slowness(stage, index, self._clock)
        return _EXCHANGE_SECONDS

    def _schedule(self, delay: float, address: Address, event: Event | _StartEnds) -> None:
        heapq.heappush(self._events, (self._clock + delay, next(self._order), address, event))

    def _violation(self, message: str) -> InvariantViolationError:
        return InvariantViolationError(message, self.history())
