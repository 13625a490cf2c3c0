"""Standard output and standard error, which may be closed, full, or no longer read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dpa._secrets import hidden
from dpa.errors import DpaError


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
    """Print in this block, and flush at its end. A reader that closes the pipe has what it wanted.

    Raises:
        OutputError: the disk is full.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_the_rest()
    except OSError as error:
        _drop_the_rest()
        raise OutputError(f"cannot print {what} on standard output: {error.strerror}") from None


@contextmanager
def exiting() -> Iterator[None]:
    """Turn an error in this block into a message on standard error and its exit status."""
    try:
        yield
    except DpaError as error:
        say(f"error: {error}")
        raise SystemExit(error.exit_status) from None


def _drop_the_rest() -> None:
    """Send what Python still buffers to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
