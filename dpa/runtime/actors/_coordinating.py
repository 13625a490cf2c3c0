"""The coordinator of one generation. It makes tasks of the actors that the driver has created, and creates others
while records flow; it notices deaths, commits epochs, writes checkpoints and answers requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

import ray
from ray import ObjectRef
from ray.actor import ActorHandle

from dpa._util.outages import HERE, may_pass
from dpa.errors import CheckpointStoreError, JobFailedError
from dpa.protocol.coordinator.machine import CoordinatorMachine, CoordinatorState
from dpa.protocol.plan import CancelJob, Request, RunOutcome, RunPlan, Times
from dpa.protocol.recovery import Death, TaskDiedError
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address, Present
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
    Tick,
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
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import TaskProcess
from dpa.protocol.wire.snapshots import JobSnapshot, WriteCheckpoint
from dpa.runtime.actors._starting import LateStart, Prepared, starts_at_once, watch
from dpa.runtime.actors._task import Handles
from dpa.runtime.actors.answers import RESTARTED, TOO_LATE, PendingRequests, Polled
from dpa.runtime.actors.failures import node_name, require_all
from dpa.runtime.actors.relay import RelayedTask
from dpa.runtime.asides import LoggedEpochs, OpenFeeds
from dpa.runtime.packed_plan import PackedPlan

if TYPE_CHECKING:
    from dpa.checkpoints import CheckpointStore
    from dpa.protocol.checkpointing import Checkpointing


class Coordinating(RelayedTask):
    """A coordinator with a plan. It also keeps errors of a generation that has ended; no one polls it for them."""

    def __init__(
        self,
        actors: Prepared,
        own_handle: ActorHandle,
        plan: RunPlan,
        packed: PackedPlan,
        store: CheckpointStore | None,
        answers: PendingRequests,
    ) -> None:
        """As `CoordinatorActor.begin`; the `actors` become tasks."""
        self._ended = threading.Event()
        HERE.begin(
            plan.limits.patience, lambda words: self.warn(f"{COORDINATOR} {words}"), self._ended.wait, time.monotonic
        )
        self._checkpointing = None if store is None else _checkpointing(store, plan)
        if self._checkpointing is not None:
            plan = replace(plan, graph=self._checkpointing.graph)
        self._started = time.time()
        with packed.importing("an allocator"):
            self._machine = CoordinatorMachine(plan.graph, None if actors.placed is None else actors.placed.online)
        super().__init__(self._machine, plan, actors.relays)
        self.handles = {COORDINATOR: own_handle}
        self._plan, self._actors, self._answers = plan, actors, answers
        self._processes: dict[Address, TaskProcess] = {}
        self._changed = threading.Event()
        self._error: str | None = None
        self._death: Death | None = None
        self._warnings: list[str] = []
        self._commits: list[Commit] = []
        self._given = 0  # of these to the driver
        self._saving: CancelJob | None = None
        self._stopped: set[Address] = set()
        self._late_start: LateStart | None = None
        behind = 0 if plan.graph.checkpoints is None else plan.graph.checkpoints.epoch
        self._log = LoggedEpochs(plan.epoch_log, behind, self.warn, ray.cloudpickle.dumps)
        self._packed = ray.put(packed)
        self._open_feeds = OpenFeeds(packed.unpack_feeds, plan.limits.split_rows, self._ended.wait)

    def begin(self) -> None:
        self.shell.start()
        self.shell.post(Start())

    @property
    def present(self) -> Handles:
        """The tasks that are not to end, this one too."""
        return {address: handle for address, handle in self.handles.items() if address not in self._stopped}

    def poll(self, seconds: float) -> Polled:
        del self._commits[: self._given]
        self._changed.wait(seconds)
        with self.shell.lock:
            warnings, self._warnings = self._warnings, []
            commits, self._given = [*self._commits], len(self._commits)
            if commits and self._error is None and self._machine.state is not CoordinatorState.DONE:
                self._changed.clear()
            snapshot = self._machine.snapshot(history=self._error is not None)
            processes, is_cancelled = dict(self._processes), self._answers.is_cancelled
            return Polled(is_cancelled, snapshot, warnings, processes, self._error, self._death, commits)

    def status(self) -> tuple[str, Snapshot, dict[Address, TaskProcess]]:
        with self.shell.lock:
            return self._plan.name, self._machine.snapshot(history=False), dict(self._processes)

    def outcome(self) -> tuple[RunOutcome, Handles]:
        """All but the tasks' outputs and what they have used, and the tasks to ask for these."""
        # Not references to their answers: a driver keeps a connection open to each process that has owned one.
        with self.shell.lock:
            machine, snapshot = self._machine, self._machine.snapshot()
            times = Times(
                started=self._started,
                stream_started=machine.started_at or machine.now,
                first_record=machine.first_record_at,
                stream_ended=machine.stream_ended_at or machine.now,
                merged=machine.done_at or machine.now,
            )
        tasks = {address: self.handles[address] for address in machine.present}
        failed, stored = machine.errors.noted, self._checkpointing
        letters = failed.letters if stored is None else stored.letters.with_rest(failed)
        cuts, given = machine.cuts, machine.inputs.given
        done = RunOutcome({}, snapshot, times, {}, letters, given, cuts.staged, cuts.epoch)
        return done, tasks

    def ask(self, request: Request) -> None:
        if isinstance(request, CancelJob):
            self._cancel(request)
        else:
            self.shell.post(request)

    def _cancel(self, request: CancelJob) -> None:
        """Have the next `poll` say that the job is cancelled, unless one may have said that it is done. A job that is
        saved first ends when the next checkpoint is written."""
        with self.shell.lock:
            if self._machine.state is CoordinatorState.DONE:
                self._answers.keep(Answer(request.request, TOO_LATE, refused=True))
                return
            if request.saves and self._checkpointing is not None:
                self._end_behind_checkpoint(request)
                return
            self._answers.cancel(request)
        self._changed.set()

    def _end_behind_checkpoint(self, request: CancelJob) -> None:
        if not self._machine.may_be_cut:
            why = "no checkpoint can be made now, as a stage begins or has all its input"
            self._answers.keep(Answer(request.request, f"{why}; try again, or cancel the job", refused=True))
            return
        self._saving = request
        self.shell.post(Tick(cuts=True))

    def warn(self, message: str) -> None:
        with self.shell.lock:
            self._warnings.append(message)

    def fail(self, died: TaskDied) -> None:
        """End the job with the failure of a task; the first one counts."""
        place = self._place_of(died.address)
        with self.shell.lock:
            # Where a machine has two tasks, the second death may be noticed when this generation has ended: the
            # requests that it would refuse are those of the next one.
            if self._ended.is_set() or self._machine.state is CoordinatorState.DONE:
                return
            has_progressed = self._checkpointing is not None and self._checkpointing.has_written
            if died.kind is FailureKind.DIED and self._plan.is_begun_again(has_progressed):
                self._answers.refuse(RESTARTED)
            self.shell.post(died)
            self._record_failure(died, place)  # known at once, whatever the worker is at

    def failed(self, died: TaskDied) -> None:
        """End the job with an error of the coordinator itself, or a death that it has found."""
        self.shell.stop()
        self._record_failure(died, self._place_of(died.address))

    def _place_of(self, task: Address) -> str:
        with self.shell.lock:
            nodes = {address: process.node for address, process in self._processes.items()}
        return node_name(task, nodes)

    def _record_failure(self, died: TaskDied, place: str) -> None:
        death = Death(died.address, died.cause, place, self.generation, what=died.what)
        self._record_error(died.in_words(place), death if died.kind is FailureKind.DIED else None)

    def _record_error(self, message: str, death: Death | None = None) -> None:
        with self.shell.lock:
            if self._error is None:
                self._error, self._death = message, death
        self._changed.set()

    def end(self) -> bool:
        with self.shell.lock:
            self._ended.set()
        if self._late_start is not None:
            self._late_start.cancel()
        self._log.close()
        return super().end()

    def close(self) -> None:
        self._ended.set()
        self.shell.stop()
        self._log.close()
        self._actors.close()

    def at_once(self, instruction: Instruction) -> bool:
        match instruction:
            case Answer():
                self._answers.keep(instruction)
            case StartTasks(addresses, nodes) if BALANCER in self.handles:  # the worker may have results to commit
                share = self._actors.share(addresses[0].stage)
                start = self._late_start = LateStart(self._plan.limits.start_seconds, share)
                self.shell.aside(lambda: self._start_late(dict(zip(addresses, nodes, strict=True)), start))
            case WriteCheckpoint(cut):
                self.shell.aside(lambda: self._write(cut))
            case Poll(stage, position, for_lag):
                self.shell.aside(lambda: self._open_feeds.poll(stage, position, for_lag=for_lag))
            case LogEpoch(ended):
                if self._log.note(ended):
                    self.shell.aside(self._log.write)
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
        match instruction:
            case StartTasks(addresses):
                return self._start_first(addresses)
            case StopTasks(addresses, present):
                self._stop(addresses, present)
            case Commit():
                self._commit(instruction)
                return Committed(instruction.stage, instruction.epoch, instruction.output)
            case JobDone():
                self._log.close()
                self._changed.set()
            case JobFailed(reason):
                self.shell.stop()
                self._record_error(reason)
            case _:
                return super().work(instruction)
        return None

    def _commit(self, commit: Commit) -> None:
        """Show readers what was staged of an epoch, or wait until the driver has."""
        sink = self._plan.sink_of(commit)
        if sink is None:
            return
        if not sink.in_driver:
            HERE.bear(lambda: sink.commit(commit.staged, commit.epoch, commit.at))
            return
        with self.shell.lock:
            self._commits.append(commit)
            self._changed.set()
        while not self._ended.wait(0.01):
            if not self._commits:
                return

    def _write(self, cut: JobSnapshot) -> Event:
        """Write a checkpoint while records flow. A job that was asked to stop ends then."""
        assert self._checkpointing is not None
        self._log.write()  # no epoch is missing in the log that a resumed job continues
        event = self._checkpointing.write(cut, self.warn)
        stop, self._saving = self._saving, None
        if isinstance(event, CheckpointFailed):
            self.warn(f"a checkpoint could not be written, and the one before it stays the newest: {event.reason}")
            if stop is not None:
                why = f"the job keeps running, as no checkpoint could be written: {event.reason}"
                self._answers.keep(Answer(stop.request, why, refused=True))
        else:
            self._open_feeds.release(cut)
            if stop is not None:
                self._cancel(CancelJob(stop.request))
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
        watch(self._relays, self.generation, self._ended, self._stopped, self.fail)
        self._connect(made, relays)
        self._actors.end_unused()
        return None

    def _start_late(self, wanted: Mapping[Address, str | None], start: LateStart) -> StartFailed | None:
        """Start tasks while records flow. If one does not start, none does: the others have not heard of them yet."""
        before = len(self._actors.created)
        try:
            made = self._made(wanted, starts_at_once(wanted.values()), start.require_all)
        except JobFailedError as error:
            for handle in self._actors.created[before:]:
                ray.kill(handle)
            if not start.is_cancelled:
                self.warn(f"the tasks of {next(iter(wanted)).stage} stay as they are: {error}")
            return StartFailed(str(error))
        self._connect(made)
        return None

    def _connect(self, started: Handles, relays: Mapping[Address, TaskProcess] = MappingProxyType({})) -> None:
        """Connect actors that are tasks with all others; `relays`: where those are that have begun just before."""
        # Not before all are made: the first to be connected may send to the last.
        before = self.present
        require_all(self._introduce(started), "died")
        handles, mine = {**self._relays, **before, **started}, self.generation
        processes = require_all({task: handle.connect.remote(handles, mine) for task, handle in started.items()})
        others = {address: handle for address, handle in before.items() if address != COORDINATOR}
        require_all({address: handle.meet.remote(started, mine) for address, handle in others.items()}, "died")
        with self.shell.lock:
            self.handles = {**self.handles, **started}  # those that are stopped may still have to be ended
            # Relays together with tasks: until tasks are known, the driver looks after the machines of the generation
            # before.
            self._processes |= {**relays, **processes}
        watch(started, mine, self._ended, self._stopped, self.fail)
        for address in started:
            self.shell.post(TaskStarted(address))

    def _stop(self, addresses: tuple[Address, ...], present: Present) -> None:
        with self.shell.lock:
            ended = [self.handles[address] for address in addresses]
            self.handles = {task: handle for task, handle in self.handles.items() if task not in addresses}
            self._processes = {task: process for task, process in self._processes.items() if task not in addresses}
        for handle in ended:
            ray.kill(handle)
        for address, handle in {**self._relays, **self.handles}.items():
            if address != COORDINATOR:
                handle.part.remote(present, self.generation)
        self.shell.post(TasksGone(present))

    def _made(
        self,
        wanted: Mapping[Address, str | None],
        at_once: int,
        require_all: Callable[[Mapping[Address, ObjectRef]], object],
    ) -> Handles:
        """Make these tasks, on these nodes if given, `at_once` at a time. JobFailedError if one could not be made."""
        made: Handles = {}
        tasks = iter(wanted.items())
        while new := {address: self._actors.actor_for(address, node) for address, node in islice(tasks, at_once)}:
            made |= new
            require_all({address: self._make(address, handle) for address, handle in new.items()})
        return made

    def _make(self, address: Address, actor: ActorHandle) -> ObjectRef:
        if address == BALANCER:
            return actor.become.remote(replace(self._plan, graph=self._plan.graph.without_splits()))
        beginning = None if self._checkpointing is None else self._checkpointing.beginning(address)
        return actor.become.remote(address, [self._packed, ray.put(beginning)])


def _checkpointing(store: CheckpointStore, plan: RunPlan) -> Checkpointing:
    from dpa.protocol.checkpointing import Checkpointing

    assert plan.saved is not None
    try:
        return Checkpointing(store, plan.saved, plan.graph, plan.generation, ray.cloudpickle.dumps, plan.sinks)
    except CheckpointStoreError as error:
        error.may_pass = may_pass(error)  # what it was made of does not travel
        raise
