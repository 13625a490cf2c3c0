"""Ctrl-C, SIGTERM, SIGHUP and SIGQUIT as one thing: a KeyboardInterrupt that is not lost.

Python drops an exception that a signal handler raises inside a destructor or a fork handler, and libraries that start
processes run many of those. So the signal is remembered too, and raised again when the job next reports its progress.
Modules written in C take one that is raised while they import others for a missing module, and what imports them does
without it; so an import is let finish first."""

from __future__ import annotations

import atexit
import inspect
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from dpa._util.signals import ending_handlers

if TYPE_CHECKING:
    from dpa.telemetry.tracker import TrackedSnapshot

_LOOK_SECONDS = 0.02
"""How often a running import is looked at that keeps a signal waiting, and whether a program that waits is to end."""

_WAIT_SECONDS = 10.0  # how long an import may keep a signal waiting; one that never ends must not

_UNWIND_SECONDS = 0.5
"""How long the main thread may handle a Ctrl-C before it counts as the end of the program: a shell or
notebook has reported the interrupt by then, and continues."""


class Interrupts:
    """A context in which each of the signals raises KeyboardInterrupt in the main thread, unless it was ignored before.
    Observes a run, to raise what was lost.

    One that comes while a module is imported does so afterwards, but a second Ctrl-C at once. Only Ctrl-C does so
    again: `timeout` and a closing terminal send the same signal twice for one request. An error that a library raises
    in its place while it handles it, as py4j does, is one too.

    While a run whose input is open streams, the first Ctrl-C raises nothing: it closes the input.

    Attributes:
        closes: whether that has been asked for.
    """

    def __init__(self) -> None:
        self._seen = False
        self._has_raised = False
        self._before: dict[int, Any] = {}
        self._imports = 0
        self._turn = threading.RLock()
        self._waiting: int | None = None
        self._waits_until = 0.0
        self._is_reminder = False
        self._may_close = False
        self.closes = False

    def __enter__(self) -> Interrupts:
        self._before = ending_handlers()
        self._imports = _imports_of(inspect.currentframe())
        for number in self._before:
            signal.signal(number, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        was_waiting = self._wait_no_longer()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        is_replaced = self._has_raised and kind is not None and issubclass(kind, Exception)
        if (was_waiting and kind is None) or is_replaced:
            raise KeyboardInterrupt from None

    def phase(self, name: str) -> None:
        self.check()

    def update(self, snapshot: TrackedSnapshot) -> None:
        self._may_close = snapshot.is_open
        self.check()

    def warn(self, message: str) -> None:
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received and its exception lost, or still waits."""
        if self._seen:
            self._seen = False
            self._raise()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise at once, or after what is being imported."""
        is_reminder, self._is_reminder = self._is_reminder, False
        if number == signal.SIGINT and self._may_close and not self.closes:
            self.closes = True
            return
        is_second = not is_reminder and number == signal.SIGINT == self._waiting
        self._seen = True
        may_wait = self._waiting is None or time.monotonic() < self._waits_until
        if not is_second and may_wait and _imports_of(frame) > self._imports:
            self._wait(number)
            return
        self._raise()

    def _raise(self) -> NoReturn:
        self._has_raised = True
        self._wait_no_longer()
        for other in self._before:
            if other != signal.SIGINT:
                signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    def _wait(self, number: int) -> None:
        is_first, self._waiting = self._waiting is None, number
        if is_first:
            self._waits_until = time.monotonic() + _WAIT_SECONDS
            threading.Thread(target=self._remind, name="dpa-interrupt", daemon=True).start()

    def _wait_no_longer(self) -> bool:
        """Have no reminder come any more; returns whether a signal was waiting."""
        with self._turn:
            was_waiting, self._waiting = self._waiting is not None, None
            return was_waiting

    def _remind(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._turn:
                if self._waiting is None:
                    return
                self._is_reminder = True
                signal.pthread_kill(threading.main_thread().ident or 0, self._waiting)


_RUNNING: list[threading.Event] = []  # of each job in another thread than the main one, what is set at its end


class ProgramEnd:
    """What a job in another thread than the main one knows of a Ctrl-C, which Python raises in the main thread alone.
    The main thread has ended then, or waits for other threads before it ends. In the block with it, the program does
    not end before the job: after a Ctrl-C in `Thread.join`, Python up to 3.12 takes the joined thread for ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._handled: BaseException | None = None
        self._since = 0.0
        self._ended = threading.Event()
        self._is_awaited = False

    def __enter__(self) -> ProgramEnd:
        signal.siginterrupt(signal.SIGINT, True)  # polars has a main thread that waits go on waiting after a signal
        thread = threading.current_thread()
        self._is_awaited = thread is not threading.main_thread() and not thread.daemon
        if self._is_awaited:
            _RUNNING.append(self._ended)
            self.begin_phase()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        if self._is_awaited:
            _RUNNING.remove(self._ended)

    def begin_phase(self) -> None:
        """Check, and have libraries imported so far wait for the job with what they do when the program ends."""
        self.check()
        if self._is_awaited:
            atexit.unregister(_wait_for_jobs)
            atexit.register(_wait_for_jobs)  # the last to be registered is the first to be called

    def wait(self, seconds: float) -> bool:
        """Wait, checking meanwhile; returns that the job continues."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _LOOK_SECONDS))
        return False

    def check(self) -> None:
        """Raise KeyboardInterrupt if one is ending the program. Does nothing in the main thread."""
        main = threading.main_thread()
        if threading.current_thread() is main:
            return
        if not main.is_alive():
            is_ending = getattr(sys, "last_type", None) is KeyboardInterrupt
        else:
            found = sys._current_exceptions().get(main.ident or 0)
            handled = found[1] if isinstance(found, tuple) else found  # a tuple before Python 3.12
            if handled is not self._handled:
                self._handled, self._since = handled, self._clock()
            is_ending = isinstance(handled, KeyboardInterrupt) and self._clock() - self._since >= _UNWIND_SECONDS
        if is_ending:
            raise KeyboardInterrupt


def _wait_for_jobs() -> None:
    for ended in _RUNNING:
        ended.wait()


def _imports_of(frame: FrameType | None) -> int:
    """How many frames of Python's import a frame is part of. They also wait for what another thread imports, and take
    its lock: an exception between that and the `try` after it would leave the lock held for good."""
    found = 0
    while frame is not None:
        found += frame.f_code.co_filename == "<frozen importlib._bootstrap>"
        frame = frame.f_back
    return found
