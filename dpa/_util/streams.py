"""Standard output and standard error that may be closed, full, or no longer read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dpa._secrets import hidden
from dpa.errors import DpaError


class OutputError(DpaError):
    """What was asked for on standard output did not get there."""


def open_closed() -> None:
    """Open on the null device what this process was started without, so that no other code has to check for it, and no
    file of the job's takes its place."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w"))


def say(line: str) -> None:
    """Print a line without secrets on standard error, if it can be written to."""
    with suppress(OSError, ValueError):
        print(hidden(line), file=sys.stderr, flush=True)


@contextmanager
def printing(what: str) -> Iterator[None]:
    """Print in this block; standard output has it all when the block is left. A reader that goes away has what it
    wanted.

    Raises:
        OutputError: standard output cannot take it: the disk is full.
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
    """Have an error in this block end the command: said on standard error, with its exit status."""
    try:
        yield
    except DpaError as error:
        say(f"error: {error}")
        raise SystemExit(error.exit_status) from None


def _drop_the_rest() -> None:
    """Have Python write what it still holds to the null device when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
