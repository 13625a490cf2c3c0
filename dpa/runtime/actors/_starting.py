"""How tasks start: actors that are prepared before there is a plan; late starts, a few at a time while records flow,
with a time limit, that can be cancelled; and the wait for deaths."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa.errors import JobFailedError
from dpa.protocol.plan import Request
from dpa.protocol.wire.addresses import RELAY, Address
from dpa.protocol.wire.events import FailureKind, TaskDied
from dpa.protocol.wire.nodes import Amounts, Placed, in_words
from dpa.runtime.actors.actor import NO_SHARE, Share, StageActor, create
from dpa.runtime.actors.answers import PendingRequests, Polled
from dpa.runtime.actors.failures import cause_of, require_all

_LOOK_SECONDS = 0.1  # how often to look whether a start is cancelled, or takes too long


class Prepared:
    """A coordinator that waits for a plan: it knows the actors that will be tasks, and can be cancelled.

    Attributes:
        placed: the nodes of tasks; None: any.
        relays: the actors of relays, by address.
        requests: what each task of a stage requests.
        created: the actors that `actor_for` has created, which end with the generation.
    """

    def __init__(
        self,
        answers: PendingRequests,
        waiting: Mapping[Address, ActorHandle] = MappingProxyType({}),
        idle: Sequence[ActorHandle] = (),
        placed: Placed | None = None,
        requests: Mapping[str, Amounts] = MappingProxyType({}),
    ) -> None:
        """`waiting`: actors that wait for an address; `idle`: those that take any of a stage's tasks."""
        self.placed, self.requests = placed, requests
        self.relays = {address: handle for address, handle in waiting.items() if address.stage == RELAY}
        self.created: list[ActorHandle] = []
        self._answers = answers
        self._waiting, self._idle = {**waiting}, [*idle]
        self._changed = threading.Event()

    def actor_for(self, address: Address, node: str | None) -> ActorHandle:
        """An actor that waits to become a task, or a new one; on this node, if it matters."""
        if (waiting := self._waiting.pop(address, None)) is not None:
            return waiting
        if node is None and self._idle:
            return self._idle.pop(0)
        if node is None and self.placed is not None:
            homes = self.placed.nodes[address.stage]
            node = homes[address.index % len(homes)]
        self.created.append(created := create(StageActor, node, share=self.share(address.stage)))
        return created

    def share(self, stage: str) -> Share:
        return Share(self.requests.get(stage, {}))

    def end_unused(self) -> None:
        """Free what actors request that have not become tasks, where a join is made without them."""
        for address, handle in self._waiting.items():
            if address.stage in self.requests:
                ray.kill(handle)

    def poll(self, seconds: float) -> Polled:
        """Nothing but whether the job is cancelled, after `seconds` or at once if it is."""
        self._changed.wait(seconds)
        return Polled(self._answers.is_cancelled)

    def ask(self, request: Request) -> None:
        self._answers.while_starting(request)
        if self._answers.is_cancelled:
            self._changed.set()

    def close(self) -> None:
        for handle in self.created:
            ray.kill(handle)


class LateStart:
    """One start of tasks, which may take `seconds`. Cancelling it too late changes nothing."""

    def __init__(self, seconds: float, share: Share = NO_SHARE) -> None:
        """`share`: of each task."""
        self._seconds, self._amounts = seconds, share.amounts
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def require_all(self, calls: Mapping[Address, ObjectRef]) -> None:
        """Wait for the first calls to new actors. JobFailedError if one is not answered, or not in time, or the start
        is cancelled."""
        until = time.monotonic() + self._seconds
        for address, reference in calls.items():
            while not ray.wait([reference], timeout=_LOOK_SECONDS)[0]:
                if self.is_cancelled:
                    raise JobFailedError(f"{address} was not to start any more")
                if time.monotonic() >= until:
                    limit = f"within {self._seconds:g} s, as limits.start_seconds says"
                    limit += f"; it requests {in_words(self._amounts)} of a node" if self._amounts else ""
                    raise JobFailedError(f"{address} did not start {limit}")
        require_all(calls)

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()


def starts_at_once(nodes: Iterable[str | None]) -> int:
    """How many tasks to start at a time on these nodes while records flow: one for every two processors, if all hosts
    have as many as this one."""
    # A start takes a processor about a second, which the running tasks would miss.
    wanted = set(nodes)
    alive = [node for node in ray.nodes() if node["Alive"]]
    hosts = {node["NodeManagerAddress"] for node in alive if None in wanted or node["NodeID"] in wanted}
    return max(1, len(hosts) * (os.cpu_count() or 1) // 2)


def watch(
    tasks: Mapping[Address, ActorHandle],
    generation: int,
    is_over: threading.Event,
    stopped: set[Address],
    fail: Callable[[TaskDied], object],
) -> None:
    """Wait on a thread for the first of these tasks that dies, and report it to `fail` if the generation continues.
    Tasks in `stopped` are expected to end; each is taken out once it has."""
    joins = {handle.join.remote(generation): address for address, handle in tasks.items()}

    def wait() -> None:
        while joins and not is_over.is_set():
            ended, _ = ray.wait(list(joins), timeout=1.0)
            for reference in ended:
                try:
                    ray.get(reference)
                except Exception as error:
                    if joins[reference] in stopped:
                        stopped.discard(joins.pop(reference))
                        continue
                    if not is_over.is_set():
                        why = cause_of(error) if isinstance(error, RayError) else repr(error)
                        fail(TaskDied(joins[reference], FailureKind.DIED, why))
                    return
                del joins[reference]  # its process is of the next generation

    threading.Thread(target=wait, name="watch", daemon=True).start()
