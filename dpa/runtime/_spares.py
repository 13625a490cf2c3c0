"""Actors that were never a task, started before something needs them: a job for its next generation, and a session for
its next job. Starting a process takes a processor about a second, except where a Ray forks it."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa.runtime.actors.actor import NO_SHARE, Share, StageActor, TaskActor, create, polars_threads

_GREET_SECONDS = 0.1
"""How long spare actors may take together to show that they live; the others are taken last."""

_FEWEST, _BY_PROCESSOR = 8, 2
"""The most processes for tasks that a session keeps, or the most for each processor here if that allows more."""


@dataclass(frozen=True)
class Actor:
    """One that the driver has created.

    Attributes:
        node: its node; None: where Ray starts it.
        avoided: nodes on which Ray does not start it.
        greeted: is answered once its process is up, even if it is busy then.
    """

    kind: type[TaskActor]
    handle: ActorHandle
    node: str | None
    avoided: frozenset[str]
    greeted: ObjectRef
    share: Share = NO_SHARE

    @classmethod
    def create(
        cls, kind: type[TaskActor], node: str | None = None, avoided: Collection[str] = (), share: Share = NO_SHARE
    ) -> Actor:
        """A new one, made as by `dpa.runtime.actors.actor.create`; does not wait for it."""
        handle = create(kind, node, avoided, share)
        return cls(kind, handle, node, frozenset(avoided), greeted(handle), share)

    @property
    def is_up(self) -> bool:
        """Whether its process has begun; it may have died since."""
        return bool(ray.wait([self.greeted], timeout=0)[0])

    @property
    def is_dead(self) -> bool:
        return has_failed(self.greeted)

    def may_be_on(self, nodes: Collection[str]) -> bool:
        return self.node in nodes if self.node is not None else not self.avoided.issuperset(nodes)


Wanted = Mapping[tuple[type[TaskActor], str | None], int]
"""How many actors of a kind on a node, or on any."""


class Spares:
    """Spare actors. Each is taken once, from any thread."""

    def __init__(self, stay: Callable[[], bool] = lambda: False) -> None:
        """`stay`: whether there are to be some for the next job when one ends."""
        self._stay = stay
        self._tasks = 0
        self._lock = threading.Lock()
        self._free: list[Actor] = []
        self._most: Counter[tuple[type[TaskActor], str | None]] = Counter()

    def fit(self, tasks: int) -> None:
        """End those that have prepared themselves for a job whose tasks have other shares of the processors."""
        with self._lock:
            if self._tasks and polars_threads(self._tasks) != polars_threads(tasks):
                for spare in [spare for spare in self._free if spare.kind is StageActor]:
                    ray.kill(spare.handle)
                    self._free.remove(spare)

    def check(self, avoided: Collection[str] = ()) -> None:
        """End those that may be on avoided nodes, forget the dead, and put those first that answer."""
        with self._lock:
            calls = {greeted(spare.handle): spare for spare in self._free if spare.is_up}
            answered = ray.wait([*calls], num_returns=len(calls), timeout=_GREET_SECONDS)[0] if calls else []
            up = [calls[call] for call in answered]
            last = [spare for spare in self._free if spare not in up]
            dead = {spare.handle for call, spare in calls.items() if has_failed(call)}
            self._free = []
            for spare in up + last:
                if spare.handle in dead or spare.is_dead or spare.may_be_on(avoided):
                    ray.kill(spare.handle)
                else:
                    self._free.append(spare)

    def take(self, kind: type[TaskActor], node: str | None = None) -> Actor | None:
        """One of a kind on this node, or on any; None: there is none."""
        with self._lock:
            for place, spare in enumerate(self._free):
                if spare.kind is kind and node in (None, spare.node):
                    return self._free.pop(place)
        return None

    def leave(self, used: Wanted, tasks: int) -> None:
        """A job with this number of `tasks` of stages ends; it has `used` these actors."""
        if not self._stay():
            self.close()
            return
        self._tasks, self._most = tasks, self._most | Counter(used)
        self.start(Counter(_bounded(self._most)), tasks)

    def start(self, wanted: Wanted, tasks: int = 0) -> None:
        """Start those that are missing. They prepare themselves for a job with `tasks` tasks; 0: they do not."""
        with self._lock:
            missing = Counter(wanted) - Counter((spare.kind, spare.node) for spare in self._free)
            for kind, node in missing.elements():
                self._free.append(spare := Actor.create(kind, node))
                if tasks:
                    spare.handle.warm.remote(tasks)

    def close(self) -> None:
        with self._lock:
            if ray.is_initialized():
                for spare in self._free:
                    ray.kill(spare.handle)
            self._free.clear()


def _bounded(wanted: Counter[tuple[type[TaskActor], str | None]]) -> Iterator[tuple[type[TaskActor], str | None]]:
    room = max(_FEWEST, _BY_PROCESSOR * (os.cpu_count() or 1))
    for kind, node in wanted.elements():
        room -= kind is StageActor
        if kind is not StageActor or room >= 0:
            yield kind, node


def greeted(handle: ActorHandle) -> ObjectRef:
    # `become` and `warm` may keep the thread of `control` for long.
    return handle.greet.options(concurrency_group="watch").remote()


def has_failed(call: ObjectRef) -> bool:
    try:
        if ray.wait([call], timeout=0)[0]:
            ray.get(call)
    except RayError:
        return True
    return False
