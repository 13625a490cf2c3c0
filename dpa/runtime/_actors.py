"""The Ray actors of stages: thin shells around the machines of `dpa.protocol`.

Every actor takes records and control messages in concurrency groups of their own, so control overtakes data; the
queue of records is the machine's, not Ray's mailbox. Calls carry no result (`num_returns=0`): an answer is a message.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Collection
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.parquet  # noqa: F401 - tasks that read it begin with it loaded
import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpa._util.lazy_pandas import import_pandas_late
from dpa._util.outages import HERE
from dpa._util.streams import log_to_stderr
from dpa.errors import ProtocolError
from dpa.execution.trials import Work
from dpa.measure.load import TrafficMeter
from dpa.protocol.machine import Machine
from dpa.protocol.machines import task_of
from dpa.protocol.plan import RunPlan
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.wire.addresses import COORDINATOR, RELAY, RESERVED, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import (
    Event,
    ExtractDone,
    FinishDone,
    ProcessDone,
    PublishDone,
    SnapshotMarked,
    StepDone,
    TaskDied,
    TasksGone,
)
from dpa.protocol.wire.instructions import CloseSplit, Instruction, OpenSplit, ProcessBlock
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.migration import RangeTransfer
from dpa.protocol.wire.nodes import TaskProcess
from dpa.protocol.wire.relays import RELAYED_BYTES, relay_of
from dpa.protocol.wire.use import TaskUse, forget_receivers
from dpa.runtime._process import CoreWait, keep_freed_memory, room_in
from dpa.runtime._shell import Shell
from dpa.runtime._slowness import Slowness
from dpa.runtime._trials import Trials
from dpa.runtime.packed_plan import PackedPlan
from dpa.runtime.pickled import PickledEnvelope
from dpa.runtime.ray_internals.private import least_resources, name_process

if TYPE_CHECKING:
    from dpa.protocol.checkpointing import Beginning

Handles = dict[Address, ActorHandle]

_RETURN_SECONDS = 0.5
"""How long user code may take to return, so that its process is kept for the next generation."""

_GROUPS = {"control": 1, "data": 1, "watch": 2}
"""`control`: messages and questions. `data`: pushed records. `watch`: calls that wait."""

_MANY_ROWS = 100_000
"""From this number of input rows on, actors import what only large blocks need before they start."""


class TaskActor:
    """What all actors have in common. An actor is made before the plan is there: `host` is the first that it does when
    it is given its part of it."""

    _shell: Shell

    def __init__(self) -> None:
        import_pandas_late()
        self._generation = 0
        self._is_over = threading.Event()
        self._handles: Handles = {}
        self._relay: ActorHandle | None = None
        self._traffic: TrafficMeter[Address] = TrafficMeter()
        self._cpu_before = 0.0
        self._node = ray.get_runtime_context().get_node_id()

    def host(self, machine: Machine, plan: RunPlan) -> None:
        """Be the task of a plan whose machine this is.

        Raises:
            ProtocolError: the process was reset for a later generation.
        """
        self._require(plan.generation)
        self._address = machine.address
        self._generation = plan.generation
        machine.live_in(plan.generation)
        name_process(plan.name, str(machine.address), plan.generation)
        if plan.log_level is not None:
            log_to_stderr(plan.log_level, str(machine.address))
        self._shell = Shell(machine, self, plan.stuck_seconds)

    def _bear_outages(self, plan: RunPlan) -> None:
        """Wait for places that do not answer, until the process is to be of another generation."""
        HERE.begin(plan.limits.patience, self._warned, self._is_over.wait, time.monotonic)

    def _warned(self, message: str) -> None:
        if COORDINATOR in self._handles:
            self.warn(f"{self._address} {message}")

    @ray.method(concurrency_group="control")
    def reset(self, generation: int) -> TaskProcess | None:
        """Be no task any more, so as to be one of this later generation: what coordinators of earlier ones still ask
        for is refused. Returns where this is; None: user code does not return, so the process is of no use."""
        with self._shell.lock if hasattr(self, "_shell") else nullcontext():
            self._generation = generation
        self._is_over.set()
        self._is_over = threading.Event()
        is_free = not hasattr(self, "_shell") or self._shell.end(_RETURN_SECONDS)
        return TaskProcess(self._node, os.getpid()) if is_free else None

    def _require(self, generation: int) -> None:
        """Refuse what a coordinator of an earlier generation asks for.

        Raises:
            ProtocolError: it is of one.
        """
        if generation < self._generation:
            raise ProtocolError(f"generation {generation} has ended: this process is of generation {self._generation}")

    def _leave_for(self, generation: int) -> None:
        """Be no task of an earlier generation any more: it may have made one of a process that had only just begun, and
        that nobody has reset.

        Raises:
            ProtocolError: the process was reset for a later generation.
        """
        self._require(generation)
        if self._generation < generation and self.reset(generation) is None:
            os._exit(1)  # user code does not return: another process takes the place of this one

    @ray.method(concurrency_group="control")
    def connect(self, handles: Handles, generation: int) -> TaskProcess:
        """Learn the receivers of messages, relays among them, and begin; returns where that is."""
        self._require(generation)
        self._handles = handles
        relay = relay_of(self._address, sum(address.stage == RELAY for address in handles))
        self._relay = None if relay is None else handles[Address(RELAY, relay)]
        self._traffic = TrafficMeter()
        self._cpu_before = time.process_time()
        self._shell.start()
        return TaskProcess(self._node, os.getpid())

    @ray.method(concurrency_group="watch")
    def meet(self, handles: Handles, generation: int) -> None:
        """Learn of tasks that were started later, and open the channels to them: the first message of one process to
        another takes longer, and records may wait for it."""
        with self._shell.lock:
            self._require(generation)
            self._handles = {**self._handles, **handles}
        with suppress(RayError):  # who watches the task says that it has died
            ray.get([handle.greet.remote() for handle in handles.values()])

    @ray.method(concurrency_group="control", num_returns=0)
    def part(self, present: Present, generation: int) -> None:
        """Learn that tasks of a stage have ended."""
        with self._shell.lock:
            self._require(generation)
            self._handles = {task: handle for task, handle in self._handles.items() if not present.has_gone(task)}
            forget_receivers(self._traffic, present)
            self._shell.post(TasksGone(present))

    @ray.method(concurrency_group="control")
    def greet(self) -> None:
        """Answer: the channel is open."""

    @ray.method(concurrency_group="control", num_returns=0)
    def deliver(self, pickled: PickledEnvelope | bytes) -> None:
        """Take in a control message."""
        self._shell.receive(pickled)

    @ray.method(concurrency_group="data", num_returns=0)
    def push(self, pickled: PickledEnvelope | bytes) -> None:
        """Take in records, or the states of ranges."""
        self._shell.receive(pickled)

    @ray.method(concurrency_group="watch")
    def join(self, generation: int) -> None:
        """Return when the process is to be of a later generation, and not before: the call fails when the actor dies,
        which is how its death is noticed."""
        is_over = self._is_over
        if generation >= self._generation:
            is_over.wait()

    @ray.method(concurrency_group="watch")
    def events(self) -> tuple[str, bytes]:
        """The name of the task's file of events, and its content."""
        recording = self._shell.recording()
        return recording.file_name, recording.to_bytes()

    @ray.method(concurrency_group="control")
    def use(self) -> TaskUse:
        """What the actor has used so far."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with self._shell.lock:
            sent = {to: found for to, found in self._traffic.found().items() if to.stage not in RESERVED}
        return TaskUse(
            node=self._node,
            peak_memory=peak if sys.platform == "darwin" else peak * 1024,
            cpu_seconds=time.process_time() - self._cpu_before,
            sent=sent,
        )

    def send(self, envelope: Envelope) -> None:
        """Deliver a message, records by the queue that is theirs, and count its bytes."""
        handle, message, pickled = self._handles[envelope.receiver], envelope.message, PickledEnvelope.of(envelope)
        records = message.block.rows if isinstance(message, Push) else 0
        self._traffic.sent(envelope.receiver, records, pickled.size)
        if self._relay is not None and envelope.receiver == COORDINATOR and pickled.size <= RELAYED_BYTES:
            self._relay.deliver.remote(pickled.whole)
        else:
            (handle.push if isinstance(message, Push | RangeTransfer) else handle.deliver).remote(pickled.argument)

    def flush(self) -> None:
        """Nothing waits."""

    def at_once(self, instruction: Instruction) -> bool:
        """Carry out an instruction that takes no time and need not wait until user code returns; whether it was one."""
        return False

    def work(self, instruction: Instruction) -> Event | None:
        """Carry out an instruction that takes time; returns the event that answers it."""
        raise ProtocolError(f"{type(self).__name__} cannot carry out {instruction}")

    def failed(self, died: TaskDied, generation: int) -> None:
        """Have the coordinator end the job."""
        self._handles[COORDINATOR].fail.remote(died, generation)

    def warn(self, message: str) -> None:
        """Have the coordinator pass on a warning for the user."""
        self._handles[COORDINATOR].warn.remote(message)


class StageActor(TaskActor):
    """A task of a stage."""

    def __init__(self) -> None:
        super().__init__()
        keep_freed_memory()

    @ray.method(concurrency_group="control")
    def become(self, address: Address, given: list[ObjectRef]) -> None:
        """Be this task of the plan that is the first of these two; the other is with what it begins, where the job has
        checkpoints. They are fetched here: as arguments they could be lost, with the call, on a Ray of the caller's
        whose workers have ports of the system's choice.

        Raises:
            ConfigError: a module of the user's is not to be found here.
            CheckpointError: what it begins with cannot be read.
            ProtocolError: the process was reset for a later generation.
        """
        packed: PackedPlan = ray.get(given[0])
        beginning: Beginning | None = ray.get(given[1])
        if packed.rows >= _MANY_ROWS:
            import polars_hash  # noqa: F401
        plan = packed.unpack()
        self._leave_for(plan.generation)
        self._bear_outages(plan)
        self._trials = Trials(packed, address) if address.stage in plan.tries else None
        trial = None if self._trials is None else self._try
        if beginning is None:
            self._user_code = plan.user_code(address, time.perf_counter, trial=trial, room=partial(room_in, plan))
        else:
            plan = replace(plan, graph=beginning.graph)
            archive = replace(beginning.archive, guard=threading.Lock()).cut
            self._user_code = plan.user_code(address, time.perf_counter, archive, trial, partial(room_in, plan))
            beginning.restore(self._user_code)
        self.host(task_of(plan.graph, address), plan)
        self._slowness = Slowness(plan, address)
        self._core_wait: CoreWait | None = None

    @ray.method(concurrency_group="control")
    def reset(self, generation: int) -> TaskProcess | None:
        """Be no task any more: states and executors go."""
        process: TaskProcess | None = super().reset(generation)
        if process is not None and hasattr(self, "_slowness"):
            self._slowness.end()
            if self._trials is not None:
                self._trials.close()
            del self._user_code, self._slowness, self._trials
        return process

    @ray.method(concurrency_group="control")
    def use(self) -> TaskUse:
        """Also what its states take."""
        used: TaskUse = super().use()
        held, spilled = self._user_code.state_use
        return replace(used, state_memory=held, spilled=spilled)

    @ray.method(concurrency_group="control")
    def output(self) -> TaskOutput:
        """The finished share of the stage's result."""
        assert self._user_code.output is not None
        return self._user_code.output

    def at_once(self, instruction: Instruction) -> bool:
        """Open and close splits."""
        if isinstance(instruction, OpenSplit | CloseSplit):  # a step that is being taken reads no further either
            self._user_code.carry_out(instruction)
            return True
        return False

    def work(self, instruction: Instruction) -> Event | None:
        """Run user code, and measure the time that it takes."""
        if self._core_wait is None:
            self._core_wait = CoreWait()  # of this thread
        self._tried = self._waited_tried = 0.0
        began, waited, ran = time.perf_counter(), self._core_wait.seconds, time.thread_time()
        awaited = HERE.awaited
        event = self._user_code.carry_out(instruction)
        if isinstance(instruction, ProcessBlock):
            self._slowness.prolong(time.perf_counter() - began - self._tried)
        if isinstance(event, FinishDone):
            self._slowness.end()
        if isinstance(event, SnapshotMarked):
            self._shell.aside(self._user_code.write_snapshot)
        if isinstance(event, StepDone | ProcessDone | ExtractDone | PublishDone):
            event = replace(event, seconds=time.perf_counter() - began)
        if isinstance(event, StepDone | ProcessDone):
            event = replace(event, ran=time.thread_time() - ran)
        if isinstance(event, StepDone):
            event = replace(event, awaited=HERE.awaited - awaited)
        if isinstance(event, ProcessDone):
            waited = self._core_wait.seconds - waited - self._waited_tried
            event = replace(event, waited=waited, tried=self._tried)
        return event

    def _try(self, work: Work) -> str | None:
        """Try work, and note how long that takes."""
        assert self._trials is not None and self._core_wait is not None
        began, waited = time.perf_counter(), self._core_wait.seconds
        died = self._trials(work)
        self._tried += time.perf_counter() - began
        self._waited_tried += self._core_wait.seconds - waited
        return died


def create(actor: type[TaskActor], node: str | None = None, avoided: Collection[str] = (), **named: str) -> ActorHandle:
    """A new actor. Tasks ask for no CPU, so a job never waits for ever for a busy cluster. They are spread over its
    nodes, but for those `avoided`, or are on the one with this number: where that is gone, the actor dies, and is not
    started elsewhere. `named`: Ray's `name` and `namespace`, by which it can be found on the whole cluster for as long
    as it lives."""
    strategy = "SPREAD" if node is None else NodeAffinitySchedulingStrategy(node, soft=False)
    options: dict[str, Any] = {"num_cpus": 0, "resources": least_resources(), "max_restarts": 0, **named}
    if node is None and avoided:
        options["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(avoided))})"}
    return ray.remote(scheduling_strategy=strategy, concurrency_groups=_GROUPS, **options)(actor).remote()
