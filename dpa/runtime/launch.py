"""The driver's side of a job on Ray. A generation starts its coordinator, hands it the plan, polls it and fetches the
outcome; the job survives the death of any of its processes, as another generation follows."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil  # Ray brings it
import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa.errors import CheckpointError, ConfigError, JobCancelledError, JobFailedError
from dpa.protocol.plan import Bear, CancelJob, Request, RunHooks, RunOutcome, RunPlan
from dpa.protocol.recovery import Recoveries, TaskDiedError
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, RELAY, RESERVED, Address
from dpa.protocol.wire.events import CancelChange, CloseFeeds
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import JobDemand, Placed, Placer, TaskProcess
from dpa.protocol.wire.relays import relays_for
from dpa.runtime._machines import ENDED, Machines, Running, with_node_ids
from dpa.runtime._processes import KeptProcesses, Spares
from dpa.runtime._requests import Requests
from dpa.runtime._surroundings import Surroundings
from dpa.runtime.actors.actor import NO_SHARE, LoadBalancerActor, StageActor
from dpa.runtime.actors.answers import RESTARTED, TOO_LATE, Polled
from dpa.runtime.actors.coordinator import CoordinatorActor
from dpa.runtime.actors.failures import failure, is_death, require_all
from dpa.runtime.actors.relay import RelayActor
from dpa.runtime.cluster import alive_nodes, require_alive
from dpa.runtime.packed_plan import PackedPlan
from dpa.telemetry.tracker import Status

if TYPE_CHECKING:
    from dpa.checkpoints import CheckpointStore

_POLL_SECONDS = 0.2  # how often to ask what is new
_EVENTS_SECONDS = 2.0  # how long the tasks of a failed job may take to give their last events

_CLOSE_SECONDS = 5.0
"""How long the coordinator may take to answer open requests before it is killed; then, how long processes may take to
end."""

_RESTART_SECONDS, _STATUS_SECONDS = 0.05, 5.0
"""How often to look whether a job that was asked begins again, and how long the coordinator may take to give its
status."""

_LOOK_SECONDS = 1.0  # how often to check that Ray is alive while an answer is outstanding


class Launched:
    """A coordinator, and actors that can become the tasks of one generation of a job. It waits for none of them.

    Attributes:
        placed: the nodes of tasks; None: Ray spreads them.
        used: how many actors of each kind, on each node, it has begun with.
    """

    def __init__(
        self,
        tasks: int,
        placed: Placed | None = None,
        kept: KeptProcesses | None = None,
        changes: Surroundings | None = None,
        requests: Requests | None = None,
        avoided: Collection[str] = (),
    ) -> None:
        """Start actors for this number of tasks of stages. `kept`: processes of the generation before, and spares,
        which are taken rather than new ones. `changes`: what the driver has changed since Ray started. `requests`: what
        tasks request; a placement group of theirs is on no node that is `avoided`."""
        # The coordinator, the load balancer and relays are on the driver's node: if another node dies, a task dies that
        # the user knows, and the coordinator lives to report it.
        here = ray.get_runtime_context().get_node_id()
        self._processes: dict[Address, TaskProcess] = {}
        self._is_ended = False
        self.placed = placed
        kept, self._requests = kept or KeptProcesses(), requests or Requests()
        self._coordinator = kept.actor(CoordinatorActor, here)
        waiting = {BALANCER: kept.actor(LoadBalancerActor, here)}
        for index in range(relays_for(tasks)):
            waiting[Address(RELAY, index)] = kept.actor(RelayActor, here)
        self._group = self._requests.group(avoided)
        for task, node in self._requests.homes(placed).items():
            waiting[task] = kept.actor(StageActor, node, self._requests.share(task, self._group))
        self._waiting = waiting
        idle = [kept.actor(StageActor) for _ in range(0 if placed or self._requests.each else tasks)]
        self._others, self._spares = [*waiting.values(), *idle], kept.spares
        unasked = (actor for actor in (self._coordinator, *self._others) if actor.share == NO_SHARE)
        self.used = Counter((actor.kind, actor.node) for actor in unasked)
        handles = {address: actor.handle for address, actor in waiting.items()}
        self._changes = changes
        self.coordinator.prepare.remote(handles, [actor.handle for actor in idle], placed, changes, self._requests.each)

    @property
    def coordinator(self) -> ActorHandle:
        return self._coordinator.handle

    def run(
        self, plan: RunPlan, hooks: RunHooks, store: CheckpointStore | None = None, machines: Machines | None = None
    ) -> RunOutcome:
        """Run the generation to its end; used once. `machines`: those of the job besides this one. JobFailedError,
        with the last events of tasks, if user code failed; TaskDiedError if a process died; JobCancelledError if a
        request asked for that."""
        machines = machines or Machines()
        running = Running(plan, self.placed, _urgently(self.coordinator), hooks.warn)
        self.begin(plan, store, hooks.bear)
        is_closed = False
        while True:
            polled = self.poll()
            assert polled.snapshot is not None
            for warning in polled.warnings:
                hooks.warn(warning)
            hooks.observe(polled.snapshot)
            for commit in polled.commits:
                hooks.commit(commit)
            if polled.error is None and _is_worth_a_spare(plan, polled.snapshot):
                self.keep_spares()
            if polled.death is not None:
                raise TaskDiedError(polled.death)
            if polled.error is not None:
                raise JobFailedError(polled.error, self.last_events())
            if polled.snapshot.phase == "done":
                return self.outcome()
            if not is_closed and polled.snapshot.is_open and hooks.closes():
                is_closed = True
                _urgently(self.coordinator)(CloseFeeds())
            machines.look(polled, running)
            for words in () if polled.processes else self._requests.waits(self._waiting):
                hooks.warn(words)

    def begin(self, plan: RunPlan, store: CheckpointStore | None, bear: Bear) -> None:
        """Let the actors be the tasks of a plan. They begin with the newest checkpoint in the store, or at the start of
        the input if there is none; `bear` bears outages of the store. JobFailedError if the coordinator failed, a
        TaskDiedError if it has died."""
        plan = self._requests.noted(plan)
        packed = PackedPlan.pack(plan, self._changes)
        self._queue_fed = [stage.name for stage in plan.graph.queue_fed()]
        bare = plan.without_user_code()

        def begun() -> TaskProcess:
            made: TaskProcess = self._asked(self.coordinator.begin.remote(self.coordinator, bare, packed, store))
            return made

        self._processes[COORDINATOR] = bear(begun)

    def poll(self, seconds: float = _POLL_SECONDS) -> Polled:
        """What is new, after `seconds` or at the end of the job. Errors as of `begin`; JobCancelledError if a request
        asked for that."""
        polled: Polled = self._asked(self.coordinator.poll.remote(seconds))
        self._processes |= polled.processes
        if polled.is_cancelled and (polled.error is None or polled.death is not None):
            raise JobCancelledError("cancelled by a request to the running job; nothing more was published")
        return polled

    def outcome(self) -> RunOutcome:
        """What a finished job gives back. JobFailedError if a task failed, a TaskDiedError if it has died."""
        done: RunOutcome
        done, handles = self._asked(self.coordinator.outcome.remote())
        shares = {}
        for stage in self._queue_fed:
            tasks = [Address(stage, index) for index in done.snapshot[stage].present]
            shares[stage] = tuple(_fetched({task: handles[task].output.remote() for task in tasks}).values())
        use = _fetched({task: handle.use.remote() for task, handle in handles.items()})
        return replace(done, outputs=shares, use={**done.snapshot.use, **use})  # of those that left, the last known

    def keep_spares(self) -> None:
        """Start a spare process on each node with tasks. It takes the place of one that dies there."""
        if self._requests.each:
            return  # it would keep from others what it requests
        nodes = {process.node for task, process in self._processes.items() if task.stage not in RESERVED}
        self._spares.start({(StageActor, node): 1 for node in nodes})

    def last_events(self) -> dict[str, bytes]:
        """The files of events by name, of all tasks that answer in time."""
        found: dict[str, bytes] = {}
        with suppress(Exception):  # nothing that goes wrong here may hide the error that ended the job
            until = time.monotonic() + _EVENTS_SECONDS
            present = ray.get(self.coordinator.present.remote(), timeout=_EVENTS_SECONDS)
            calls = [handle.events.remote() for handle in present.values()]
            given, _ = ray.wait(calls, num_returns=len(calls), timeout=max(0.0, until - time.monotonic()))
            for call in given:
                with suppress(Exception):  # the task is dead
                    name, content = ray.get(call)
                    found[name] = content
        return found

    def end(self, why: str, wait: Callable[[], object] = lambda: None) -> None:
        """End all actors, the coordinator's too. Open requests are refused with the reason `why`; then `wait` waits for
        those who asked, as an answer on its way is lost with the process."""
        if self._is_ended:
            return
        self._is_ended = True
        try:
            with suppress(Exception):
                closed = self.coordinator.close.remote(why)  # it ends the actors that it has made
                for actor in self._others:
                    ray.kill(actor.handle)
                ray.get(closed, timeout=_CLOSE_SECONDS)
                wait()
        finally:
            ray.kill(self.coordinator)
            # If a handle is garbage-collected while another thread shuts Ray down, Ray ends this process.
            self._others.clear()
            self._waiting.clear()
            self._requests.end(self._group)
            del self._coordinator

    def wait_for_end(self, kept: Collection[TaskProcess] = ()) -> None:
        """Wait a few seconds for the processes on this machine to end, except those that are kept."""
        here, found = ray.get_runtime_context().get_node_id(), []
        for process in self._processes.values():
            if process.node == here and process not in kept:
                with suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(process.pid))
        psutil.wait_procs(found, timeout=_CLOSE_SECONDS)

    def freed(self, generation: int, avoided: Collection[str], lost: Collection[str]) -> KeptProcesses:
        """The actors that live, for the next generation, without those on `avoided` nodes; nothing waits for an answer
        of the `lost` ones among these nodes."""
        given = [self._coordinator]
        for actor in self._others:
            if actor.node in lost or actor.share.bundle:
                ray.kill(actor.handle)
            else:
                given.append(actor)
        kept = KeptProcesses(given, generation, avoided, self._spares)
        self._is_ended = True
        self._others.clear()
        self._waiting.clear()
        self._requests.end(self._group)
        return kept

    @staticmethod
    def _asked(call: ObjectRef) -> Any:
        try:
            return _answer(call)
        except RayError as error:
            raise failure(COORDINATOR, error, "died" if is_death(error) else "failed") from None


def _is_worth_a_spare(plan: RunPlan, snapshot: Snapshot) -> bool:
    """Whether the job would begin again soon if a process died, and has lasted for a while."""
    return plan.recovery.attempts > 0 and snapshot.checkpoints is not None and snapshot.checkpoints.written > 0


def _answer(call: ObjectRef) -> Any:
    """The result of a call, or its RayError. JobFailedError if Ray's processes have died."""
    while ray.wait([call], timeout=_LOOK_SECONDS)[1]:
        require_alive()
    require_alive()
    return ray.get(call)


_fetched = partial(require_all, otherwise="died before its result was fetched", get=_answer)


def _urgently(coordinator: ActorHandle) -> Callable[[Request], ObjectRef]:
    """How to ask the coordinator for what many waiting requests may not keep from it."""
    ask: Callable[[Request], ObjectRef] = coordinator.ask.options(concurrency_group="urgent").remote
    return ask


class Generations:
    """A context with the actors of a job. Its end ends them."""

    def __init__(
        self,
        tasks: int,
        placer: Placer | None,
        spares: Spares,
        changes: Surroundings | None = None,
        demand: JobDemand | None = None,
    ) -> None:
        """Start the actors of the first generation, for this number of tasks of stages. `placer` chooses their nodes;
        None: Ray spreads them. `spares` are taken rather than new actors; `changes` as for `Launched`. ConfigError if
        Ray will never have what tasks `demand`."""
        self._tasks, self._placer = tasks, placer
        self._spares, self._changes = spares, changes
        self._writes = self._is_over = False
        self._callers, self._turn = 0, threading.Condition()
        self._machines = Machines()
        self._machines.check()
        self._requests = Requests(demand, is_placed=placer is not None)
        spares.fit(tasks)
        self._launched = self._launch(KeptProcesses(spares=spares))
        self._used = self._launched.used

    def __enter__(self) -> Generations:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._turn:
            self._is_over = True
        with suppress(RayError, JobFailedError):  # Ray has died, and whoever asks it waits for long
            require_alive()
            self._spares.leave(self._used, self._tasks)
        self._launched.end(TOO_LATE, lambda: self._wait_for_callers(_CLOSE_SECONDS))
        self._wait_for_callers()  # Ray ends next
        self._machines.end()
        if self._writes:
            self._launched.wait_for_end()  # a checkpoint that is being written would stay behind those that are removed

    def _wait_for_callers(self, seconds: float | None = None) -> None:
        with self._turn:
            self._turn.wait_for(lambda: not self._callers, seconds)

    def ask(self, request: Request) -> Answer:
        """Ask the coordinator for something, from any thread, and wait for the answer."""
        with self._calling() as coordinator:
            launched = self._launched
            if coordinator is not None:
                with suppress(RayError):
                    asked = with_node_ids(request)
                    if isinstance(asked, Answer):
                        return asked
                    is_urgent = isinstance(asked, CancelJob | CancelChange | CloseFeeds)
                    ask = _urgently(coordinator) if is_urgent else coordinator.ask.remote
                    answer: Answer = ray.get(ask(asked))
                    return answer
                # The coordinator has died: another one follows, or the job ends.
                while launched is self._launched and not self._is_over:
                    time.sleep(_RESTART_SECONDS)
        return Answer(request.request, TOO_LATE if self._is_over else RESTARTED, refused=True)

    def status(self) -> tuple[Status, Snapshot] | None:
        """What the coordinator knows, without its history; None if it has not begun, or does not answer in time."""
        with self._calling() as coordinator, suppress(RayError):
            if said := coordinator and ray.get(coordinator.status.remote(), timeout=_STATUS_SECONDS):
                job, snapshot, processes = said
                return Status.of(job, snapshot, processes, alive_nodes()), snapshot
        return None

    @contextmanager
    def _calling(self) -> Iterator[ActorHandle | None]:
        """The coordinator, in a block in which Ray does not end; None: the job has ended."""
        with self._turn:
            coordinator = None if self._is_over else self._launched.coordinator
            self._callers += 1
        try:
            yield coordinator
        finally:
            del coordinator  # before Ray ends, as in `Launched.end`
            with self._turn:
                self._callers -= 1
                self._turn.notify_all()

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        """Run a plan to its end. JobFailedError if user code failed, or more processes died, one after the other, than
        the plan bears; JobCancelledError if a request asked for that; CheckpointError if checkpoints cannot be read."""
        recoveries, until, store = Recoveries(plan.recovery), 0.0, None
        if plan.saved is not None:
            from dpa.checkpoints import CheckpointStore

            store, recoveries.generation = CheckpointStore.open(plan.saved.options.path), plan.saved.generation
            self._writes = True
        newest = _newest(store, plan)
        while True:
            try:
                self._wait(until)
                generation = replace(
                    plan,
                    generation=recoveries.generation,
                    tries=recoveries.suspects,
                    attempts_left=recoveries.attempts_left,
                )
                return self._launched.run(generation, hooks, store, self._machines)
            except TaskDiedError as error:
                death = replace(error.death, generation=recoveries.generation, at=time.time())
            for machine in self._machines.check():
                if machine == death.node:
                    death = replace(death, cause=f"its machine is lost: {ENDED}")
                else:
                    hooks.warn(f"the machine {machine} is left out: {ENDED}")
            before, newest = newest, max(newest, _newest(store, plan))
            wait = recoveries.after(death, has_progressed=newest > before)
            if wait is None:
                raise JobFailedError(recoveries.in_words(), self._launched.last_events())
            until, waits = time.monotonic() + wait, recoveries.waits()
            try:
                _tried(partial(self._replace, recoveries.generation), waits)
            except ConfigError as error:
                raise JobFailedError(f"{death.in_words()}; the job cannot restart: {error}") from error
            _tried(partial(hooks.restart, death), waits)

    def _wait(self, until: float) -> None:
        """Wait until a moment on the monotonic clock. JobCancelledError and TaskDiedError as of `Launched.poll`."""
        while (left := until - time.monotonic()) > 0:
            self._launched.poll(min(left, _POLL_SECONDS))

    def _replace(self, generation: int) -> None:
        """Let the processes that live be of the next generation, start others for the dead, and end the rest."""
        dying = self._launched
        kept = dying.freed(generation, self._machines.avoided(), self._machines.lost)
        try:
            self._launched = self._launch(kept)
        finally:
            kept.end_others()
        dying.wait_for_end(kept.taken)

    def _launch(self, kept: KeptProcesses) -> Launched:
        avoided = self._machines.avoided()
        placed = None if self._placer is None else self._placer(self._machines.usable())
        self._requests.require_room(avoided, placed)
        return Launched(self._tasks, placed, kept, self._changes, self._requests, avoided)


def _tried(begin: Callable[[], object], waits: Iterator[float]) -> None:
    """Do this, again after each of these waits in seconds: a lost machine, or the place of a result, may come back."""
    for wait in waits:
        try:
            begin()
        except (ConfigError, JobFailedError):
            time.sleep(wait)
        else:
            return
    begin()


def _newest(store: CheckpointStore | None, plan: RunPlan) -> int:
    """The number of a job's newest checkpoint; -1 if there is none, or it cannot be read."""
    if store is None or plan.saved is None:
        return -1
    try:
        found = store.chain(plan.saved.job).newest()
    except CheckpointError:  # the coordinator, which reads it next, reports why
        return -1
    return -1 if found is None else found.number
