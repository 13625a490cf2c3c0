"""The Ray actor of a relay, which stands between the coordinator of a job of many tasks and some of these; and what the
coordinator does that has them."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray import ObjectRef
from ray.actor import ActorHandle

from dpa._util.secrets import hidden
from dpa.protocol.wire.addresses import COORDINATOR, RELAY, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import FailureKind, TaskDied
from dpa.protocol.wire.nodes import TaskProcess
from dpa.protocol.wire.relays import Bundling, relay_of
from dpa.runtime._actors import Handles, TaskActor
from dpa.runtime._pickled import PickledEnvelope
from dpa.runtime._titles import name_process


class RelayActor(TaskActor):
    """Brings what tasks say to the coordinator in bundles, and what it says to them, whatever that is."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._gathered: list[bytes] = []
        self._has_some = threading.Event()

    @ray.method(concurrency_group="control")
    def serve(self, job: str, address: Address, coordinator: ActorHandle, generation: int) -> TaskProcess:
        """Be this relay of a job; returns where that is."""
        self._require(generation)
        name_process(job, f"{address} {address.index}" + (f"#{generation}" if generation else ""))
        with self._lock:
            self._address, self._handles, self._gathered = address, {COORDINATOR: coordinator}, []
        threading.Thread(target=self._pass_on, args=(self._is_over,), name="relay", daemon=True).start()
        return TaskProcess(self._node, os.getpid())

    @ray.method(concurrency_group="watch")
    def meet(self, handles: Handles, generation: int) -> None:
        """Learn of tasks before they begin."""
        with self._lock:
            self._require(generation)
            self._handles = {**self._handles, **handles}

    @ray.method(concurrency_group="control", num_returns=0)
    def part(self, present: Present, generation: int) -> None:
        """Learn that tasks of a stage have ended."""
        with self._lock:
            self._require(generation)
            self._handles = {task: handle for task, handle in self._handles.items() if not present.has_gone(task)}

    @ray.method(concurrency_group="control", num_returns=0)
    def deliver(self, pickled: bytes) -> None:
        """Take in what a task says to the coordinator."""
        with self._lock:
            self._gathered.append(pickled)
        self._has_some.set()

    @ray.method(concurrency_group="data", num_returns=0)
    def spread(self, bundle: list[tuple[Address, bytes]]) -> None:
        """Take in what the coordinator says to tasks. Of one that is gone it need not be said."""
        handles = self._handles
        with self._reported():
            for to, pickled in bundle:
                if to in handles:
                    handles[to].deliver.remote(pickled)

    def _pass_on(self, is_over: threading.Event) -> None:
        bundling, generation = Bundling(), self._generation
        while not is_over.is_set():
            if not self._has_some.wait(timeout=1.0):
                continue
            now = time.monotonic()
            time.sleep(bundling.due(now) - now)
            self._has_some.clear()
            with self._lock:
                bundle, self._gathered = self._gathered, []
            with self._reported():
                if bundle and self._generation == generation:
                    self._handles[COORDINATOR].deliver_all.remote(bundle)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Have the coordinator end the job with what is raised: nobody waits for these calls."""
        try:
            yield
        except Exception:
            died = TaskDied(self._address, FailureKind.RAISED, hidden(traceback.format_exc()))
            self.failed(died, self._generation)


class RelayedActor(TaskActor):
    """Sends what is for the tasks of a relay in bundles. Without relays it is as any other."""

    def __init__(self) -> None:
        super().__init__()
        self._relays: Handles = {}
        self._bundles: dict[Address, list[tuple[Address, bytes]]] = {}  # by relay
        self._is_gathering = False

    def _serve(self, job: str) -> dict[Address, ObjectRef]:
        """Have the relays begin: the calls that do, which return where they are."""
        own = self._handles[COORDINATOR]
        return {at: relay.serve.remote(job, at, own, self._generation) for at, relay in self._relays.items()}

    def _introduce(self, tasks: Handles) -> dict[Address, ObjectRef]:
        """Have the relays learn of tasks, before these begin: the calls that do."""
        return {at: relay.meet.remote(tasks, self._generation) for at, relay in self._relays.items()}

    @ray.method(concurrency_group="control", num_returns=0)
    def deliver_all(self, bundle: list[bytes]) -> None:
        """Take in the messages that a relay brings, and send what all of them have to be answered with."""
        with self._shell.lock:
            self._is_gathering = True
            try:
                for pickled in bundle:
                    self._shell.receive(pickled)
            finally:
                self._is_gathering = False
            self.flush()

    def send(self, envelope: Envelope) -> None:
        """Deliver a message: to a task that has a relay with the next bundle, but for one with arrays."""
        relay = relay_of(envelope.receiver, len(self._relays))
        pickled = PickledEnvelope.of(envelope)
        if relay is None or pickled.buffers:
            self._handles[envelope.receiver].deliver.remote(pickled.argument)
        else:
            self._bundles.setdefault(Address(RELAY, relay), []).append((envelope.receiver, pickled.pickled))

    def flush(self) -> None:
        """Send the bundles, unless more is about to come."""
        if self._bundles and not self._is_gathering:
            bundles, self._bundles = self._bundles, {}
            for relay, bundle in bundles.items():
                self._relays[relay].spread.remote(bundle)
