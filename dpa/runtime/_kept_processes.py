"""Processes of a generation that has ended, for the next one: starting a process takes a processor about a second, and
most of them live, or are being started, when another one has died."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import ray
from ray import ObjectRef
from ray.exceptions import RayError

from dpa.protocol.wire.nodes import TaskProcess
from dpa.runtime._spares import Actor, Spares
from dpa.runtime.actors.actor import NO_SHARE, Share, TaskActor

_RESET_SECONDS = 1.0
"""How long they may take together to be free; the others are ended."""


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
