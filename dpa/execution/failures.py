"""Turning an exception of user code into an error that names the executor, the key and where it happened."""

from __future__ import annotations

import traceback
from typing import Any

from dpa.errors import ExecutorError
from dpa.executors import name_of

USER_ERRORS = (Exception, SystemExit)
"""What user code may raise that fails the job: `sys.exit()` in an executor, or in the module that holds it, too."""

_SHOWN = 200
"""Most characters of a record that a message shows."""


def executor_error(executor: object, method: str, on: str, error: BaseException) -> ExecutorError:
    """The error to raise instead of `error`, which `executor.method` raised while working `on` something."""
    frames = traceback.TracebackException.from_exception(error)
    frames.stack = traceback.StackSummary.from_list([frame for frame in frames.stack if not _is_ours(frame.filename)])
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    message, trace = f"{name_of(executor)}.{method} failed on {on}: {what}", "".join(frames.format()).rstrip()
    return ExecutorError(message if trace == what else f"{message}\n{trace}")


def at(executor: object, method: str, on: str) -> str:
    """Where user code is: in which method, on what."""
    return f"{name_of(executor)}.{method}, on {on}"


def shown(value: Any) -> str:
    """`repr(value)`, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _is_ours(filename: str) -> bool:
    return filename.replace("\\", "/").rpartition("/dpa/execution/")[1] != ""
