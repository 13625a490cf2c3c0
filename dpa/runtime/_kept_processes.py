"""Processes of a generation that has ended, for the next one: starting a process takes a processor about a second, and
most of them live, or are being started, when another one has died."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime.actors.actor import TaskActor, create

_RESET_SECONDS = 1.0
"""How long they may take together to be free; the others are ended."""


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

    @classmethod
    def create(
        cls, kind: type[TaskActor], node: str | None = None, avoided: Collection[str] = (), **named: str
    ) -> Actor:
        """A new one, made as by `dpa.runtime.actors.actor.create`; does not wait for it."""
        handle = create(kind, node, avoided, **named)
        # `become` may keep the thread of `control` for long.
        greeted = handle.greet.options(concurrency_group="watch").remote()
        return cls(kind, handle, node, frozenset(avoided), greeted)

    @property
    def is_up(self) -> bool:
        """Whether its process has begun; it may have died since."""
        return bool(ray.wait([self.greeted], timeout=0)[0])

    def may_be_on(self, nodes: Collection[str]) -> bool:
        return self.node in nodes if self.node is not None else not self.avoided.issuperset(nodes)


class KeptProcesses:
    """Processes that are free; each is taken once.

    Attributes:
        taken: those that were up and have been taken.
        spares: actors that were never a task and are not taken, by node.
    """

    def __init__(
        self,
        actors: Sequence[Actor] = (),
        generation: int = 0,
        avoided: Collection[str] = (),
        spares: Mapping[str, Actor] = MappingProxyType({}),
    ) -> None:
        """Free the processes of these actors for a generation, except those on `avoided` nodes."""
        # Those that are still being started are free as they are: to start others in their place would take longer.
        greeted = {node: spare.handle.greet.remote() for node, spare in spares.items()}
        self._avoided = avoided
        up: list[Actor] = []
        starting: list[Actor] = []
        for actor in actors:
            (up if actor.is_up else starting).append(actor)
        calls = {actor.handle.reset.remote(generation): actor for actor in up}
        ended = ray.wait([*calls], num_returns=len(calls), timeout=_RESET_SECONDS)[0] if calls else ()
        self.taken: set[TaskProcess] = set()
        self._free: list[tuple[Actor, TaskProcess]] = []
        self._starting: list[Actor] = []
        self.spares: dict[str, Actor] = {}
        for node, actor in spares.items():
            if node in avoided or _is_dead(greeted[node]):
                ray.kill(actor.handle)
            else:
                self.spares[node] = actor
        for call, actor in calls.items():
            process = _answer(call) if call in ended else None
            if process is None or process.node in avoided:
                ray.kill(actor.handle)
            else:
                self._free.append((replace(actor, node=process.node), process))
        for actor in starting:
            if actor.may_be_on(avoided) or _is_dead(actor.greeted):
                ray.kill(actor.handle)
            else:
                self._starting.append(actor)

    def actor(self, kind: type[TaskActor], node: str | None = None, **named: str) -> Actor:
        """One of a kind on this node, or on any: a free one, preferably one that is up, or else a new one, with `named`
        as Ray's name and namespace."""
        for place, (actor, process) in enumerate(self._free):
            if actor.kind is kind and node in (None, actor.node):
                del self._free[place]
                self.taken.add(process)
                return actor
        for at, spare in self.spares.items():
            if spare.kind is kind and node in (None, at):
                return self.spares.pop(at)
        for place, actor in enumerate(self._starting):
            if actor.kind is kind and node in (None, actor.node):
                return self._starting.pop(place)
        return Actor.create(kind, node, self._avoided, **named)

    def end_others(self) -> None:
        for actor in [*(actor for actor, _ in self._free), *self._starting]:
            ray.kill(actor.handle)

    def end_spares(self) -> None:
        for actor in self.spares.values():
            ray.kill(actor.handle)


def _is_dead(greeted: ObjectRef) -> bool:
    try:
        if ray.wait([greeted], timeout=0)[0]:
            ray.get(greeted)
    except RayError:
        return True
    return False


def _answer(call: ObjectRef) -> TaskProcess | None:
    """Where a free process is; None: it has died, or is not free."""
    try:
        process: TaskProcess | None = ray.get(call)
    except RayError:
        return None
    return process
