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
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet  # noqa: F401 - tasks that read it begin with it loaded
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpa._util.lazy_pandas import import_pandas_late
from dpa._util.logs import log_to_stderr
from dpa.errors import ProtocolError
from dpa.measure.traffic import TrafficMeter
from dpa.protocol.machine import Machine
from dpa.protocol.machines import task_of
from dpa.protocol.plan import RunPlan
from dpa.protocol.task.delivery import TaskOutput
from dpa.protocol.wire.addresses import COORDINATOR, RESERVED, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import (
    Event,
    ExtractDone,
    FinishDone,
    MergeDone,
    ProcessDone,
    StepDone,
    TaskDied,
    TasksGone,
)
from dpa.protocol.wire.instructions import CloseSplit, Instruction, OpenSplit, ProcessBlock
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.migration import RangeTransfer
from dpa.protocol.wire.nodes import TaskProcess
from dpa.protocol.wire.use import TaskUse, forget_receivers
from dpa.runtime._core_wait import CoreWait
from dpa.runtime._freed_memory import keep_freed_memory
from dpa.runtime._pickled import PickledEnvelope
from dpa.runtime._shell import Shell
from dpa.runtime._slowness import Slowness
from dpa.runtime._titles import name_process
from dpa.runtime.packed_plan import PackedPlan

if TYPE_CHECKING:
    from dpa.runtime._checkpointing import Beginning

Handles = dict[Address, ActorHandle]

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
        self._handles: Handles = {}
        self._traffic: TrafficMeter[Address] = TrafficMeter()
        self._cpu_before = 0.0
        self._node = ""

    def host(self, machine: Machine, plan: RunPlan) -> None:
        """Be the task of a plan whose machine this is."""
        machine.live_in(plan.generation)
        name_process(plan.name, f"{machine.address}#{plan.generation}" if plan.generation else str(machine.address))
        if plan.log_level is not None:
            log_to_stderr(plan.log_level, str(machine.address))
        self._shell = Shell(machine, self, plan.stuck_seconds)

    @ray.method(concurrency_group="control")
    def connect(self, handles: Handles) -> TaskProcess:
        """Learn the receivers of messages, and begin; returns where that is."""
        self._handles = handles
        self._cpu_before = time.process_time()
        self._node = ray.get_runtime_context().get_node_id()
        self._shell.start()
        return TaskProcess(self._node, os.getpid())

    @ray.method(concurrency_group="watch")
    def meet(self, handles: Handles) -> None:
        """Learn of tasks that were started later, and open the channels to them: the first message of one process to
        another takes longer, and records may wait for it."""
        with self._shell.lock:
            self._handles = {**self._handles, **handles}
        with suppress(RayError):  # who watches the task says that it has died
            ray.get([handle.greet.remote() for handle in handles.values()])

    @ray.method(concurrency_group="control", num_returns=0)
    def part(self, present: Present) -> None:
        """Learn that tasks of a stage have ended."""
        with self._shell.lock:
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
    def join(self) -> None:
        """Never return: the call fails when the actor dies, which is how its death is noticed."""
        threading.Event().wait()

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
        (handle.push if isinstance(message, Push | RangeTransfer) else handle.deliver).remote(pickled.argument)

    def at_once(self, instruction: Instruction) -> bool:
        """Carry out an instruction that takes no time and need not wait until user code returns; whether it was one."""
        return False

    def work(self, instruction: Instruction) -> Event | None:
        """Carry out an instruction that takes time; returns the event that answers it."""
        raise ProtocolError(f"{type(self).__name__} cannot carry out {instruction}")

    def failed(self, died: TaskDied) -> None:
        """Have the coordinator end the job."""
        self._handles[COORDINATOR].fail.remote(died)

    def warn(self, message: str) -> None:
        """Have the coordinator pass on a warning for the user."""
        self._handles[COORDINATOR].warn.remote(message)


class StageActor(TaskActor):
    """A task of a stage."""

    def __init__(self) -> None:
        super().__init__()
        keep_freed_memory()

    @ray.method(concurrency_group="control")
    def become(self, address: Address, packed: PackedPlan, beginning: Beginning | None = None) -> None:
        """Be this task of the plan; `beginning`: with what, where the job has checkpoints.

        Raises:
            ConfigError: a module of the user's is not to be found here.
            CheckpointError: what it begins with cannot be read.
        """
        if packed.rows >= _MANY_ROWS:
            import polars_hash  # noqa: F401
        plan = packed.unpack()
        if beginning is None:
            self._user_code = plan.user_code(address, time.perf_counter)
        else:
            plan = replace(plan, graph=beginning.graph)
            self._user_code = plan.user_code(address, time.perf_counter, beginning.archive.write)
            beginning.restore(self._user_code)
        self.host(task_of(plan.graph, address), plan)
        self._slowness = Slowness(plan, address)
        self._core_wait: CoreWait | None = None

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
        began, waited, ran = time.perf_counter(), self._core_wait.seconds, time.thread_time()
        event = self._user_code.carry_out(instruction)
        if isinstance(instruction, ProcessBlock):
            self._slowness.prolong(time.perf_counter() - began)
        if isinstance(event, FinishDone):
            self._slowness.end()
        if isinstance(event, StepDone | ProcessDone | ExtractDone | MergeDone):
            event = replace(event, seconds=time.perf_counter() - began)
        if isinstance(event, StepDone | ProcessDone):
            event = replace(event, ran=time.thread_time() - ran)
        if isinstance(event, ProcessDone):
            event = replace(event, waited=self._core_wait.seconds - waited)
        return event


def create(actor: type[TaskActor], node: str | None = None, **named: str) -> ActorHandle:
    """A new actor. Tasks ask for no CPU, so a job never waits for ever for a busy cluster. They are spread over its
    nodes, or are on the one with this number: where that is gone, the actor dies, and is not started elsewhere.
    `named`: Ray's `name` and `namespace`, by which it can be found on the whole cluster for as long as it lives."""
    strategy = "SPREAD" if node is None else NodeAffinitySchedulingStrategy(node, soft=False)
    options = {"num_cpus": 0, "concurrency_groups": _GROUPS, "scheduling_strategy": strategy, "max_restarts": 0}
    return ray.remote(**options, **named)(actor).remote()
