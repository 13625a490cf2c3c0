"""The driver's side of a generation of a job on Ray: start the coordinator, hand it the plan, poll it, fetch the
outcome, and leave no actor behind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dpa.errors import JobCancelledError, JobFailedError
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.recovery import TaskDiedError
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.nodes import Placed, TaskProcess
from dpa.runtime._kept_answers import TOO_LATE
from dpa.runtime.cluster import alive_nodes, require_alive
from dpa.runtime.named_jobs import with_node_ids
from dpa.runtime.packed_plan import PackedPlan
from dpa.telemetry.mailbox import Mailbox

if TYPE_CHECKING:
    from ray import ObjectRef

    from dpa.runtime._checkpointing import SavedJob
    from dpa.runtime._polled import Polled

POLL_SECONDS = 0.2
"""How often to ask what is new."""

_EVENTS_SECONDS = 2.0
"""How long the tasks of a failed job may take to give their last events."""

_CLOSE_SECONDS = 5.0
"""How long the coordinator may take to answer what it was asked, before it is killed; and then how long processes may
take to end."""

_LOOK_SECONDS = 1.0
"""How often to check that Ray is alive while an answer is outstanding."""


class Launched:
    """A coordinator, and actors that can become the tasks of one generation of a job: none is waited for. The
    coordinator and the load balancer are on the driver's node: where another one dies, a task does that the user knows,
    and the coordinator lives to report it.

    Attributes:
        coordinator: its handle.
    """

    def __init__(self, tasks: int, placed: Placed | None = None, named: Mapping[str, str] | None = None) -> None:
        """Start them.

        Args:
            tasks: of all stages.
            placed: their nodes; None: Ray spreads them.
            named: Ray's name and namespace of the coordinator; None: it needs none.
        """
        import ray

        from dpa.runtime._actors import StageActor, create
        from dpa.runtime._balancer_actor import LoadBalancerActor
        from dpa.runtime._coordinator_actor import CoordinatorActor

        here = ray.get_runtime_context().get_node_id()
        self.coordinator = create(CoordinatorActor, here, **(named or {}))
        waiting = {BALANCER: create(LoadBalancerActor, here)}
        for stage, nodes in ({} if placed is None else placed.nodes).items():
            waiting |= {Address(stage, index): create(StageActor, node) for index, node in enumerate(nodes)}
        idle = [create(StageActor) for _ in range(tasks if placed is None else 0)]
        self._others = [*waiting.values(), *idle]
        self._processes: dict[Address, TaskProcess] = {}
        self._closed: ObjectRef | None = None
        self.coordinator.prepare.remote(waiting, idle, placed)

    def begin(self, plan: RunPlan, saved: SavedJob | None = None) -> None:
        """Let the actors be the tasks of a plan.

        Args:
            plan: what to run.
            saved: where the checkpoints are, with the newest of which they begin; None, or where there is none yet:
                with the start of the input.

        Raises:
            JobFailedError: the coordinator failed; a `TaskDiedError` if it has died.
        """
        packed = PackedPlan.pack(plan)
        begun = self.coordinator.begin.remote(self.coordinator, plan.without_user_code(), packed, saved)
        self._processes[COORDINATOR] = self._asked(begun)

    def poll(self, seconds: float = POLL_SECONDS, mailbox: Mailbox | None = None) -> Polled:
        """What is new, after `seconds` or at the end; requests in the mailbox are passed on, and answers to it.

        Raises:
            JobFailedError: the coordinator failed; a `TaskDiedError` if it has died.
            JobCancelledError: a request asked for it.
        """
        polled: Polled = self._asked(self.coordinator.poll.remote(seconds))
        self._processes |= polled.processes
        if mailbox is not None:
            self._pass_on(mailbox, polled)
        if polled.is_cancelled and (polled.error is None or polled.death is not None):
            raise JobCancelledError("cancelled by a request to the running job; nothing was published")
        return polled

    def outcome(self, plan: RunPlan) -> RunOutcome:
        """What a job gives back that is done.

        Raises:
            JobFailedError: a task failed; a `TaskDiedError` if it has died.
        """
        snapshot, times, outputs, used = self._asked(self.coordinator.outcome.remote())
        found = _fetched(outputs)
        shares = {
            stage.name: tuple(found[Address(stage.name, index)] for index in snapshot[stage.name].present)
            for stage in plan.graph.queue_fed()
        }
        use = {**snapshot.use, **_fetched(used)}  # of those that left, the last known
        return RunOutcome(shares, snapshot, times, use)

    def last_events(self) -> dict[str, bytes]:
        """The files of events of all tasks that give theirs in time, by name. Nothing that goes wrong here may hide the
        error that ended the job."""
        import ray

        found: dict[str, bytes] = {}
        with suppress(Exception):
            until = time.monotonic() + _EVENTS_SECONDS
            calls = ray.get(self.coordinator.events_of_all.remote(), timeout=_EVENTS_SECONDS)
            given, _ = ray.wait(calls, num_returns=len(calls), timeout=max(0.0, until - time.monotonic()))
            for call in given:
                with suppress(Exception):  # the task is dead
                    name, content = ray.get(call)
                    found[name] = content
        return found

    def begin_end(self, why: str) -> None:
        """End all actors but the coordinator, which refuses requests that are not answered, as `why` says."""
        import ray

        if self._closed is None:
            self._closed = self.coordinator.close.remote(why)
            for handle in self._others:
                ray.kill(handle)

    def end(self, why: str) -> None:
        """End all actors, and forget them: Ray ends a process in which a handle is collected while another thread shuts
        Ray down."""
        import ray

        if not self._others:
            return
        try:
            with suppress(Exception):
                self.begin_end(why)
                ray.get(self._closed, timeout=_CLOSE_SECONDS)
        finally:
            ray.kill(self.coordinator)
            self._others.clear()
            del self.coordinator, self._closed

    def wait_for_end(self) -> None:
        """Wait a few seconds until all processes on this machine are gone, once they are to end."""
        import psutil  # Ray brings it
        import ray

        here, found = ray.get_runtime_context().get_node_id(), []
        for process in self._processes.values():
            if process.node == here:
                with suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(process.pid))
        psutil.wait_procs(found, timeout=_CLOSE_SECONDS)

    def _pass_on(self, mailbox: Mailbox, polled: Polled) -> None:
        """Bring requests to the coordinator, and its answers back."""
        if mailbox.waiting:
            for answer in self._asked(self.coordinator.answers.remote(mailbox.waiting)):
                mailbox.answer(answer)
        if polled.snapshot is not None:
            mailbox.tell(polled.snapshot, polled.processes, alive_nodes)
        for request in mailbox.requests():
            asked = with_node_ids(request)
            if isinstance(asked, Answer):
                mailbox.answer(asked)
            else:
                self.coordinator.ask.remote(asked)

    @staticmethod
    def _asked(call: ObjectRef) -> Any:
        """The result of a call to the coordinator."""
        from ray.exceptions import RayError

        from dpa.runtime._failures import failure, is_death

        try:
            return _answer(call)
        except RayError as error:
            raise failure(COORDINATOR, error, "died" if is_death(error) else "failed") from None


@contextmanager
def actors(tasks: int) -> Iterator[Launched]:
    """A block with the actors of one generation, of a job with as many tasks of stages."""
    launched = Launched(tasks)
    try:
        yield launched
    finally:
        launched.end(TOO_LATE)


def run_on(
    launched: Launched,
    plan: RunPlan,
    hooks: RunHooks,
    mailbox: Mailbox | None = None,
    saved: SavedJob | None = None,
) -> RunOutcome:
    """Run one generation of a job to its end.

    Args:
        launched: actors that have not run any plan.
        plan: what to run.
        hooks: what is called meanwhile; statistics come a few times a second.
        mailbox: by which the job is asked for something; None: not by files.
        saved: where its checkpoints are.

    Raises:
        JobFailedError: user code failed; carries the last events of the tasks that still answer.
        TaskDiedError: a process died.
        JobCancelledError: a request asked for it.
    """
    launched.begin(plan, saved)
    while True:
        polled = launched.poll(mailbox=mailbox)
        assert polled.snapshot is not None
        for warning in polled.warnings:
            hooks.warn(warning)
        hooks.observe(polled.snapshot)
        if polled.death is not None:
            raise TaskDiedError(polled.death)
        if polled.error is not None:
            raise JobFailedError(polled.error, launched.last_events())
        if polled.snapshot.phase == "done":
            return launched.outcome(plan)


def _fetched(calls: Mapping[Address, ObjectRef]) -> dict[Address, Any]:
    """The results of calls to tasks.

    Raises:
        JobFailedError: a task has failed; names it. A `TaskDiedError` if it, or the coordinator, has died.
    """
    from ray.exceptions import OwnerDiedError, RayError

    from dpa.runtime._failures import failure

    answers = {}
    for address, call in calls.items():
        try:
            answers[address] = _answer(call)
        except OwnerDiedError as error:
            raise failure(COORDINATOR, error, "died") from None
        except RayError as error:
            raise failure(address, error, "died before its result was fetched") from None
    return answers


def _answer(call: ObjectRef) -> Any:
    """The result of a call; waits for it while Ray is alive.

    Raises:
        JobFailedError: Ray's processes have died.
        RayError: the call failed.
    """
    import ray

    while ray.wait([call], timeout=_LOOK_SECONDS)[1]:
        require_alive()
    require_alive()
    return ray.get(call)
