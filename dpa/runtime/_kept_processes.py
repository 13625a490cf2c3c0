"""The processes of a generation that has ended, in which the next one goes on: to start one takes a processor about a
second, and most of them live when another one has died."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime._actors import TaskActor, create

_RESET_SECONDS = 1.0
"""How long they may take together to be free; those that are not are ended."""

Actor = tuple[type[TaskActor], ActorHandle]


class KeptProcesses:
    """Those that are free, each of which is taken once.

    Attributes:
        taken: where those are that have been.
        spares: those that nobody has taken of the ones that were never a task, by their node.
    """

    def __init__(
        self,
        actors: Sequence[Actor] = (),
        generation: int = 0,
        avoided: Collection[str] = (),
        spares: Mapping[str, Actor] = MappingProxyType({}),
    ) -> None:
        """Free the processes of these actors for a generation that has none on the nodes `avoided`. `spares` may still
        be starting."""
        greeted = {node: spare.greet.remote() for node, (_, spare) in spares.items()}
        self._avoided = avoided
        calls = {actor.reset.remote(generation): (kind, actor) for kind, actor in actors}
        ended = ray.wait([*calls], num_returns=len(calls), timeout=_RESET_SECONDS)[0] if calls else ()
        self.taken: set[TaskProcess] = set()
        self._free: list[tuple[Actor, TaskProcess]] = []
        self.spares: dict[str, Actor] = {}
        for node, (kind, actor) in spares.items():
            if node in avoided or _is_dead(greeted[node]):
                ray.kill(actor)
            else:
                self.spares[node] = (kind, actor)
        for call, (kind, actor) in calls.items():
            process = _answer(call) if call in ended else None
            if process is None or process.node in avoided:
                ray.kill(actor)
            else:
                self._free.append(((kind, actor), process))

    def actor(self, kind: type[TaskActor], node: str | None = None, **named: str) -> Actor:
        """One of a kind on this node, or anywhere if it does not matter: a free one, or else a new one, with Ray's name
        and namespace if it is to be found by them."""
        for place, (actor, process) in enumerate(self._free):
            if actor[0] is kind and node in (None, process.node):
                del self._free[place]
                self.taken.add(process)
                return actor
        for at, spare in self.spares.items():
            if spare[0] is kind and node in (None, at):
                return self.spares.pop(at)
        return kind, create(kind, node, self._avoided, **named)

    def end_others(self) -> None:
        """End those that nobody has taken."""
        for (_, actor), _ in self._free:
            ray.kill(actor)

    def end_spares(self) -> None:
        """End those that no generation follows for."""
        for _, actor in self.spares.values():
            ray.kill(actor)


def _is_dead(greeted: ObjectRef) -> bool:
    """Whether a process is known to have died, by the answer to its greeting."""
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
