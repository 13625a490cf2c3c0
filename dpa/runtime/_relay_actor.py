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
from dpa.protocol.wire.relays import RELAYED_BYTES, Bundling, relay_of
from dpa.runtime._actors import Handles, TaskActor
from dpa.runtime._titles import name_process
from dpa.runtime.pickled import PickledEnvelope

_LOOK_SECONDS = 1.0
"""How often a relay that has nothing to pass on looks whether its generation is over."""


class _Gathered:
    """What the tasks of one generation have said to its coordinator, and is not passed on yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: list[bytes] = []
        self._is_there = threading.Event()

    def add(self, pickled: bytes) -> None:
        """Another message."""
        with self._lock:
            self._messages.append(pickled)
            self._is_there.set()

    def wait(self, seconds: float) -> bool:
        """Whether there is something, within a while."""
        return self._is_there.wait(seconds)

    def take(self) -> list[bytes]:
        """All of it."""
        with self._lock:
            messages, self._messages = self._messages, []
            self._is_there.clear()
            return messages


class RelayActor(TaskActor):
    """Brings what tasks say to the coordinator in bundles, and what it says to them, whatever that is."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._gathered = _Gathered()

    @ray.method(concurrency_group="control")
    def serve(self, job: str, address: Address, coordinator: ActorHandle, generation: int) -> TaskProcess:
        """Be this relay of a job; returns where that is."""
        self._leave_for(generation)
        name_process(job, str(address), generation)
        self._address, self._generation, self._gathered = address, generation, _Gathered()
        with self._lock:
            self._handles = {COORDINATOR: coordinator}
        passing = (self._gathered, coordinator, self._is_over)
        threading.Thread(target=self._pass_on, args=passing, name="relay", daemon=True).start()
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
        self._gathered.add(pickled)

    @ray.method(concurrency_group="data", num_returns=0)
    def spread(self, bundle: list[tuple[Address, bytes]]) -> None:
        """Take in what the coordinator says to tasks. Of one that is gone it need not be said."""
        handles = self._handles
        with self._reported():
            for to, pickled in bundle:
                if to in handles:
                    handles[to].deliver.remote(pickled)

    def _pass_on(self, gathered: _Gathered, coordinator: ActorHandle, is_over: threading.Event) -> None:
        bundling = Bundling()
        with self._reported():
            while not is_over.is_set():
                if gathered.wait(_LOOK_SECONDS):
                    now = time.monotonic()
                    time.sleep(bundling.due(now) - now)
                    coordinator.deliver_all.remote(gathered.take())

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Have the coordinator end the job with what is raised: nobody waits for these calls."""
        generation = self._generation
        try:
            yield
        except Exception:
            self.failed(TaskDied(self._address, FailureKind.RAISED, hidden(traceback.format_exc())), generation)


class RelayedActor(TaskActor):
    """Sends what is for the tasks of a relay in bundles. Without relays it is as any other."""

    def __init__(self) -> None:
        super().__init__()
        self._relays: Handles = {}
        self._bundles: dict[Address, list[tuple[Address, bytes]]] = {}  # by relay

    def _serve(self, job: str) -> dict[Address, ObjectRef]:
        """Have the relays begin: the calls that do, which return where they are."""
        own = self._handles[COORDINATOR]
        return {at: relay.serve.remote(job, at, own, self._generation) for at, relay in self._relays.items()}

    def _introduce(self, tasks: Handles) -> dict[Address, ObjectRef]:
        """Have the relays learn of their tasks, before these begin: the calls that do."""
        of_each: dict[Address, Handles] = {relay: {} for relay in self._relays}
        for task, handle in tasks.items():
            if (relay := relay_of(task, len(of_each))) is not None:
                of_each[Address(RELAY, relay)][task] = handle
        return {at: self._relays[at].meet.remote(known, self._generation) for at, known in of_each.items()}

    @ray.method(concurrency_group="control", num_returns=0)
    def deliver_all(self, bundle: list[bytes]) -> None:
        """Take in the messages that a relay brings, and send what all of them have to be answered with."""
        self._shell.receive(*bundle)

    def send(self, envelope: Envelope) -> None:
        """Deliver a message: to a task that has a relay with the next bundle, but for a large one."""
        relay = relay_of(envelope.receiver, len(self._relays))
        if relay is not None and (pickled := PickledEnvelope.of(envelope)).size <= RELAYED_BYTES:
            self._bundles.setdefault(Address(RELAY, relay), []).append((envelope.receiver, pickled.whole))
        else:
            super().send(envelope)

    def flush(self) -> None:
        """Send the bundles."""
        bundles, self._bundles = self._bundles, {}
        for relay, bundle in bundles.items():
            self._relays[relay].spread.remote(bundle)
