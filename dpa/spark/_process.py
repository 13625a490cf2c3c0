"""What a Spark session changes in the process that started it, each for no longer than a block: the handling of Ctrl-C,
and what py4j logs."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PY4J_LOGGERS = ("", "py4j.java_gateway", "py4j.clientserver")


def restore_interrupts(handler: Any) -> None:
    """Set the handler of Ctrl-C to what `signal.getsignal` returned; nothing outside of the main thread."""
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Keep py4j from logging, partly on the root logger, what it raises all the same or what is over anyway."""

    def wanted(record: logging.LogRecord) -> bool:
        return record.module not in ("java_gateway", "clientserver")

    loggers = [logging.getLogger(name) for name in _PY4J_LOGGERS]
    for logger in loggers:
        logger.addFilter(wanted)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(wanted)
