"""The Ray actor of a relay, which stands between the coordinator of a job with many tasks and some of these tasks; and
the coordinator's side of relays."""

import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

import ray
from ray import ObjectRef
from ray.actor import ActorHandle

from dpa._secrets import hidden
from dpa.protocol.machine import Machine
from dpa.protocol.plan import RunPlan
from dpa.protocol.wire.addresses import COORDINATOR, RELAY, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import FailureKind, TaskDied
from dpa.protocol.wire.nodes import TaskProcess
from dpa.protocol.wire.relays import RELAYED_BYTES, Relay, relay_of
from dpa.runtime.actors._pickled import PickledEnvelope
from dpa.runtime.actors._task import Handles, Task
from dpa.runtime.actors.actor import TaskActor
from dpa.runtime.ray_internals.private import name_process

_LOOK_SECONDS = 1.0  # how often an idle relay checks whether its generation is over


class RelayActor(TaskActor):
    """Passes messages between tasks and the coordinator in bundles. It has no `Task`: it decides too little for a
    shell."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._machine: Relay[bytes] = Relay()
        self._due: SimpleQueue[float] = SimpleQueue()
        self._handles: Handles = {}

    @ray.method(concurrency_group="control")
    def serve(self, job: str, address: Address, coordinator: ActorHandle, generation: int) -> TaskProcess:
        """Be this relay of a job; returns where that is."""
        self._leave_for(generation)
        name_process(job, str(address), generation)
        self._address, self._generation = address, generation
        with self._lock:
            self._machine, self._due, self._handles = Relay(), SimpleQueue(), {COORDINATOR: coordinator}
        passing = (self._machine, self._due, coordinator, self._is_over)
        threading.Thread(target=self._pass_on, args=passing, name="relay", daemon=True).start()
        return self._process

    @ray.method(concurrency_group="watch")
    def meet(self, handles: Handles, generation: int) -> None:
        with self._lock:
            self._require(generation)
            self._handles = {**self._handles, **handles}
            self._machine.meet(handles)

    @ray.method(concurrency_group="control", num_returns=0)
    def part(self, present: Present, generation: int) -> None:
        with self._lock:
            self._require(generation)
            self._handles = {task: handle for task, handle in self._handles.items() if not present.has_gone(task)}
            self._machine.part(present)

    @ray.method(concurrency_group="control", num_returns=0)
    def deliver(self, pickled: bytes) -> None:
        with self._lock:
            due = self._machine.gather(pickled, time.monotonic())
            if due is not None:
                self._due.put(due)

    @ray.method(concurrency_group="data", num_returns=0)
    def spread(self, bundle: list[tuple[Address, bytes]]) -> None:
        with self._reported():
            with self._lock:
                passed = [(self._handles[to], pickled) for to, pickled in self._machine.spread(bundle)]
            for handle, pickled in passed:
                handle.deliver.remote(pickled)

    def _pass_on(
        self, machine: Relay[bytes], due: SimpleQueue[float], coordinator: ActorHandle, is_over: threading.Event
    ) -> None:
        with self._reported():
            while not is_over.is_set():
                try:
                    at = due.get(timeout=_LOOK_SECONDS)
                except Empty:
                    continue
                time.sleep(max(0.0, at - time.monotonic()))
                with self._lock:
                    bundle = machine.take()
                coordinator.deliver_all.remote(bundle)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Have the coordinator end the job with what is raised, as no caller waits for these calls."""
        generation, coordinator = self._generation, self._handles[COORDINATOR]
        try:
            yield
        except Exception:
            died = TaskDied(self._address, FailureKind.RAISED, hidden(traceback.format_exc()))
            coordinator.fail.remote(died, generation)


class RelayedTask(Task):
    """Sends messages to the tasks of a relay in bundles. Without relays it is as any other."""

    def __init__(self, machine: Machine, plan: RunPlan, relays: Handles) -> None:
        super().__init__(machine, plan)
        self._relays = relays
        self._bundles: dict[Address, list[tuple[Address, bytes]]] = {}  # by relay

    def _serve(self, job: str) -> dict[Address, ObjectRef]:
        """Have the relays begin; the calls return where they are."""
        own = self.handles[COORDINATOR]
        return {at: relay.serve.remote(job, at, own, self.generation) for at, relay in self._relays.items()}

    def _introduce(self, tasks: Handles) -> dict[Address, ObjectRef]:
        """Have the relays learn of their tasks, before these begin."""
        of_each: dict[Address, Handles] = {relay: {} for relay in self._relays}
        for task, handle in tasks.items():
            if (relay := relay_of(task, len(of_each))) is not None:
                of_each[Address(RELAY, relay)][task] = handle
        return {at: self._relays[at].meet.remote(known, self.generation) for at, known in of_each.items()}

    def send(self, envelope: Envelope) -> None:
        """Deliver a message; one to a task with a relay goes with the next bundle, unless it is large."""
        relay = relay_of(envelope.receiver, len(self._relays))
        if relay is not None and (pickled := PickledEnvelope.of(envelope)).size <= RELAYED_BYTES:
            self._bundles.setdefault(Address(RELAY, relay), []).append((envelope.receiver, pickled.whole))
        else:
            super().send(envelope)

    def flush(self) -> None:
        bundles, self._bundles = self._bundles, {}
        for relay, bundle in bundles.items():
            self._relays[relay].spread.remote(bundle)
