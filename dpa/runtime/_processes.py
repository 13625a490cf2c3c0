"""Actors whose processes are kept, as starting one takes a processor about a second, except where a Ray forks it: spare
ones that were never a task, for a job's next generation and a session's next job; and those of a generation that has
ended, for the next one. Most of these live, or are being started, when another one has died."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime.actors.actor import NO_SHARE, Share, StageActor, TaskActor, create, polars_threads

_GREET_SECONDS = 0.1  # how long spare actors may take together to show that they live; the others are taken last

_RESET_SECONDS = 1.0
"""How long processes of a generation that has ended may take together to be free; the others are ended."""

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

    def waiting(self, kind: type[TaskActor]) -> int:
        """How many of a kind there are."""
        with self._lock:
            return sum(spare.kind is kind for spare in self._free)

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


class KeptProcesses:
    """Processes that are free; each is taken once.

    Attributes:
        taken: those that were up and have been taken.
        spares: are taken after those.
    """

    def __init__(
        self,
        actors: Sequence[Actor] = (),
        generation: int = 0,
        avoided: Collection[str] = (),
        spares: Spares | None = None,
    ) -> None:
        """Free the processes of these actors for a generation, except those on `avoided` nodes. `spares` are taken
        next."""
        # Those that are still being started are free as they are: to start others in their place would take longer.
        self._avoided, self.spares = avoided, spares or Spares()
        up: list[Actor] = []
        starting: list[Actor] = []
        for actor in actors:
            (up if actor.is_up else starting).append(actor)
        calls = {actor.handle.reset.remote(generation): actor for actor in up}
        ended = ray.wait([*calls], num_returns=len(calls), timeout=_RESET_SECONDS)[0] if calls else ()
        self.taken: set[TaskProcess] = set()
        self._free: list[tuple[Actor, TaskProcess]] = []
        self._starting: list[Actor] = []
        self.spares.check(avoided)
        for call, actor in calls.items():
            process = _answer(call) if call in ended else None
            if process is None or process.node in avoided:
                ray.kill(actor.handle)
            else:
                self._free.append((replace(actor, node=process.node), process))
        for actor in starting:
            if actor.may_be_on(avoided) or actor.is_dead:
                ray.kill(actor.handle)
            else:
                self._starting.append(actor)

    def actor(self, kind: type[TaskActor], node: str | None = None, share: Share = NO_SHARE) -> Actor:
        """One of a kind on this node, or on any, that has what it requests, no less and no more: a free one, preferably
        one that is up, or else a new one."""

        def fits(actor: Actor) -> bool:
            return actor.kind is kind and node in (None, actor.node) and actor.share == share

        for place, (actor, process) in enumerate(self._free):
            if fits(actor):
                del self._free[place]
                self.taken.add(process)
                return actor
        if share == NO_SHARE and (spare := self.spares.take(kind, node)) is not None:
            return spare
        for place, actor in enumerate(self._starting):
            if fits(actor):
                return self._starting.pop(place)
        return Actor.create(kind, node, self._avoided, share)

    def end_others(self) -> None:
        for actor in [*(actor for actor, _ in self._free), *self._starting]:
            ray.kill(actor.handle)


def _answer(call: ObjectRef) -> TaskProcess | None:
    """Where a free process is; None: it has died, or is not free."""
    try:
        process: TaskProcess | None = ray.get(call)
    except RayError:
        return None
    return process
