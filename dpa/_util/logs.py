"""What dpa logs, and where to: loggers below `dpa`, silent unless the application configures them.

`log_to_stderr` is for dpa's own processes: the command line, and the actors of a run whose driver has set a level.
Phases, starts, ends and decisions are logged, never records or blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dpa._util.streams import say

_ROOT = "dpa"
_FORMAT = "%(asctime)s %(levelname)-7s %(task)s %(name)s: %(message)s"


def quiet_by_default() -> None:
    """Keep Python from printing these loggers' warnings where logging is not configured."""
    logging.getLogger(_ROOT).addHandler(logging.NullHandler())


def log_to_stderr(level: int | str, task: str) -> None:
    """Write this process's log to standard error, in place of an earlier call's.

    Args:
        level: the least level to write: a name such as `info`, or a number of `logging`.
        task: names the process in each line, such as `driver` or `reducer 3`.
    """
    logger = logging.getLogger(_ROOT)
    for handler in [handler for handler in logger.handlers if isinstance(handler, _StderrHandler)]:
        logger.removeHandler(handler)
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter(_FORMAT, defaults={"task": task}))
    logger.addHandler(handler)
    logger.setLevel(level.upper() if isinstance(level, str) else level)


@contextmanager
def root_left_alone() -> Iterator[None]:
    """Keep libraries in this block from giving the root logger a handler, as the functions of `logging` do where there
    is none. Records are written as if it had none."""
    root, handler = logging.getLogger(), _AsWithout()
    if root.handlers:
        yield
        return
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def chosen_level() -> int | None:
    """The level set for dpa's loggers, which a run's tasks use too; None if none is set."""
    return logging.getLogger(_ROOT).level or None


class _StderrHandler(logging.Handler):
    """Writes to the current standard error, which a live display may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(self.format(record))
        except Exception:
            self.handleError(record)


class _AsWithout(logging.Handler):
    """Makes the root logger behave as without a handler."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning to standard error, but none of dpa's, which has a handler."""
        is_heard = record.levelno >= logging.WARNING and record.name.partition(".")[0] != _ROOT
        if is_heard and logging.lastResort is not None:
            logging.lastResort.handle(record)
