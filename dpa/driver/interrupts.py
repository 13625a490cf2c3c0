"""Ctrl-C, SIGTERM, SIGHUP and SIGQUIT as one thing: a KeyboardInterrupt that is not lost.

Python drops an exception that a signal handler raises inside a destructor or a fork handler, and libraries that start
processes run many of those. So the signal is remembered too, and raised again when the job next reports its progress.
Modules written in C take one that is raised while they import others for a missing module, and what imports them does
without it; so an import is let finish first.
"""

from __future__ import annotations

import inspect
import signal
import threading
from types import FrameType
from typing import Any

from dpa._util.signals import ending_handlers
from dpa.driver.observer import Observer
from dpa.protocol.metrics import Snapshot

_IMPORT_SECONDS = 0.02
"""How often a running import is looked at that keeps a signal waiting."""


class Interrupts:
    """A context in which each of the signals raises KeyboardInterrupt in the main thread, unless it was ignored before.

    One that comes while a module is imported does so afterwards, but a second Ctrl-C at once. Only Ctrl-C does so
    again: `timeout` and a closing terminal send the same signal twice for one request.
    """

    def __init__(self) -> None:
        self._seen = False
        self._before: dict[int, Any] = {}
        self._imports = 0
        self._after_import: threading.Timer | None = None

    def __enter__(self) -> Interrupts:
        self._before = ending_handlers()
        self._imports = _imports_of(inspect.currentframe())
        for number in self._before:
            signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *raised: object) -> None:
        self._no_later()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def raised_at(self, observer: Observer) -> Observer:
        """The observer, each of whose calls first raises an interrupt that was lost."""
        return _InterruptedObserver(observer, self)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received and its exception lost."""
        if self._seen:
            self._no_later()
            self._seen = False
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The handler: raise at once, or after what is being imported."""
        is_second = number == signal.SIGINT and self._after_import is not None
        self._seen = True
        if not is_second and _imports_of(frame) > self._imports:
            self._later(number)
            return
        self._no_later()
        for other in self._before:
            if other != signal.SIGINT:
                signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    def _later(self, number: int) -> None:
        """Handle the signal again soon, if it is not waiting already."""

        def again() -> None:
            self._after_import = None
            signal.pthread_kill(threading.main_thread().ident or 0, number)

        if self._after_import is None:
            self._after_import = threading.Timer(_IMPORT_SECONDS, again)
            self._after_import.daemon = True
            self._after_import.start()

    def _no_later(self) -> None:
        if self._after_import is not None:
            self._after_import.cancel()
            self._after_import = None


def _imports_of(frame: FrameType | None) -> int:
    """How many imports, each within the other, a frame is part of."""
    found = 0
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        found += code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>"
    return found


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
