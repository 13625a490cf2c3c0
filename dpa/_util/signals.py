"""The signals that end a job: held back while something starts or ends that must not be left half done, and kept from
processes that this one ends itself."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
"""Ctrl-C, `kill`, a terminal that closes, and Ctrl-\\."""

_OF_A_TERMINAL = {number for number in ENDING if number not in (signal.SIGINT, signal.SIGTERM)}
"""What a terminal sends to all of its processes besides Ctrl-C, which Ray and Spark ignore."""


def ending_handlers() -> dict[int, Any]:
    """The handlers of the signals that end a job. Leaves out ignored signals, as SIGHUP under `nohup`, and foreign
    handlers."""
    handlers = {number: signal.getsignal(number) for number in ENDING}
    return {number: handler for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}


@contextmanager
def interrupts_held(hurry: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the signals back until the block ends; a second Ctrl-C gets through. Protects the main thread only. `hurry`
    is called when a signal is held back, to end the block soon, if only by an error."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = ending_handlers()
    held: list[int] = []

    def hold(number: int, frame: object) -> None:
        held.append(number)
        if signal.SIGINT in before:
            signal.signal(signal.SIGINT, before[signal.SIGINT])
        if hurry is not None:
            hurry()

    for number in before:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


@contextmanager
def terminal_kept_away() -> Iterator[None]:
    """Start processes in this block that ignore the terminal's signals, so that they do not end before the one that
    started them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_A_TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
