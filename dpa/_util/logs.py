"""What dpa logs, and where it goes: to the loggers below `dpa`, and nowhere unless somebody asks for it.

Every module that logs has `logging.getLogger(__name__)`. An application configures these loggers as any others;
`log_to_stderr` is for processes of dpa's own: the command line, and the actors of a run whose driver has set a level.
Phases, starts, ends and decisions are logged, never a record or a block.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dpa._util.streams import say

_ROOT = "dpa"
_FORMAT = "%(asctime)s %(levelname)-7s %(task)s %(name)s: %(message)s"


def quiet_by_default() -> None:
    """Keep Python from writing warnings of these loggers to standard error where no logging is configured."""
    logging.getLogger(_ROOT).addHandler(logging.NullHandler())


def log_to_stderr(level: int | str, task: str) -> None:
    """Write what is logged in this process to standard error from now on, a line a record with the task's name; a
    second call replaces the first.

    Args:
        level: the least that is written: a name such as `info`, or a number of `logging`.
        task: the name of what this process does, such as `driver` or `reducer 3`.
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
    """A block in which nobody gives the root logger a handler by the way, as the functions of `logging` do where it has
    none, which libraries call. What is logged meanwhile is written as if it had none."""
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
    """The level that was set for the loggers of dpa, at which the tasks of a run log too; None if none was set."""
    return logging.getLogger(_ROOT).level or None


class _StderrHandler(logging.Handler):
    """Writes to what is standard error at that moment: a live display may have put itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            say(self.format(record))
        except Exception:
            self.handleError(record)


class _AsWithout(logging.Handler):
    """Of the root logger: does what Python does where there is no handler."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning to standard error, but none of dpa's, which has a handler."""
        is_heard = record.levelno >= logging.WARNING and record.name.partition(".")[0] != _ROOT
        if is_heard and logging.lastResort is not None:
            logging.lastResort.handle(record)
