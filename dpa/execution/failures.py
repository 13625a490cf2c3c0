"""Turning an exception of user code into an error that names the executor, the key and where it happened."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from dpa.errors import ExecutorError
from dpa.executors import AnyMapper, AnyReducer, name_of

_SHOWN = 200
"""Most characters of a key or record that a message shows."""


def executor_error(executor: AnyMapper | AnyReducer, method: str, on: str, error: BaseException) -> ExecutorError:
    """The error to raise instead of `error`, which `executor.method` raised while working `on` something."""
    frames = traceback.TracebackException.from_exception(error)
    frames.stack = traceback.StackSummary.from_list([frame for frame in frames.stack if not _is_ours(frame.filename)])
    return ExecutorError(f"{name_of(executor)}.{method} failed on {on}\n{''.join(frames.format()).rstrip()}")


def shown(value: Any) -> str:
    """`repr(value)`, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def guarded(executor: AnyReducer, method: Callable[..., Any], argument: Any, on: str) -> Any:
    """`method(argument)`, with its exceptions turned into `ExecutorError`.

    Raises:
        ExecutorError: the method raised.
    """
    try:
        return method(argument)
    except Exception as error:
        raise executor_error(executor, method.__name__, on, error) from None


def _is_ours(filename: str) -> bool:
    return filename.replace("\\", "/").rpartition("/dpa/execution/")[1] != ""
