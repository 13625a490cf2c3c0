"""Ctrl-C, SIGTERM, SIGHUP and SIGQUIT as one thing: a KeyboardInterrupt that is not lost.

Python drops an exception that a signal handler raises inside a destructor or a fork handler, and libraries that start
processes run many of those. So the signal is remembered too, and raised again when the job next reports its progress.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from dpa._util.signals import ending_handlers
from dpa.driver.observer import Observer
from dpa.protocol.metrics import Snapshot


class Interrupts:
    """A context in which each of the signals raises KeyboardInterrupt in the main thread, unless it was ignored before.

    Only Ctrl-C does so again: `timeout` and a closing terminal send the same signal twice for one request.
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

    def raised_at(self, observer: Observer) -> Observer:
        """The observer, each of whose calls first raises an interrupt that was lost."""
        return _InterruptedObserver(observer, self)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received and its exception lost."""
        if self._seen:
            self._seen = False
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        for other in self._before:
            if other != signal.SIGINT:
                signal.signal(other, signal.SIG_IGN)
        self._seen = True
        raise KeyboardInterrupt


class _InterruptedObserver:
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
