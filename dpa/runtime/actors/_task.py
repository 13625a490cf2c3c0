"""What an actor's process is in one generation of a job: a task, which hosts its machine; one of a stage also runs user
code. A task ends with its generation, and the process becomes another one."""

from __future__ import annotations

import resource
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import ray
from ray.actor import ActorHandle

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
    ProcessDone,
    PublishDone,
    SnapshotMarked,
    StepDone,
    TaskDied,
    TasksGone,
)
from dpa.protocol.wire.instructions import CloseSplit, Instruction, OpenSplit, ProcessBlocks
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.migration import RangeTransfer
from dpa.protocol.wire.relays import RELAYED_BYTES, relay_of
from dpa.protocol.wire.use import TaskUse, forget_receivers
from dpa.runtime.actors._pickled import PickledEnvelope
from dpa.runtime.actors._process import CoreWait, room_in
from dpa.runtime.actors._shell import Shell
from dpa.runtime.actors._trials import Trials
from dpa.runtime.packed_plan import PackedPlan
from dpa.runtime.ray_internals.private import name_process

if TYPE_CHECKING:
    from dpa.protocol.checkpointing import Beginning

Handles = dict[Address, ActorHandle]

_RETURN_SECONDS = 0.5  # how long user code may take to return, so that its process is kept for the next generation


class Task:
    """One task of one generation: the host of its machine's shell.

    Attributes:
        generation: its number.
        handles: the actors of all tasks that it may send to.
        shell: drives the machine.
    """

    def __init__(self, machine: Machine, plan: RunPlan) -> None:
        self.generation = plan.generation
        self.handles: Handles = {}
        self._address = machine.address
        self._node: str = ray.get_runtime_context().get_node_id()
        self._relay: ActorHandle | None = None
        self._traffic: TrafficMeter[Address] = TrafficMeter()
        self._cpu_before = 0.0
        machine.live_in(plan.generation)
        name_process(plan.name, str(machine.address), plan.generation)
        if plan.log_level is not None:
            log_to_stderr(plan.log_level, str(machine.address))
        self.shell = Shell(machine, self, plan.stuck_seconds)

    def connect(self, handles: Handles) -> None:
        """Begin, with the receivers of messages, which include relays."""
        self.handles = handles
        relay = relay_of(self._address, sum(address.stage == RELAY for address in handles))
        self._relay = None if relay is None else handles[Address(RELAY, relay)]
        self._cpu_before = time.process_time()
        self.shell.start()

    def meet(self, handles: Handles) -> None:
        with self.shell.lock:
            self.handles = {**self.handles, **handles}

    def part(self, present: Present) -> None:
        with self.shell.lock:
            self.handles = {task: handle for task, handle in self.handles.items() if not present.has_gone(task)}
            forget_receivers(self._traffic, present)
            self.shell.post(TasksGone(present))

    def end(self) -> bool:
        """Take in nothing more; whether user code returns soon, so that the process is free."""
        return self.shell.end(_RETURN_SECONDS)

    def use(self) -> TaskUse:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with self.shell.lock:
            sent = {to: found for to, found in self._traffic.found().items() if to.stage not in RESERVED}
        return TaskUse(
            node=self._node,
            peak_memory=peak if sys.platform == "darwin" else peak * 1024,
            cpu_seconds=time.process_time() - self._cpu_before,
            sent=sent,
        )

    def send(self, envelope: Envelope) -> None:
        """Deliver a message by its queue, and count its bytes."""
        handle, message, pickled = self.handles[envelope.receiver], envelope.message, PickledEnvelope.of(envelope)
        records = message.block.rows if isinstance(message, Push) else 0
        self._traffic.sent(envelope.receiver, records, pickled.size)
        if self._relay is not None and envelope.receiver == COORDINATOR and pickled.size <= RELAYED_BYTES:
            self._relay.deliver.remote(pickled.whole)
        else:
            (handle.push if isinstance(message, Push | RangeTransfer) else handle.deliver).remote(pickled.argument)

    def flush(self) -> None:
        """Nothing waits."""

    def at_once(self, instruction: Instruction) -> bool:
        return False

    def work(self, instruction: Instruction) -> Event | None:
        raise ProtocolError(f"{type(self).__name__} cannot carry out {instruction}")

    def failed(self, died: TaskDied) -> None:
        self.handles[COORDINATOR].fail.remote(died, self.generation)

    def warn(self, message: str) -> None:
        self.handles[COORDINATOR].warn.remote(message)


class StageTask(Task):
    """A task of a stage, with its user code."""

    def __init__(
        self,
        packed: PackedPlan,
        plan: RunPlan,
        address: Address,
        beginning: Beginning | None,
        is_over: threading.Event,
        known: Handles,
    ) -> None:
        """`plan` is the one that was packed; `beginning`: what the task begins with, if the job has checkpoints;
        `is_over`: set when the generation has ended; `known`: actors of the generation before, whose coordinator hears
        of an outage while states are read. CheckpointError if `beginning` cannot be read."""
        plan = plan if beginning is None else replace(plan, graph=beginning.graph)
        super().__init__(task_of(plan.graph, address), plan)
        self.handles = known
        HERE.begin(plan.limits.patience, self._warn_of_outage, is_over.wait, time.monotonic)
        self._trials = Trials(packed, address) if address.stage in plan.tries else None
        trial = None if self._trials is None else self._try
        room = partial(room_in, plan)
        if beginning is None:
            self._user_code = plan.user_code(address, time.perf_counter, trial=trial, room=room)
        else:
            archive = replace(beginning.archive, guard=threading.Lock()).start_saving
            self._user_code = plan.user_code(address, time.perf_counter, archive, trial, room)
            beginning.restore(self._user_code)
        self._slow_factor = plan.slow_factor(address)
        self._core_wait: CoreWait | None = None

    def _warn_of_outage(self, words: str) -> None:
        if COORDINATOR in self.handles:
            self.warn(f"{self._address} {words}")

    def end(self) -> bool:
        if not super().end():
            return False
        if self._trials is not None:
            self._trials.close()
        del self._user_code  # its states go now, and not when Python finds the circle of task and shell
        return True

    def use(self) -> TaskUse:
        held, spilled = self._user_code.state_use
        return replace(super().use(), state_memory=held, spilled=spilled)

    @property
    def output(self) -> TaskOutput:
        assert self._user_code.output is not None
        return self._user_code.output

    def at_once(self, instruction: Instruction) -> bool:
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
        if isinstance(instruction, ProcessBlocks) and self._slow_factor > 1:
            time.sleep((self._slow_factor - 1) * (time.perf_counter() - began - self._tried))
        if isinstance(event, SnapshotMarked):
            self.shell.aside(self._user_code.write_snapshot)
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
        assert self._trials is not None and self._core_wait is not None
        began, waited = time.perf_counter(), self._core_wait.seconds
        died = self._trials(work)
        self._tried += time.perf_counter() - began
        self._waited_tried += self._core_wait.seconds - waited
        return died
