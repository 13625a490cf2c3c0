"""The Ray actor of the coordinator."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import ray
from ray.actor import ActorHandle

from dpa.protocol.plan import Request, RunOutcome, RunPlan
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import TaskDied
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import Amounts, Placed, TaskProcess
from dpa.runtime._surroundings import Surroundings
from dpa.runtime.actors._coordinating import Coordinating
from dpa.runtime.actors._starting import Prepared
from dpa.runtime.actors._task import Handles
from dpa.runtime.actors.actor import TaskActor
from dpa.runtime.actors.answers import RESTARTED, PendingRequests, Polled
from dpa.runtime.packed_plan import PackedPlan

if TYPE_CHECKING:
    from dpa.checkpoints import CheckpointStore


class CoordinatorActor(TaskActor):
    """A switch between the states of a job's coordinator: `Prepared` until a generation begins, then `Coordinating`.
    Only requests outlive a generation."""

    groups: ClassVar[Mapping[str, int]] = {**TaskActor.groups, "requests": 32, "urgent": 4}
    task: Coordinating | None

    def __init__(self) -> None:
        super().__init__()
        self._answers = PendingRequests()
        self._prepared = Prepared(self._answers)
        self._turn = threading.Lock()

    @property
    def _state(self) -> Prepared | Coordinating:
        return self.task or self._prepared

    @property
    def _begun(self) -> Coordinating:
        assert self.task is not None
        return self.task

    @ray.method(concurrency_group="control")
    def reset(self, generation: int) -> TaskProcess | None:
        """Coordinate no more. Open requests are refused."""
        process: TaskProcess | None = super().reset(generation)
        self._answers.refuse(RESTARTED)
        self._prepared.close()
        self._prepared = Prepared(self._answers)
        return process

    @ray.method(concurrency_group="control", num_returns=0)
    def prepare(
        self,
        waiting: Handles,
        idle: list[ActorHandle],
        placed: Placed | None,
        changes: Surroundings | None,
        requests: Mapping[str, Amounts],
    ) -> None:
        if changes is not None:
            changes.take()
        self._prepared = Prepared(self._answers, waiting, idle, placed, requests)

    @ray.method(concurrency_group="control")
    def begin(
        self, own_handle: ActorHandle, plan: RunPlan, packed: PackedPlan, store: CheckpointStore | None = None
    ) -> TaskProcess:
        """Start the job, with the newest checkpoint in the store if there is one; `plan` is without user code, and
        `packed` with it. Returns where this actor is. CheckpointError if the newest checkpoint cannot be read, or a
        later generation has the job."""
        self._require(plan.generation)
        task = Coordinating(self._prepared, own_handle, plan, packed, store, self._answers)
        with self._turn:  # a request does not come before the start
            self._be(task)
            task.begin()
        return self._process

    @ray.method(concurrency_group="watch")
    def poll(self, seconds: float) -> Polled:
        """What is new, after `seconds` or at the end. The caller has committed the epochs of the answer before."""
        return self._state.poll(seconds)

    @ray.method(concurrency_group="requests")
    def ask(self, request: Request) -> Answer | None:
        """The answer to a request, once there is one; None: nobody waits for one."""
        answer = self._answers.expect(request.request)  # first: what ends meanwhile refuses it
        with self._turn:
            self._state.ask(request)
        return None if answer is None else answer.result()

    @ray.method(concurrency_group="control")
    def status(self) -> tuple[str, Snapshot, dict[Address, TaskProcess]] | None:
        """The job's name, its statistics without their history, and where its tasks are; None if it has not begun."""
        return None if self.task is None else self.task.status()

    @ray.method(concurrency_group="control")
    def outcome(self) -> tuple[RunOutcome, Handles]:
        return self._begun.outcome()

    @ray.method(concurrency_group="control")
    def present(self) -> Handles:
        return self._begun.present

    @ray.method(concurrency_group="control")
    def balancer(self) -> ActorHandle:
        return self._begun.handles[BALANCER]

    @ray.method(concurrency_group="control", num_returns=0)
    def deliver_all(self, bundle: list[bytes]) -> None:
        """Take in the messages that a relay brings; the answers go out together."""
        self._receive(*bundle)

    @ray.method(concurrency_group="control", num_returns=0)
    def fail(self, died: TaskDied, generation: int) -> None:
        if self.task is not None and generation >= self._generation:
            self.task.fail(died)

    @ray.method(concurrency_group="control", num_returns=0)
    def warn(self, message: str) -> None:
        if self.task is not None:
            self.task.warn(message)

    @ray.method(concurrency_group="watch")
    def close(self, why: str) -> None:
        """End the actors that it has created, and refuse open requests with the reason `why`."""
        self._state.close()
        self._answers.close(why)
