"""The Ray actor of the coordinator."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa.errors import JobFailedError
from dpa.protocol.coordinator.machine import CoordinatorMachine, CoordinatorState
from dpa.protocol.plan import CancelJob, Request, RunPlan, Times
from dpa.protocol.recovery import Death, TaskDiedError
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address, Present
from dpa.protocol.wire.cut import Cut
from dpa.protocol.wire.events import (
    CheckpointFailed,
    Event,
    FailureKind,
    Start,
    StartFailed,
    TaskDied,
    TasksGone,
    TaskStarted,
)
from dpa.protocol.wire.instructions import (
    Answer,
    CancelStart,
    Commit,
    Instruction,
    JobDone,
    JobFailed,
    StartTasks,
    StopTasks,
    WriteCheckpoint,
)
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import Placed, TaskProcess
from dpa.runtime._actors import Handles, StageActor, TaskActor, create
from dpa.runtime._failures import cause_of, node_name
from dpa.runtime._kept_answers import RESTARTED, TOO_LATE, KeptAnswers
from dpa.runtime._polled import Polled
from dpa.runtime._starting import LateStart, require_all, starts_at_once
from dpa.runtime.packed_plan import PackedPlan

if TYPE_CHECKING:
    from dpa.runtime._checkpointing import Checkpointing, SavedJob


class CoordinatorActor(TaskActor):
    """Makes tasks of the actors that the driver has created, and of those that it creates while records flow, which die
    with it; notices the deaths of all."""

    _machine: CoordinatorMachine
    _plan: RunPlan

    def __init__(self) -> None:
        super().__init__()
        self._idle: list[ActorHandle] = []
        self._created: list[ActorHandle] = []
        self._placed: Placed | None = None
        self._waiting: Handles = {}
        self._packed: Any = None
        self._ended = threading.Event()
        self._changed = threading.Event()
        self._error: str | None = None
        self._death: Death | None = None
        self._warnings: list[str] = []
        self._answers = KeptAnswers()
        self._is_cancelled = False
        self._stopped: set[Address] = set()
        self._processes: dict[Address, TaskProcess] = {}
        self._late_start: LateStart | None = None
        self._checkpointing: Checkpointing | None = None
        self._started = 0.0

    @ray.method(concurrency_group="control", num_returns=0)
    def prepare(self, waiting: Handles, idle: list[ActorHandle], placed: Placed | None) -> None:
        """Learn of the actors of a plan that is to come: those that wait for an address, and those that take any of a
        stage's task. `placed`: on which nodes tasks are to be; None: on any."""
        self._waiting, self._idle, self._placed = waiting, idle, placed

    @ray.method(concurrency_group="control")
    def begin(
        self, own_handle: ActorHandle, plan: RunPlan, packed: PackedPlan, saved: SavedJob | None = None
    ) -> TaskProcess:
        """Start the job; `plan` is without user code, and `packed` with it; `saved`: where its checkpoints are, with
        the newest of which it begins. Returns where this actor is.

        Raises:
            CheckpointError: the newest checkpoint cannot be read, or a later generation has the job.
        """
        if saved is not None:
            from dpa.runtime._checkpointing import Checkpointing

            self._checkpointing = Checkpointing(saved, plan.graph, plan.generation)
            plan = replace(plan, graph=self._checkpointing.graph)
        self._started = time.time()
        self._plan = plan
        self._machine = CoordinatorMachine(plan.graph, None if self._placed is None else self._placed.online)
        self.host(self._machine, plan)
        self._packed = ray.put(packed)
        self._handles = {COORDINATOR: own_handle}
        self._shell.start()
        self._shell.post(Start())
        return TaskProcess(ray.get_runtime_context().get_node_id(), os.getpid())

    @ray.method(concurrency_group="watch")
    def poll(self, seconds: float) -> Polled:
        """What is new: after `seconds`, or at the end."""
        self._changed.wait(seconds)
        if not self._started:
            return Polled(None, [], {}, None, None, self._is_cancelled)
        with self._shell.lock:
            warnings, self._warnings = self._warnings, []
            snapshot = self._machine.snapshot(history=self._error is not None)
            return Polled(snapshot, warnings, dict(self._processes), self._error, self._death, self._is_cancelled)

    @ray.method(concurrency_group="control", num_returns=0)
    def ask(self, request: Request) -> None:
        """Do what a request asks for, or do not; `answers` has the answer."""
        assert request.request is not None
        self._answers.expect(request.request)
        if isinstance(request, CancelJob):
            self._cancel(request.request)
        elif self._started:
            self._shell.post(request)
        else:
            self._answers.keep(Answer(request.request, "the job is starting", refused=True))

    @ray.method(concurrency_group="control")
    def answers(self, requests: Sequence[int]) -> list[Answer]:
        """The answers to these requests, as far as there are any; each is given once."""
        return self._answers.fetched(requests)

    @ray.method(concurrency_group="control")
    def status(self) -> tuple[str, Snapshot, dict[Address, TaskProcess]] | None:
        """The job's name, its statistics without their history, and where its tasks are; None if it has not begun."""
        if not self._started:
            return None
        with self._shell.lock:
            return self._plan.name, self._machine.snapshot(history=False), dict(self._processes)

    @ray.method(concurrency_group="control")
    def outcome(self) -> tuple[Snapshot, Times, dict[Address, Any], dict[Address, Any]]:
        """Of a finished job: all statistics, the moments, and references to the outputs of operator tasks and to what
        all tasks have used."""
        with self._shell.lock:
            machine, snapshot = self._machine, self._machine.snapshot()
            times = Times(
                started=self._started,
                stream_started=machine.started_at or machine.now,
                first_record=machine.first_record_at,
                stream_ended=machine.stream_ended_at or machine.now,
                merged=machine.done_at or machine.now,
            )
        present = machine.present
        operators = [address for address in present if not self._plan.graph.is_source(address.stage)]
        outputs = {address: self._handles[address].output.remote() for address in operators}
        used = {address: self._handles[address].use.remote() for address in present}
        return snapshot, times, outputs, used

    @ray.method(concurrency_group="control")
    def events_of_all(self) -> list[Any]:
        """References to the last events of all tasks, this one too, as `events` gives them."""
        return [handle.events.remote() for address, handle in self._handles.items() if address not in self._stopped]

    @ray.method(concurrency_group="control")
    def balancer(self) -> ActorHandle:
        """The load balancer's handle."""
        return self._handles[BALANCER]

    @ray.method(concurrency_group="control", num_returns=0)
    def fail(self, died: TaskDied) -> None:
        """End the job with the failure of a task; the first one counts."""
        place = self._place_of(died.address)
        with self._shell.lock:
            if self._machine.state is CoordinatorState.DONE:
                return
            if died.kind is FailureKind.DIED and self._plan.generation < self._plan.recovery.attempts:
                self._answers.refuse(RESTARTED)
            self._shell.post(died)
            self._record_failure(died, place)  # known at once, whatever the worker is at

    @ray.method(concurrency_group="control", num_returns=0)
    def warn(self, message: str) -> None:
        """Pass on a warning for the user while the job goes on."""
        with self._shell.lock:
            self._warnings.append(message)

    @ray.method(concurrency_group="watch")
    def close(self, why: str) -> None:
        """End the actors that it has created. Requests that are not answered are refused, as `why` says; answers are
        kept for a moment, until they are fetched."""
        self._ended.set()
        if self._handles:
            self._shell.stop()
        for handle in self._created:
            ray.kill(handle)
        self._answers.close(why)

    def _cancel(self, request: int) -> None:
        """Have the next `poll` say that the job is cancelled, unless one may have said that it is done."""
        with self._shell.lock if self._started else nullcontext():
            if self._started and self._machine.state is CoordinatorState.DONE:
                self._answers.keep(Answer(request, TOO_LATE, refused=True))
                return
            self._answers.keep(Answer(request, "the job ends, and publishes nothing"))
            self._is_cancelled = True  # who polls this looks for the answer once more, and then never again
        self._changed.set()

    def at_once(self, instruction: Instruction) -> bool:
        """Keep answers, and start tasks beside the worker while records flow."""
        match instruction:
            case Answer():
                self._answers.keep(instruction)
            case StartTasks(addresses, nodes) if BALANCER in self._handles:  # the worker has rounds to commit meanwhile
                start = self._late_start = LateStart(self._plan.limits.start_seconds)
                self._shell.aside(lambda: self._start_late(dict(zip(addresses, nodes, strict=True)), start))
            case WriteCheckpoint(cut):
                self._shell.aside(lambda: self._write(cut))
            case CancelStart():
                assert self._late_start is not None
                self._late_start.cancel()
            case StopTasks(addresses):  # before others start, which meet those that are there
                self._stopped |= set(addresses)
                return False
            case _:
                return False
        return True

    def work(self, instruction: Instruction) -> Event | None:
        """Start and stop tasks, commit rounds, and end the job."""
        match instruction:
            case StartTasks(addresses):
                return self._start_first(addresses)
            case StopTasks(addresses, present):
                self._stop(addresses, present)
            case Commit(stage, number, at, rows):
                sink = self._plan.deliveries[stage].rounds if stage in self._plan.deliveries else None
                if sink is not None:
                    sink.commit(rows, number, at)
            case JobDone():
                self._changed.set()
            case JobFailed(reason):
                self._end(reason)
            case _:
                return super().work(instruction)
        return None

    def _write(self, cut: Cut) -> Event:
        """Write a checkpoint while records flow."""
        assert self._checkpointing is not None
        event = self._checkpointing.write(cut, self.warn)
        if isinstance(event, CheckpointFailed):
            self.warn(f"a checkpoint could not be written, and the one before it stays the newest: {event.reason}")
        return event

    def _start_first(self, addresses: tuple[Address, ...]) -> StartFailed | None:
        try:
            made = self._made(dict.fromkeys(addresses), len(addresses), require_all)
        except TaskDiedError:
            raise
        except JobFailedError as error:
            return StartFailed(str(error))
        self._connect(made)
        return None

    def _start_late(self, wanted: Mapping[Address, str | None], start: LateStart) -> StartFailed | None:
        """Start tasks while records flow. Nobody has heard of them until all are up."""
        try:
            made = self._made(wanted, starts_at_once(wanted.values()), start.require_all)
        except JobFailedError as error:
            if not start.is_cancelled:
                self.warn(f"the tasks of {next(iter(wanted)).stage} stay as they are: {error}")
            return StartFailed(str(error))
        self._connect(made)
        return None

    def _connect(self, started: Handles) -> None:
        """Let actors that are tasks take part. Not before all of them are: the first to be connected may send to the
        last."""
        before = {address: handle for address, handle in self._handles.items() if address not in self._stopped}
        handles = {**before, **started}
        processes = require_all({address: handle.connect.remote(handles) for address, handle in started.items()})
        others = {address: handle for address, handle in before.items() if address != COORDINATOR}
        require_all({address: handle.meet.remote(started) for address, handle in others.items()}, "died")
        with self._shell.lock:
            self._handles = {**self._handles, **started}  # those that are stopped may still have to be ended
            self._processes |= processes
        threading.Thread(target=self._watch, args=(started,), name="watch", daemon=True).start()
        for address in started:
            self._shell.post(TaskStarted(address))

    def _stop(self, addresses: tuple[Address, ...], present: Present) -> None:
        """End tasks, and have all others learn of it."""
        with self._shell.lock:
            ended = [self._handles[address] for address in addresses]
            self._handles = {task: handle for task, handle in self._handles.items() if task not in addresses}
            self._processes = {task: process for task, process in self._processes.items() if task not in addresses}
        for handle in ended:
            ray.kill(handle)
        for address, handle in self._handles.items():
            if address != COORDINATOR:
                handle.part.remote(present)
        self._shell.post(TasksGone(present))

    def _made(
        self,
        wanted: Mapping[Address, str | None],
        at_once: int,
        require_all: Callable[[Mapping[Address, ObjectRef]], object],
    ) -> Handles:
        """Actors that are these tasks, on these nodes if it matters, made `at_once` at a time.

        Raises:
            JobFailedError: one could not be made, and none is left.
        """
        made: Handles = {}
        try:
            tasks = iter(wanted.items())
            while new := {address: self._actor_for(address, node) for address, node in islice(tasks, at_once)}:
                made |= new
                require_all({address: self._make(address, handle) for address, handle in new.items()})
        except JobFailedError:
            for handle in made.values():
                ray.kill(handle)
            raise
        return made

    def _actor_for(self, address: Address, node: str | None) -> ActorHandle:
        """An actor that waits to become a task, or a new one; on this node, if it matters."""
        if (waiting := self._waiting.pop(address, None)) is not None:
            return waiting
        if node is None and self._idle:
            return self._idle.pop(0)
        if node is None and self._placed is not None:
            homes = self._placed.nodes[address.stage]
            node = homes[address.index % len(homes)]
        self._created.append(created := create(StageActor, node))
        return created

    def _make(self, address: Address, actor: ActorHandle) -> ObjectRef:
        if address == BALANCER:
            return actor.become.remote(replace(self._plan, graph=self._plan.graph.without_splits()))
        beginning = None if self._checkpointing is None else self._checkpointing.beginning(address)
        return actor.become.remote(address, self._packed, beginning)

    def failed(self, died: TaskDied) -> None:
        """End the job with an error of the coordinator, or with a death that it has found."""
        self._shell.stop()
        self._record_failure(died, self._place_of(died.address))

    def _end(self, reason: str) -> None:
        self._shell.stop()
        self._record_error(reason)

    def _place_of(self, task: Address) -> str:
        with self._shell.lock:
            nodes = {address: process.node for address, process in self._processes.items()}
        return node_name(task, nodes)

    def _record_failure(self, died: TaskDied, place: str) -> None:
        death = Death(died.address, died.cause, place, self._plan.generation)
        self._record_error(died.in_words(place), death if died.kind is FailureKind.DIED else None)

    def _record_error(self, message: str, death: Death | None = None) -> None:
        """Have `poll` return an error at once, and the death that is its cause; the first one counts."""
        with self._shell.lock:
            if self._error is None:
                self._error, self._death = message, death
        self._changed.set()

    def _watch(self, others: Handles) -> None:
        """Wait for the first actor that dies."""
        joins = {handle.join.remote(): address for address, handle in others.items()}
        while joins and not self._ended.is_set():
            ended, _ = ray.wait(list(joins), timeout=1.0)
            for reference in ended:
                try:
                    ray.get(reference)
                except Exception as error:
                    if joins[reference] in self._stopped:
                        self._stopped.discard(joins.pop(reference))
                        continue
                    if not self._ended.is_set():
                        why = cause_of(error) if isinstance(error, RayError) else repr(error)
                        self.fail(TaskDied(joins[reference], FailureKind.DIED, why))
                    return
