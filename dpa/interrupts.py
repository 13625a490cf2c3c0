"""Ctrl-C and SIGTERM as one thing: a KeyboardInterrupt that is not lost.

Python drops an exception that a signal raises inside a destructor or a fork handler, and libraries that start processes
run many of those. So the signal is remembered too, and raised again at the job's next sign of life.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from dpa.phases import Observer
from dpa.protocol.metrics import Snapshot

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context in which both signals raise KeyboardInterrupt in the main thread."""

    def __init__(self) -> None:
        self._seen = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._interrupt)
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
