"""Ctrl-C, SIGTERM, SIGHUP and SIGQUIT as one thing: a KeyboardInterrupt that is not lost.

Python drops an exception that a signal raises inside a destructor or a fork handler, and libraries that start processes
run many of those. So the signal is remembered too, and raised again at the job's next sign of life.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from dpa.phases import Observer
from dpa.protocol.metrics import Snapshot
from dpa.signals import ending_handlers


class Interrupts:
    """A context in which each of the signals raises KeyboardInterrupt in the main thread, unless it was ignored before.

    Only Ctrl-C does so again: `timeout` and a terminal that closes send the same signal twice, and mean it once.
    """

    def __init__(self) -> None:
        self._seen = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = ending_handlers()
        for number in self._before:
            signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watched(self, observer: Observer) -> Observer:
        """The observer, asked to look for lost interrupts whenever it is told something."""
        return _Watched(observer, self)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come and was lost."""
        if self._seen:
            self._seen = False
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        for other in self._before:
            if other != signal.SIGINT:
                signal.signal(other, signal.SIG_IGN)
        self._seen = True
        raise KeyboardInterrupt


class _Watched:
    def __init__(self, observer: Observer, interrupts: Interrupts) -> None:
        self._observer = observer
        self._interrupts = interrupts

    def phase(self, name: str, detail: str = "") -> None:
        self._interrupts.check()
        self._observer.phase(name, detail)

    def update(self, snapshot: Snapshot) -> None:
        self._interrupts.check()
        self._observer.update(snapshot)

    def warn(self, message: str) -> None:
        self._interrupts.check()
        self._observer.warn(message)
