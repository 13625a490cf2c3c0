"""Whether machines live: the driver connects to Ray's process there, the `raylet`, again and again. A raylet runs no
user code. Ray itself takes 15 to 65 s to notice that a machine is silent."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

ENDED = "Ray has ended there"

SILENT_SECONDS = 8.0
"""A machine that has not answered for this long is lost."""

_CHECK_SECONDS, _MOMENT = 0.25, 0.005
"""How long machines may take to answer after a task has died, and how long to wait between two looks at them."""

_MOST_COUNTED = 1.0
"""Most seconds of silence that one look adds: a driver that was stopped has not listened meanwhile."""


@dataclass
class _Heard:
    """A raylet, and for how long it has not answered, in seconds."""

    raylet: Raylet
    silent: float = 0.0

    def look(self, passed: float) -> bool:
        """Listen, `passed` seconds after the last time; whether the machine's condition is known."""
        answers = self.raylet.has_answered()
        self.silent = 0.0 if answers else self.silent + passed
        return answers or self.raylet.has_ended

    @property
    def why_lost(self) -> str | None:
        """None: the machine is not lost."""
        if self.raylet.has_ended:
            return ENDED
        return f"it has not answered for {SILENT_SECONDS:g} s" if self.silent >= SILENT_SECONDS else None


class Heartbeats:
    """Those of a job's machines, except the driver's. Their clocks do not matter."""

    def __init__(
        self,
        of: Callable[[str], Raylet],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`of` gives the raylet of the node with an `id`."""
        self._new, self._clock, self._sleep = of, clock, sleep
        self._looked_at = clock()
        self._of: dict[str, _Heard] = {}

    def lost(self, nodes: Collection[str]) -> dict[str, str]:
        """Why, for each of these nodes that is lost; others are not asked any more. Called often."""
        now = self._clock()
        passed, self._looked_at = min(now - self._looked_at, _MOST_COUNTED), now
        for node in [node for node in self._of if node not in nodes]:
            self._of.pop(node).raylet.end()
        for node in nodes:
            if node not in self._of:
                self._of[node] = _Heard(self._new(node))
            self._of[node].look(passed)
        return {node: why for node, heard in self._of.items() if (why := heard.why_lost) is not None}

    def ended(self, nodes: Collection[str]) -> set[str]:
        """Those of these nodes on which Ray has ended; waits a moment for their answers."""
        for node in nodes:
            if node in self._of:
                self._of[node].raylet.ask()
            else:
                self._of[node] = _Heard(self._new(node))
        until, waiting = self._clock() + _CHECK_SECONDS, [self._of[node] for node in nodes]
        while waiting and self._clock() < until:
            self._sleep(_MOMENT)
            waiting = [heard for heard in waiting if not heard.look(0.0)]
        return {node for node in nodes if self._of[node].raylet.has_ended}


class Raylet:
    """Ray's own process on a node, by its host and port.

    Attributes:
        has_ended: whether its machine refuses connections to its port.
        has_been_reached: whether it has answered once.
    """

    # A connection alone is no answer: the kernel accepts it also for a process that is stopped. A server of HTTP/2
    # speaks first; where Ray uses TLS, after a greeting; or it ends the connection.

    def __init__(self, address: tuple[str, int]) -> None:
        self.has_ended = self.has_been_reached = False
        self._address = address
        self._start()

    def _start(self) -> None:
        self._greeting = _greeting()
        self._asked = socket.socket(socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
        self._asked.setblocking(False)
        with suppress(OSError):  # it is under way, or what is wrong is said where the answer is read
            self._asked.connect(self._address)

    def ask(self) -> None:
        self.end()
        self._start()

    def has_answered(self) -> bool:
        """Whether it has answered since it was last asked. If so, it is asked again."""
        try:
            self._asked.recv(1)
        except BlockingIOError:
            if self._greeting:
                with suppress(OSError):  # not connected yet
                    self._greeting = self._greeting[self._asked.send(self._greeting) :]
            return False
        except OSError as error:
            answers, self.has_ended = False, isinstance(error, ConnectionRefusedError)
        else:
            answers, self.has_ended, self.has_been_reached = True, False, True
        self.ask()
        return answers

    def end(self) -> None:
        self._asked.close()


@cache
def _greeting() -> bytes:
    """What a client says first; empty without TLS."""
    if os.environ.get("RAY_USE_TLS", "").lower() not in ("1", "true"):
        return b""
    context, said = ssl.create_default_context(), ssl.MemoryBIO()
    context.set_alpn_protocols(["h2"])
    with suppress(ssl.SSLWantReadError):  # who is there is Ray's to check; nothing but this is said to it
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname="raylet").do_handshake()
    return said.read()
