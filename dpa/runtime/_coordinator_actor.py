"""The Ray actor of the coordinator."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ray
from ray import ObjectRef
from ray.actor import ActorHandle

from dpa._util.outages import HERE, may_pass
from dpa.errors import CheckpointStoreError, JobFailedError
from dpa.protocol.coordinator.machine import CoordinatorMachine, CoordinatorState
from dpa.protocol.plan import RunPlan, Times
from dpa.protocol.recovery import Death, TaskDiedError
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, RELAY, Address, Present
from dpa.protocol.wire.cut import Cut, WriteCheckpoint
from dpa.protocol.wire.events import (
    CheckpointFailed,
    Committed,
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
    LogEpoch,
    Poll,
    StartTasks,
    StopTasks,
)
from dpa.protocol.wire.nodes import Placed, TaskProcess
from dpa.runtime._actors import Handles, StageActor, create
from dpa.runtime._asked_actor import AskedActor
from dpa.runtime._epoch_log import LoggedEpochs
from dpa.runtime._failures import node_name
from dpa.runtime._kept_answers import RESTARTED
from dpa.runtime._open_feeds import OpenFeeds
from dpa.runtime._polled import EndedJob, Polled
from dpa.runtime._starting import LateStart, require_all, starts_at_once, watch
from dpa.runtime.packed_plan import PackedPlan

if TYPE_CHECKING:
    from dpa.checkpoints import CheckpointStore


class CoordinatorActor(AskedActor):
    """Makes tasks of the actors that the driver has created, and of those that it creates while records flow, which die
    with it; notices the deaths of all."""

    def __init__(self) -> None:
        super().__init__()
        self._idle: list[ActorHandle] = []
        self._created: list[ActorHandle] = []
        self._placed: Placed | None = None
        self._waiting: Handles = {}
        self._packed: Any = None
        self._ended = threading.Event()
        self._error: str | None = None
        self._death: Death | None = None
        self._warnings: list[str] = []
        self._commits: list[Commit] = []
        self._given = 0  # of these to the driver
        self._stopped: set[Address] = set()
        self._late_start: LateStart | None = None
        self._log = LoggedEpochs(None, 0, self.warn)

    @ray.method(concurrency_group="control")
    def reset(self, generation: int) -> TaskProcess | None:
        """Coordinate no more; what is not answered is refused, and answers are kept until they are fetched."""
        self._ended.set()
        if self._late_start is not None:
            self._late_start.cancel()
        self._answers.refuse(RESTARTED)
        self._log.close()
        process: TaskProcess | None = super().reset(generation)
        for handle in self._created:
            ray.kill(handle)
        kept = {name: getattr(self, name) for name in ("_answers", "_is_cancelled", "_generation")}
        CoordinatorActor.__init__(self)
        vars(self).update(kept)
        return process

    @ray.method(concurrency_group="control", num_returns=0)
    def prepare(self, waiting: Handles, idle: list[ActorHandle], placed: Placed | None) -> None:
        """Learn of the actors of a plan that is to come: those that wait for an address, and those that take any of a
        stage's task. `placed`: on which nodes tasks are to be; None: on any."""
        self._waiting, self._idle, self._placed = waiting, idle, placed
        self._relays = {address: waiting.pop(address) for address in [*waiting] if address.stage == RELAY}

    @ray.method(concurrency_group="control")
    def begin(
        self, own_handle: ActorHandle, plan: RunPlan, packed: PackedPlan, store: CheckpointStore | None = None
    ) -> TaskProcess:
        """Start the job; `plan` is without user code, and `packed` with it; `store`: where its checkpoints are, with
        the newest of which it begins. Returns where this actor is.

        Raises:
            CheckpointError: the newest checkpoint cannot be read, or a later generation has the job.
        """
        HERE.begin(
            plan.limits.patience, lambda words: self.warn(f"{COORDINATOR} {words}"), self._ended.wait, time.monotonic
        )
        if store is not None:
            from dpa.protocol.checkpointing import Checkpointing

            assert plan.saved is not None
            saved, dumps = plan.saved, ray.cloudpickle.dumps
            try:
                self._checkpointing = Checkpointing(store, saved, plan.graph, plan.generation, dumps, plan.sinks)
            except CheckpointStoreError as error:
                error.may_pass = may_pass(error)  # what it was made of does not travel
                raise
            plan = replace(plan, graph=self._checkpointing.graph)
        self._started = time.time()
        self._plan = plan
        self._machine = CoordinatorMachine(plan.graph, None if self._placed is None else self._placed.online)
        self.host(self._machine, plan)
        behind = 0 if plan.graph.checkpoints is None else plan.graph.checkpoints.epoch
        self._log = LoggedEpochs(plan.epoch_log, behind, self.warn)
        self._packed = ray.put(packed)
        self._open_feeds = OpenFeeds(packed.unpack_feeds, plan.limits.split_records, self._ended)
        self._handles = {COORDINATOR: own_handle}
        self._shell.start()
        self._shell.post(Start())
        return TaskProcess(ray.get_runtime_context().get_node_id(), os.getpid())

    @ray.method(concurrency_group="watch")
    def poll(self, seconds: float) -> Polled:
        """What is new: after `seconds`, or at the end. Who asks has committed what it was given before."""
        del self._commits[: self._given]
        self._changed.wait(seconds)
        if not self._started:
            return Polled(None, [], {}, None, None, self._is_cancelled)
        with self._shell.lock:
            warnings, self._warnings = self._warnings, []
            commits, self._given = [*self._commits], len(self._commits)
            if commits and self._error is None and self._machine.state is not CoordinatorState.DONE:
                self._changed.clear()
            snapshot = self._machine.snapshot(history=self._error is not None)
            processes = dict(self._processes)
            return Polled(snapshot, warnings, processes, self._error, self._death, self._is_cancelled, commits)

    @ray.method(concurrency_group="control")
    def outcome(self) -> EndedJob:
        """What there is to say of a finished job."""
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
        failed, stored = machine.failed, self._checkpointing
        letters = failed.letters if stored is None else stored.letters.with_rest(failed)
        return EndedJob(snapshot, times, outputs, used, letters, machine.given, machine.staged)

    @ray.method(concurrency_group="control")
    def events_of_all(self) -> list[Any]:
        """References to the last events of all tasks, this one too, as `events` gives them."""
        return [handle.events.remote() for address, handle in self._handles.items() if address not in self._stopped]

    @ray.method(concurrency_group="control")
    def balancer(self) -> ActorHandle:
        """The load balancer's handle."""
        return self._handles[BALANCER]

    @ray.method(concurrency_group="control", num_returns=0)
    def fail(self, died: TaskDied, generation: int) -> None:
        """End the job with the failure of a task of this generation; the first one counts."""
        if generation < self._generation:
            return
        place = self._place_of(died.address)
        with self._shell.lock:
            if generation < self._generation or self._machine.state is CoordinatorState.DONE:
                return
            has_progressed = self._checkpointing is not None and self._checkpointing.has_written
            if died.kind is FailureKind.DIED and self._plan.is_begun_again(has_progressed):
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
        self._log.close()
        for handle in self._created:
            ray.kill(handle)
        self._answers.close(why)

    def at_once(self, instruction: Instruction) -> bool:
        """Keep answers, and start tasks beside the worker while records flow."""
        match instruction:
            case Answer():
                self._answers.keep(instruction)
            case StartTasks(addresses, nodes) if BALANCER in self._handles:  # the worker may have results to commit
                start = self._late_start = LateStart(self._plan.limits.start_seconds)
                self._shell.aside(lambda: self._start_late(dict(zip(addresses, nodes, strict=True)), start))
            case WriteCheckpoint(cut):
                self._shell.aside(lambda: self._write(cut))
            case Poll(stage, position):
                self._shell.aside(lambda: self._open_feeds.poll(stage, position))
            case LogEpoch(ended):
                if self._log.note(ended):
                    self._shell.aside(self._log.write)
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
        """Start and stop tasks, commit partial results, and end the job."""
        match instruction:
            case StartTasks(addresses):
                return self._start_first(addresses)
            case StopTasks(addresses, present):
                self._stop(addresses, present)
            case Commit():
                self._commit(instruction)
                return Committed(instruction.stage, instruction.epoch)
            case JobDone():
                self._log.close()
                self._changed.set()
            case JobFailed(reason):
                self._shell.stop()
                self._record_error(reason)
            case _:
                return super().work(instruction)
        return None

    def _commit(self, commit: Commit) -> None:
        """Show readers what was staged of an epoch, or wait until the driver has."""
        sink = self._plan.deliveries[commit.stage].partial if commit.stage in self._plan.deliveries else None
        if sink is None:
            return
        if not sink.in_driver:
            HERE.bear(lambda: sink.commit(commit.staged, commit.epoch, commit.at))
            return
        with self._shell.lock:
            self._commits.append(commit)
            self._changed.set()
        while not self._ended.wait(0.01):
            if not self._commits:
                return

    def _write(self, cut: Cut) -> Event:
        """Write a checkpoint while records flow; what the log has of the epochs before it is written first."""
        assert self._checkpointing is not None
        self._log.write()
        event = self._checkpointing.write(cut, self.warn)
        if isinstance(event, CheckpointFailed):
            self.warn(f"a checkpoint could not be written, and the one before it stays the newest: {event.reason}")
        else:
            self._open_feeds.release(cut)
        self._written(event)
        return event

    def _start_first(self, addresses: tuple[Address, ...]) -> StartFailed | None:
        served = self._serve(self._plan.name)
        try:
            made = self._made(dict.fromkeys(addresses), len(addresses), require_all)
        except TaskDiedError:
            raise
        except JobFailedError as error:
            return StartFailed(str(error))
        relays = require_all(served)
        watch(self._relays, self._generation, self._ended, self._stopped, self.fail)
        self._connect(made, relays)
        return None

    def _start_late(self, wanted: Mapping[Address, str | None], start: LateStart) -> StartFailed | None:
        """Start tasks while records flow. Nobody has heard of them until all are up."""
        before = len(self._created)
        try:
            made = self._made(wanted, starts_at_once(wanted.values()), start.require_all)
        except JobFailedError as error:
            for handle in self._created[before:]:
                ray.kill(handle)
            if not start.is_cancelled:
                self.warn(f"the tasks of {next(iter(wanted)).stage} stay as they are: {error}")
            return StartFailed(str(error))
        self._connect(made)
        return None

    def _connect(self, started: Handles, relays: Mapping[Address, TaskProcess] = MappingProxyType({})) -> None:
        """Let actors that are tasks take part. Not before all of them are: the first to be connected may send to the
        last. `relays`: where those are that have begun just before; until tasks are known, the driver looks after the
        machines of the generation before."""
        before = {address: handle for address, handle in self._handles.items() if address not in self._stopped}
        handles = {**self._relays, **before, **started}
        require_all(self._introduce(started), "died")
        mine = self._generation
        processes = require_all({task: handle.connect.remote(handles, mine) for task, handle in started.items()})
        others = {address: handle for address, handle in before.items() if address != COORDINATOR}
        require_all({address: handle.meet.remote(started, mine) for address, handle in others.items()}, "died")
        with self._shell.lock:
            self._handles = {**self._handles, **started}  # those that are stopped may still have to be ended
            self._processes |= {**relays, **processes}
        watch(started, mine, self._ended, self._stopped, self.fail)
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
        for address, handle in {**self._relays, **self._handles}.items():
            if address != COORDINATOR:
                handle.part.remote(present, self._generation)
        self._shell.post(TasksGone(present))

    def _made(
        self,
        wanted: Mapping[Address, str | None],
        at_once: int,
        require_all: Callable[[Mapping[Address, ObjectRef]], object],
    ) -> Handles:
        """Actors that are these tasks, on these nodes if it matters, made `at_once` at a time.

        Raises:
            JobFailedError: one could not be made.
        """
        made: Handles = {}
        tasks = iter(wanted.items())
        while new := {address: self._actor_for(address, node) for address, node in islice(tasks, at_once)}:
            made |= new
            require_all({address: self._make(address, handle) for address, handle in new.items()})
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
        return actor.become.remote(address, [self._packed, ray.put(beginning)])

    def failed(self, died: TaskDied, generation: int) -> None:
        """End the job with an error of the coordinator, or with a death that it has found."""
        if generation < self._generation:
            return
        self._shell.stop()
        self._record_failure(died, self._place_of(died.address))

    def _place_of(self, task: Address) -> str:
        with self._shell.lock:
            nodes = {address: process.node for address, process in self._processes.items()}
        return node_name(task, nodes)

    def _record_failure(self, died: TaskDied, place: str) -> None:
        death = Death(died.address, died.cause, place, self._plan.generation, what=died.what)
        self._record_error(died.in_words(place), death if died.kind is FailureKind.DIED else None)

    def _record_error(self, message: str, death: Death | None = None) -> None:
        """Have `poll` return an error at once, and the death that is its cause; the first one counts."""
        with self._shell.lock:
            if self._error is None:
                self._error, self._death = message, death
        self._changed.set()
