"""The state machines of `dpa.protocol` in virtual time, under a seeded scheduler that delays, reorders and duplicates.

User code really runs, on real blocks; only time, threads and the network are simulated. The invariants of the protocol
are checked after every step, and a violation carries the seed and the history that led to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from dpa.errors import ClaimLostError, DpaError, JobFailedError
from dpa.local.machines import LocalMachines
from dpa.protocol.checkpointing import Checkpointing
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.history.recording import in_words
from dpa.protocol.machines import task_of
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.task.user_code import UserCode
from dpa.protocol.wire.addresses import COORDINATOR, RESERVED, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.epochs import EndedEpoch
from dpa.protocol.wire.events import (
    CheckpointWritten,
    Committed,
    Event,
    FailureKind,
    Redistribute,
    SnapshotMarked,
    StartFailed,
    TaskDied,
    TasksGone,
    TaskStarted,
    Tick,
    UserCodeDone,
)
from dpa.protocol.wire.instructions import Answer, Commit, Instruction, Poll, Send
from dpa.protocol.wire.messages.cuts import GoOn
from dpa.protocol.wire.snapshots import JobSnapshot
from experiments.simulation._hosts import Hosts
from experiments.simulation._saving import KeptCuts, Saving, StoredCheckpoints
from experiments.simulation._user_codes import UserCodes
from experiments.simulation._ways import OnTheWay, Ways
from experiments.simulation.checks.invariants import Invariants, Rounds
from experiments.simulation.checks.require import require
from experiments.simulation.job import SimulatedJob, SimulatedRun
from experiments.simulation.violation import InvariantViolationError


@dataclass(frozen=True, eq=False)
class StartEnds:
    """The driver's own event: tasks that are to come while records flow are up now, unless they cannot be started."""

    addresses: tuple[Address, ...]
    nodes: tuple[str | None, ...]


_Own: TypeAlias = StartEnds | JobSnapshot | UserCode | OnTheWay
"""What a driver ends: a start, or the writing of a checkpoint, or of a task's part of one; or what relays do."""


class SimulatedCluster(LocalMachines):
    """The machines of one generation of a job on a network that delays, reorders and duplicates.

    Attributes:
        answers: what became of the requests that somebody waits for, by their numbers.
        saving: where its checkpoints are.
        checkpoints: the cuts that have been written.
        rounds: by the epochs of cuts and by stage, the redistributions that each task's load had caused by then.
        dead: the tasks whose processes were killed.
        is_fenced: whether another generation has taken its checkpoints over.
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
        generation: int = 0,
        checkpointing: Checkpointing | None = None,
        overheard: Callable[[Envelope], None] | None = None,
        committed: Callable[[Commit], None] = lambda commit: None,
    ) -> None:
        """Tests put deliberately broken machines in the place of these, and experiments some that take notes; `watch`
        is called after every event of the coordinator and of the load balancer, `overheard` with every message that is
        sent, `committed` with all that is committed. `checkpointing`: where the checkpoints of this generation are;
        None: all are kept."""
        graph = job.graph
        super().__init__(
            graph,
            coordinator(graph, None if job.placed is None else job.placed.online),
            partial(task_of, graph, source=source, operator=operator),
            generation=generation,
        )
        self._job = job
        self._watch = watch
        self._overheard = overheard
        self._committed = committed
        self.saving: Saving = KeptCuts(job, seed) if checkpointing is None else StoredCheckpoints(checkpointing)
        self._random = random.Random(seed)
        self._starts = random.Random(f"starts of {seed}")
        self._late = random.Random(f"ends of {seed}")
        self._commits = random.Random(f"commits of {seed}")
        self.is_fenced = self._checked_end = False
        self._log: list[tuple[float, Address, Event]] = []
        self._starting: StartEnds | None = None
        self.dead: set[Address] = set()
        self.answers: dict[int, Answer] = {}
        self.checkpoints: list[JobSnapshot] = []
        self.rounds: dict[int, Rounds] = {}
        self.ended: list[EndedEpoch] = []
        self._ways = Ways(job, seed, self._random, self.schedule, lambda: self.clock)
        self._hosts = Hosts(job.placed, job.cores)
        numbered = (job.whole or graph) if job.numbered else None
        self._invariants = Invariants(graph, self.tasks, numbered, job.rounds)
        self._user_codes = UserCodes(
            job, self.saving, self.tasks, self._hosts, self._invariants, lambda: self.clock, self._random
        )
        self.user_code = self._user_codes.of
        for address in graph.addresses:
            self.begin(address)
        for at, address, event in job.first_events():
            self.schedule(at, address, event)
        for address in self.machines:
            self._schedule_ticks(address)

    def run(self, max_steps: int = 1_000_000) -> SimulatedRun:
        """Run to the end.

        Raises:
            InvariantViolationError: an invariant was broken, or the job cannot end.
            JobFailedError: a task died, as the job says.
        """
        while self.agenda and self.steps < max_steps and self.failure is None:
            self.step()
        return self.outcome()

    @property
    def next_at(self) -> float | None:
        """The virtual time of the next event; None: there is none."""
        return self.agenda.next_at

    def step(self) -> None:
        """Let the next event come.

        Raises:
            InvariantViolationError: an invariant was broken.
        """
        address, event = self.agenda.take()
        self.steps += 1
        try:
            if isinstance(event, _Own):
                self._end(address, event)
            else:
                self._log.append((self.clock, address, event))
                self.handle(address, event)
        except Exception as error:  # no machine may fail in any way
            raise self._violation(str(error) if isinstance(error, DpaError) else repr(error)) from error

    def outcome(self) -> SimulatedRun:
        """What a run that has ended gives back.

        Raises:
            InvariantViolationError: an invariant was broken, or the job cannot end.
            JobFailedError: a task died, as the job says.
        """
        if self.failure is not None and self.dead:
            raise JobFailedError(self.failure)
        if self.failure is not None:
            raise self._violation(f"the job failed: {self.failure}")
        if not self.is_finished:
            raise self._violation("the job did not end: nothing is in transit and it is not done")
        if not self.agenda and not self.dead:
            try:
                alive = [machine for address, machine in self.machines.items() if address not in self.stopped]
                self._invariants.check_quiet(alive)
            except DpaError as error:
                raise self._violation(str(error)) from error
        return self._user_codes.result(self.coordinator, self.clock, self.steps, self.answers)

    @property
    def log(self) -> tuple[tuple[float, Address, Event], ...]:
        """All events so far: when each came, in virtual seconds, to whom, and what it was."""
        return tuple(self._log)

    def history(self) -> list[str]:
        """All events so far, a line each."""
        return [f"{at:10.6f}  {receiver!s:<12} {in_words(event)}" for at, receiver, event in self._log]

    @property
    def pending(self) -> list[Event | _Own]:
        """What is to come: messages on their way, and checkpoints that are being written, among it."""
        return self.agenda.events

    def arrives(self, envelope: Envelope, delay: float, at: Address) -> None:
        """Let a message of another generation come to an address after a while, if there is anybody then."""
        self.schedule(delay, at, envelope)

    def kill(self, address: Address, why: str = "it was killed") -> None:
        """Kill the process of a machine, if it is there. The coordinator learns of it later, but for its own."""
        if address in self.machines and address not in self.stopped:
            self.dead.add(address)
            if address != COORDINATOR:
                self.schedule(self._job.network.max_delay, COORDINATOR, TaskDied(address, FailureKind.DIED, why))

    @property
    def alive(self) -> list[Address]:
        """The machines that there are now."""
        return [address for address in self.machines if address not in self.stopped | self.dead]

    def _schedule_ticks(self, address: Address) -> None:
        ticks, every = self._job.ticks, self._job.tick_seconds
        if ticks is None:
            self.schedule(self._random.uniform(0, every), address, Tick())
        for _ in range(ticks or 0):
            self.schedule(self._random.uniform(0, 2 * (ticks or 0) * every), address, Tick())

    def handle(self, address: Address, event: Event) -> None:
        if address in self.dead:
            return
        if isinstance(event, TaskDied) and address != COORDINATOR:
            self.kill(address, event.cause)
            return
        if address not in self.machines or address in self.stopped:
            if not (isinstance(event, Envelope) and event.generation < self.generation):
                self._invariants.lost(address, event)
            return
        machine = self.machines[address]
        if isinstance(event, Tick) and self._job.ticks is None and not self.is_finished:
            self.schedule(self._job.tick_seconds, address, Tick(use=self._hosts.use(address)))
        self._note(address, event)
        instructions = machine.handle(event, self.clock)
        if isinstance(event, Envelope) and event.generation == self.generation:
            self._invariants.received(event, machine)
        for instruction in instructions:
            self.execute(address, instruction)
        self._ways.flush()
        self._invariants.check(address)
        if any(isinstance(each, Send) and isinstance(each.envelope.message, GoOn) for each in instructions):
            self._user_codes.cut_is_over(self.coordinator)
        if self._watch is not None and address.stage in RESERVED:
            self._watch(self)
        if self.is_finished and not self._checked_end:
            self._checked_end = True
            self._invariants.check_end()

    def _note(self, address: Address, event: Event) -> None:
        """Let checks and hosts know of an event that a machine is about to take in."""
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

    def send(self, envelope: Envelope) -> None:
        self._invariants.sent(envelope)
        self._hosts.sent(envelope)
        if self._overheard is not None:
            self._overheard(envelope)
        self._ways.send(envelope)

    def write(self, cut: JobSnapshot) -> None:
        self.rounds[cut.epoch] = {**self._invariants.rounds_at_cut}
        self.schedule(self._starts.uniform(0, self._job.write_seconds), COORDINATOR, cut)

    def poll(self, poll: Poll) -> None:
        if poll.for_lag:  # nothing is drawn: looking at a run does not change it
            self.schedule(0.01, COORDINATOR, self._job.lags(poll))
            return
        delay = self._starts.uniform(0.001, 0.05)
        self.schedule(delay, COORDINATOR, self._job.polled(poll.stage, poll.position, self._starts))

    def commit(self, commit: Commit) -> None:
        self._user_codes.commit(commit)
        self._committed(commit)
        self.schedule(
            self._job.network.delay(self._commits), COORDINATOR, Committed(commit.stage, commit.epoch, commit.output)
        )

    def begin(self, address: Address) -> None:
        self._user_codes.start(address)

    def work(self, address: Address, instruction: Instruction) -> None:
        job = self._job
        self._invariants.works(address, instruction)
        event, seconds = self._user_codes.carry_out(address, instruction)
        self._invariants.worked(address, event)
        seconds = job.lasting(address.stage, address.index, self.clock, seconds)
        self.schedule(seconds, address, event)
        if isinstance(event, SnapshotMarked):
            self.schedule(seconds + self._late.uniform(0, job.write_seconds), address, self.user_code[address])

    def _end(self, address: Address, event: _Own) -> None:
        """Let something end that a machine, if it is alive, has its driver do."""
        if address in self.dead | self.stopped:
            return
        if isinstance(event, OnTheWay):
            return event.happens()
        if isinstance(event, UserCode):
            return self.schedule(0.0, address, event.write_snapshot())
        if isinstance(event, StartEnds):
            return self._end_start(event)
        try:
            written = self.saving.write(event)
        except ClaimLostError as error:
            self.is_fenced, self.failure = True, str(error)
            return
        if isinstance(written, CheckpointWritten):
            self.checkpoints.append(event)
        self.schedule(0.0, COORDINATOR, written)

    def start(self, addresses: tuple[Address, ...], nodes: tuple[str | None, ...]) -> None:
        if addresses[0] in self.machines:
            self._are_up(addresses, nodes)
        else:
            self._starting = StartEnds(addresses, nodes)
            self.schedule(self._job.start_seconds, COORDINATOR, self._starting)

    def cancel_start(self) -> None:
        if self._starting is not None:
            self.agenda.cancel(self._starting)
            self._not_up(self._starting, "was not to start any more")

    def stop(self, addresses: tuple[Address, ...], present: Present) -> None:
        self.stopped |= set(addresses)
        self._invariants.stopped(addresses)
        self._ways.part(present)
        for address in self.machines:
            if address not in self.stopped:
                self.schedule(self._job.network.delay(self._late), address, TasksGone(present))

    def answer(self, answer: Answer) -> None:
        if answer.request is not None:
            self.answers[answer.request] = answer

    def log_epoch(self, ended: EndedEpoch) -> None:
        self.ended.append(ended)

    def _end_start(self, start: StartEnds) -> None:
        name = start.addresses[0].stage
        require(not self.coordinator.stages[name].has_nothing_left, f"{name} was open for tasks that were not up")
        if self._starts.random() < self._job.start_failures:
            self._not_up(start, "did not start")
            return
        self._starting = None
        self._ways.meet(start.addresses)
        for new in start.addresses:
            self.join(new)
            self._invariants.joined(new)
            self.begin(new)
            self._schedule_ticks(new)
        self._are_up(start.addresses, start.nodes)

    def _not_up(self, start: StartEnds, why: str) -> None:
        self._starting = None
        self.schedule(self._job.network.max_delay, COORDINATOR, StartFailed(f"{start.addresses[0]} {why}"))

    def _are_up(self, addresses: tuple[Address, ...], nodes: tuple[str | None, ...]) -> None:
        for place, started in enumerate(addresses):
            self._hosts.started(started, nodes[place] if nodes else None)
            self.schedule(self._job.network.delay(self._random), COORDINATOR, TaskStarted(started))

    def _violation(self, message: str) -> InvariantViolationError:
        return InvariantViolationError(message, self.history())
