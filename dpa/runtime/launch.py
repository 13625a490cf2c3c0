"""The driver's side of a run on Ray: start the coordinator, hand it the plan, poll it, fetch the outcome, and leave no
actor behind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dpa.errors import JobCancelledError, JobFailedError
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.nodes import Placed
from dpa.runtime.cluster import alive_nodes, is_of_this_process, require_alive
from dpa.runtime.named_jobs import free_name, with_node_ids
from dpa.runtime.packed_plan import PackedPlan
from dpa.telemetry.mailbox import Mailbox

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

    from dpa.runtime._coordinator_actor import Polled

_POLL_SECONDS = 0.2

_EVENTS_SECONDS = 2.0
"""How long the tasks of a failed job may take to give their last events."""

_CLOSE_SECONDS = 5.0
"""How long the coordinator may take to end all other actors, before it is killed, with which they end too."""

_LOOK_SECONDS = 1.0
"""How often to check that Ray is alive while an answer is outstanding."""


@contextmanager
def actors(tasks: int, placed: Placed | None = None, job: str = "job") -> Iterator[ActorHandle]:
    """A block with a coordinator, and with actors that can become so many tasks of stages: none is waited for. Whatever
    ends the block ends its actors. The coordinator is on the driver's node: so it lives to tell when another one dies.

    Args:
        tasks: of all stages.
        placed: their nodes; None: Ray spreads them.
        job: its name, by which the coordinator can be found on a Ray that this process has not started.
    """
    import ray

    from dpa.runtime._actors import create
    from dpa.runtime._coordinator_actor import CoordinatorActor

    named = {} if is_of_this_process() else free_name(job)
    coordinator = create(CoordinatorActor, ray.get_runtime_context().get_node_id(), **named)
    try:
        coordinator.prepare.remote(tasks, placed)
        yield coordinator
    finally:
        try:
            with suppress(Exception):
                ray.get(coordinator.close.remote(), timeout=_CLOSE_SECONDS)
        finally:
            ray.kill(coordinator)


def run_on(coordinator: ActorHandle, plan: RunPlan, hooks: RunHooks, mailbox: Mailbox | None = None) -> RunOutcome:
    """Run a plan on the actors of a coordinator that has not run any.

    Args:
        coordinator: what `actors` yields.
        plan: what to run.
        hooks: what is called meanwhile; statistics come a few times a second.
        mailbox: by which the job is asked for something; None: not by files.

    Raises:
        JobFailedError: user code failed, or an actor died; carries the last events of the tasks that still answer.
        JobCancelledError: a request asked for it.
    """
    from ray.exceptions import RayError

    from dpa.runtime._failures import cause_of

    packed = PackedPlan.pack(plan)
    try:
        _answer(coordinator.begin.remote(coordinator, plan.without_user_code(), packed))
        while True:
            polled: Polled = _answer(coordinator.poll.remote(_POLL_SECONDS))
            for warning in polled.warnings:
                hooks.warn(warning)
            hooks.observe(polled.snapshot)
            if mailbox is not None:
                _pass_on(coordinator, mailbox, polled)
            if polled.error is not None:
                raise JobFailedError(polled.error, _last_events(coordinator))
            if polled.is_cancelled:
                raise JobCancelledError("cancelled by a request to the running job; nothing was published")
            if polled.snapshot.phase == "done":
                break
        snapshot, times, outputs, used = _answer(coordinator.outcome.remote())
        found = _fetched(outputs)
        shares = {
            stage.name: tuple(found[Address(stage.name, index)] for index in snapshot[stage.name].present)
            for stage in plan.graph.queue_fed()
        }
        use = {**snapshot.use, **_fetched(used)}  # of those that left, the last known
        return RunOutcome(shares, snapshot, times, use)
    except RayError as error:
        raise JobFailedError(f"the coordinator failed: {cause_of(error)}") from None


def _pass_on(coordinator: ActorHandle, mailbox: Mailbox, polled: Polled) -> None:
    """Bring requests to the coordinator, and its answers back."""
    if mailbox.waiting:
        for answer in _answer(coordinator.answers.remote(mailbox.waiting)):
            mailbox.answer(answer)
    mailbox.tell(polled.snapshot, polled.processes, alive_nodes)
    for request in mailbox.requests():
        asked = with_node_ids(request)
        if isinstance(asked, Answer):
            mailbox.answer(asked)
        else:
            coordinator.ask.remote(asked)


def _last_events(coordinator: ActorHandle) -> dict[str, bytes]:
    """The files of events of all tasks that give theirs in time, by name. Nothing that goes wrong here may hide the
    error that ended the job."""
    import ray

    found: dict[str, bytes] = {}
    with suppress(Exception):
        until = time.monotonic() + _EVENTS_SECONDS
        calls = ray.get(coordinator.events_of_all.remote(), timeout=_EVENTS_SECONDS)
        given, _ = ray.wait(calls, num_returns=len(calls), timeout=max(0.0, until - time.monotonic()))
        for call in given:
            with suppress(Exception):  # the task is dead
                name, content = ray.get(call)
                found[name] = content
    return found


def _fetched(calls: Mapping[Address, ObjectRef]) -> dict[Address, Any]:
    """The results of calls to tasks.

    Raises:
        JobFailedError: a task has died or failed; names it.
        RayError: the coordinator has died, which made the calls.
    """
    from ray.exceptions import OwnerDiedError, RayError

    from dpa.runtime._failures import cause_of

    answers = {}
    for address, call in calls.items():
        try:
            answers[address] = _answer(call)
        except OwnerDiedError:
            raise
        except RayError as error:
            raise JobFailedError(f"{address} died before its result was fetched: {cause_of(error)}") from None
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
