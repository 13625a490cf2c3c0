"""The Ray actors of stages and of the load balancer: thin switches. An actor is one `Task` after the other.

Every actor takes records and control messages in concurrency groups of their own, so control overtakes data; the queue
of records is the machine's, not Ray's mailbox. Calls carry no result (`num_returns=0`): an answer is a message."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.parquet  # noqa: F401 - tasks that read it begin with it loaded
import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from dpa._util.lazy_pandas import import_pandas_late
from dpa.errors import ProtocolError
from dpa.protocol.plan import RunPlan
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.wire.addresses import Address, Present
from dpa.protocol.wire.events import Redistribute
from dpa.protocol.wire.nodes import Amounts, TaskProcess
from dpa.protocol.wire.use import TaskUse
from dpa.routing.keys import Key
from dpa.runtime.actors._pickled import PickledEnvelope
from dpa.runtime.actors._process import keep_freed_memory
from dpa.runtime.actors._task import Handles, StageTask, Task
from dpa.runtime.packed_plan import PackedPlan
from dpa.runtime.ray_internals.private import least_resources

if TYPE_CHECKING:
    from dpa.protocol.balancer.machine import LoadBalancerMachine

_MANY_ROWS = 100_000  # from this number of input rows on, actors import what only large blocks need before they start
_POLARS_THREADS = "POLARS_MAX_THREADS"  # polars reads this environment variable as it is imported


def polars_threads(tasks: int) -> int:
    """How many each task of a job gets: in several tasks, pools of all processors are slower than one thread each."""
    return max(1, (os.cpu_count() or 1) // max(1, tasks))


IMPORTED_SOON = (
    # what Ray imports for the first value that it reads
    "pydantic",
    "pydantic.v1",
    "pyarrow.json",
    # what tasks import when they are made
    "dpa.sinks.memory",
    "dpa.sources.generated",
    "numpy.ma",
    "numpy.random",
)
"""None of these starts threads."""

_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Resources for which Ray has options of their own."""


@dataclass(frozen=True)
class Share:
    """What an actor requests of its node, and where it is in a placement group, if it is in one."""

    amounts: Amounts = field(default_factory=dict)
    bundle: PlacementGroupSchedulingStrategy | None = None


NO_SHARE = Share()


class TaskActor:
    """What all actors have in common. An actor is made before there is a plan, and outlives the generation of its
    task: calls that an earlier generation has left over are refused by their number.

    Attributes:
        groups: how many calls of each concurrency group run at a time. `control`: messages and questions. `data`:
            pushed records. `watch`: calls that wait.
        task: what this process is; None: no task yet, or no more.
    """

    groups: ClassVar[Mapping[str, int]] = {"control": 1, "data": 1, "watch": 2}
    task: Task | None

    def __init__(self) -> None:
        import_pandas_late()
        self.task = None
        self._generation = 0
        self._is_over = threading.Event()
        self._known: Handles = {}
        self._process = TaskProcess(ray.get_runtime_context().get_node_id(), os.getpid())

    @ray.method(concurrency_group="control")
    def warm(self, tasks: int) -> None:
        """Import what is needed soon, before this is of a job with `tasks` tasks of stages."""
        for name in IMPORTED_SOON:
            import_module(name)

    def _be(self, task: Task) -> None:
        self.task, self._generation = task, task.generation

    @ray.method(concurrency_group="control")
    def reset(self, generation: int) -> TaskProcess | None:
        """End the task, to be one of this later generation. Returns where this is; None: user code does not return, so
        the process is of no use."""
        self._generation = generation
        self._is_over.set()
        self._is_over = threading.Event()
        if self.task is not None and not self.task.end():
            return None
        self.task = None
        return self._process

    def _require(self, generation: int) -> None:
        """ProtocolError for what a coordinator of an earlier generation asks for."""
        if generation < self._generation:
            raise ProtocolError(f"generation {generation} has ended: this process is of generation {self._generation}")

    def _leave_for(self, generation: int) -> None:
        """End a task of an earlier generation. ProtocolError if the process was reset for a later one."""
        self._require(generation)
        # A process that was still starting was not reset; the generation before may have made it a task meanwhile.
        if self._generation < generation and self.reset(generation) is None:
            os._exit(1)  # user code does not return: another process takes the place of this one

    def _task_of(self, generation: int) -> Task:
        self._require(generation)
        assert self.task is not None
        return self.task

    @ray.method(concurrency_group="control")
    def connect(self, handles: Handles, generation: int) -> TaskProcess:
        """Begin the task, with the receivers of its messages; returns where this actor is."""
        self._known = handles
        self._task_of(generation).connect(handles)
        return self._process

    @ray.method(concurrency_group="watch")
    def meet(self, handles: Handles, generation: int) -> None:
        """Learn of tasks that were started later, and open the channels to them."""
        self._task_of(generation).meet(handles)
        # The first message from one process to another takes longer, and records may wait for it.
        with suppress(RayError):  # who watches the task says that it has died
            ray.get([handle.greet.remote() for handle in handles.values()])

    @ray.method(concurrency_group="control", num_returns=0)
    def part(self, present: Present, generation: int) -> None:
        self._task_of(generation).part(present)

    @ray.method(concurrency_group="control")
    def greet(self) -> None:
        """Answer, so that the channel is open."""

    @ray.method(concurrency_group="control", num_returns=0)
    def deliver(self, pickled: PickledEnvelope | bytes) -> None:
        self._receive(pickled)

    @ray.method(concurrency_group="data", num_returns=0)
    def push(self, pickled: PickledEnvelope | bytes) -> None:
        self._receive(pickled)

    def _receive(self, *pickled: PickledEnvelope | bytes) -> None:
        if (task := self.task) is not None:  # else they are of a generation that has ended
            task.shell.receive(*pickled)

    @ray.method(concurrency_group="watch")
    def join(self, generation: int) -> None:
        """Return when the process joins a later generation. The call fails when the actor dies, which is how its
        death is noticed."""
        is_over = self._is_over
        if generation >= self._generation:
            is_over.wait()

    @ray.method(concurrency_group="watch")
    def events(self) -> tuple[str, bytes]:
        """The name of the task's file of events, and its content."""
        recording = self._task_of(self._generation).shell.recording()
        return recording.file_name, recording.to_bytes()

    @ray.method(concurrency_group="control")
    def use(self) -> TaskUse:
        return self._task_of(self._generation).use()


class StageActor(TaskActor):
    """The actor of a task of a stage."""

    task: StageTask | None

    def __init__(self) -> None:
        super().__init__()
        keep_freed_memory()

    @ray.method(concurrency_group="control")
    def warm(self, tasks: int) -> None:
        super().warm(tasks)
        os.environ.setdefault(_POLARS_THREADS, str(polars_threads(tasks)))
        import polars  # noqa: F401

    @ray.method(concurrency_group="control")
    def become(self, address: Address, given: list[ObjectRef]) -> None:
        """Be this task; `given`: references to the packed plan, and to what the task begins with if the job has
        checkpoints. ConfigError if a module of the user's is not to be found here; CheckpointError if what it begins
        with cannot be read; ProtocolError if the process was reset for a later generation."""
        # As arguments they could be lost, with the call, on a Ray of the caller's whose workers have ports of the
        # system's choice.
        packed: PackedPlan = ray.get(given[0])
        beginning = ray.get(given[1])
        if packed.changes is not None:
            packed.changes.take()
        os.environ.setdefault(_POLARS_THREADS, str(polars_threads(packed.tasks)))
        if packed.rows >= _MANY_ROWS:
            import polars_hash  # noqa: F401
        plan = packed.unpack()
        self._leave_for(plan.generation)
        self._be(StageTask(packed, plan, address, beginning, self._is_over, self._known))

    @ray.method(concurrency_group="control")
    def output(self) -> TaskOutput:
        assert self.task is not None
        return self.task.output


class LoadBalancerActor(TaskActor):
    """The load balancer, with the DPA paper's two calls (section 4.2) for tools and tests."""

    _machine: LoadBalancerMachine

    @ray.method(concurrency_group="control")
    def warm(self, tasks: int) -> None:
        super().warm(tasks)
        import dpa.protocol.balancer.machine  # noqa: F401

    @ray.method(concurrency_group="control")
    def become(self, plan: RunPlan) -> None:
        from dpa.protocol.balancer.machine import load_balancer_of  # which no other actor needs

        self._leave_for(plan.generation)
        self._machine = load_balancer_of(plan.graph)
        self._be(Task(self._machine, plan))

    @ray.method(concurrency_group="control")
    def key_lookup(self, key: Key, stage: str) -> int:
        """The task of a stage that owns a key now."""
        with self._task_of(self._generation).shell.lock:
            return self._machine.key_lookup(key, stage)

    @ray.method(concurrency_group="control")
    def redistribute(self, node_id: int, stage: str) -> None:
        """Relieve a task, even if its load is low. BalanceError if there is no such task."""
        shell = self._task_of(self._generation).shell
        with shell.lock:
            self._machine.require_task(stage, node_id)
        shell.post(Redistribute(stage, node_id))


def create(
    actor: type[TaskActor], node: str | None = None, avoided: Collection[str] = (), share: Share = NO_SHARE
) -> ActorHandle:
    """A new actor on this node, or on any that is not `avoided`. If its node is gone, it dies and is not started
    elsewhere."""
    strategy = share.bundle or ("SPREAD" if node is None else NodeAffinitySchedulingStrategy(node, soft=False))
    custom = {} if share.bundle else least_resources()
    custom |= {name: amount for name, amount in share.amounts.items() if name not in _OPTIONS}
    options: dict[str, Any] = {"resources": custom}
    options |= {_OPTIONS[name]: amount for name, amount in share.amounts.items() if name in _OPTIONS}
    if node is None and share.bundle is None and avoided:
        options["label_selector"] = elsewhere(avoided)
    return _remote(actor).options(scheduling_strategy=strategy, **options).remote()  # type: ignore[arg-type]


@cache
def _remote(actor: type[TaskActor]) -> Any:
    # Once: Ray exports each class that it is given, and who is handed an actor of it keeps a copy as long as Ray is up.
    return ray.remote(num_cpus=0, max_restarts=0, concurrency_groups=dict(actor.groups))(actor)


def elsewhere(avoided: Collection[str]) -> dict[str, str]:
    """Ray's label selector for all nodes but these."""
    return {"ray.io/node-id": f"!in({','.join(sorted(avoided))})"}
