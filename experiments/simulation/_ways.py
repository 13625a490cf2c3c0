"""The ways of messages in a simulation: from one process to another, or between tasks and the coordinator through
relays, in bundles. The relays are those of the driver for Ray."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from dpa.protocol.wire.addresses import COORDINATOR, RELAY, Address, Present
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.relays import Relay, relay_of
from experiments.simulation.job import SimulatedJob

_LARGE = 0.05
"""How often a message is too large for relays, and goes directly."""


@dataclass(frozen=True, eq=False)
class OnTheWay:
    """The network's own event: something comes to a relay, or is due there."""

    happens: Callable[[], None]


class Ways:
    """Those of one generation. A task is known to its relay before it begins."""

    def __init__(
        self,
        job: SimulatedJob,
        seed: int,
        draw: random.Random,
        schedule: Callable[[float, Address, Envelope | OnTheWay], None],
        clock: Callable[[], float],
    ) -> None:
        """`draw` says how long each message takes; `schedule` lets it come after so many seconds."""
        self._job = job
        self._random = draw
        self._of_relays = random.Random(f"relays of {seed}")
        self._schedule = schedule
        self._clock = clock
        self._relays = [Relay[Envelope]() for _ in range(job.relays)]
        self._bundles: dict[int, list[tuple[Address, Envelope]]] = {}
        self.meet(job.graph.addresses)

    def meet(self, tasks: Iterable[Address]) -> None:
        """Tasks are about to begin."""
        for task in tasks if self._relays else ():
            relay = relay_of(task, len(self._relays))
            assert relay is not None
            self._relays[relay].meet([task])

    def part(self, present: Present) -> None:
        """Tasks of a stage have ended; relays learn of it at some time."""
        for relay in self._relays:
            self._later(partial(relay.part, present), self._relay_delay())

    def send(self, envelope: Envelope) -> None:
        """A message leaves its sender."""
        job, to = self._job, envelope.receiver
        of_task = to if envelope.sender == COORDINATOR else envelope.sender if to == COORDINATOR else None
        relay = None if of_task is None else relay_of(of_task, len(self._relays))
        if relay is None or self._of_relays.random() < _LARGE:
            held = job.held(envelope.sender, to, self._clock())
            for _ in range(2 if self._random.random() < job.network.duplicates else 1):
                self._schedule(held + job.network.delay(self._random), to, envelope)
        elif to == COORDINATOR:
            self._later(partial(self._gather, relay, envelope), self._relay_delay())
        else:
            self._bundles.setdefault(relay, []).append((to, envelope))

    def flush(self) -> None:
        """The coordinator has handled an event: what it says to tasks leaves in bundles."""
        bundles, self._bundles = self._bundles, {}
        for relay, bundle in bundles.items():
            self._later(partial(self._spread, relay, bundle), self._relay_delay())

    def _gather(self, relay: int, envelope: Envelope) -> None:
        due = self._relays[relay].gather(envelope, self._clock())
        if due is not None:
            self._later(partial(self._pass_on, relay), due - self._clock())

    def _pass_on(self, relay: int) -> None:
        delay = self._relay_delay()
        for envelope in self._relays[relay].take():
            self._schedule(delay, COORDINATOR, envelope)

    def _spread(self, relay: int, bundle: list[tuple[Address, Envelope]]) -> None:
        for to, envelope in self._relays[relay].spread(bundle):
            self._schedule(self._relay_delay(), to, envelope)

    def _relay_delay(self) -> float:
        return self._job.network.delay(self._of_relays)

    def _later(self, happens: Callable[[], None], seconds: float) -> None:
        self._schedule(seconds, Address(RELAY, 0), OnTheWay(happens))
