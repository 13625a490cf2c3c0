"""Standard output and standard error, which may be closed, full, or no longer read; and what dpa logs there.

Loggers below `dpa` are silent unless the application configures them. `log_to_stderr` is for dpa's own processes: the
command line, and the actors of a run whose driver has set a level. Phases, starts, ends and decisions are logged, never
records or blocks."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dpa._secrets import hidden
from dpa.errors import DpaError, JobCancelledError

_ROOT = "dpa"
_FORMAT = "%(asctime)s %(levelname)-7s %(task)s %(name)s: %(message)s"


class OutputError(DpaError):
    """The output that was asked for could not be printed."""


def open_closed() -> None:
    """Open the standard streams that this process lacks on the null device, so that no other code has to check, and no
    file of the job takes their numbers."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w"))


def say(line: str) -> None:
    """Print a line without secrets on standard error, if possible."""
    with suppress(OSError, ValueError):
        print(hidden(line), file=sys.stderr, flush=True)


@contextmanager
def printing(what: str) -> Iterator[None]:
    """Print in this block, and flush at its end. Raises OutputError if the disk is full; a reader that closes the pipe
    has what it wanted."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_the_rest()
    except OSError as error:
        _drop_the_rest()
        raise OutputError(f"cannot print {what} on standard output: {error.strerror}") from None


@contextmanager
def exiting(interrupted: str | None = None) -> Iterator[None]:
    """Turn an error in this block into a message on standard error and its exit status, and so a Ctrl-C where
    `interrupted` says what it has done."""
    try:
        yield
    except KeyboardInterrupt:
        if interrupted is None:
            raise
        say(interrupted)
        raise SystemExit(JobCancelledError.exit_status) from None
    except DpaError as error:
        say(str(error) if isinstance(error, JobCancelledError) else f"error: {error}")
        raise SystemExit(error.exit_status) from None


def _drop_the_rest() -> None:
    """Send what Python still buffers to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def quiet_by_default() -> None:
    """Keep Python from printing these loggers' warnings where logging is not configured."""
    logging.getLogger(_ROOT).addHandler(logging.NullHandler())


def log_to_stderr(level: int | str, task: str) -> None:
    """Write this process's log to standard error, in place of an earlier call's. `level` is a name such as `info`, or a
    number of `logging`; `task`, such as `driver` or `reducer 3`, names the process in each line."""
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
