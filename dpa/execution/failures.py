"""Turning an exception of user code into an error that names the executor, the key and where it happened, or, where
errors are tolerated, into a dead letter."""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dpa.errors import ExecutorError
from dpa.executors import name_of
from dpa.sources.records import Unread
from dpa.tolerance import READING, UNREAD, ErrorCount, Letter, Origin, Tolerance

R = TypeVar("R")

USER_ERRORS = (Exception, SystemExit)
"""What user code may raise that fails the job: `sys.exit()` in an executor, or in the module that holds it, too."""

_SHOWN = 200
"""Most characters of a record that a message shows."""

_KEPT = 4_096
"""Most characters of a record, a message or a traceback in a dead letter."""


class UserCodeError(ExecutorError):
    """User code raised `error` in `executor.method` while working `on` something."""

    executor: object
    method: str
    on: str
    error: BaseException


def executor_error(executor: object, method: str, on: str, error: BaseException) -> UserCodeError:
    """The error to raise instead of `error`, which `executor.method` raised while working `on` something."""
    what, trace = _what(error), _trace(error)
    message = f"{name_of(executor)}.{method} failed on {on}: {what}"
    made = UserCodeError(message if trace == what else f"{message}\n{trace}")
    made.executor, made.method, made.on, made.error = executor, method, on, error
    return made


def tolerated(
    tolerance: Tolerance | None,
    executor: object,
    method: str,
    on: str,
    error: BaseException,
    record: Any,
    key: Any = None,
    origin: Origin | None = None,
) -> None:
    """Note a record that is left out, as `executor.method` raised `error` while working `on` it.

    Args:
        tolerance: of the step.
        record: what is left out.
        key: its key, once it has one.
        origin: of which rows of a split it was made.

    Raises:
        UserCodeError: errors of the step are not tolerated.
    """
    if tolerance is None:
        raise executor_error(executor, method, on, error) from None
    name, what = name_of(executor), type(error).__name__
    count = ErrorCount(tolerance.step, what, tolerance.keeps, 1, f"{name}.{method} failed on {on}: {_what(error)}")
    letter = None
    if tolerance.keeps:
        letter = Letter(
            step=tolerance.step,
            executor=name,
            method=method,
            key=None if key is None else text_of(key),
            record=text_of(record),
            error=what,
            message=str(error)[:_KEPT],
            traceback=_trace(error)[-_KEPT:],
            data=pickled((key, record)),
        )
    tolerance.letters.add(count, letter, origin)


def note_unread(tolerance: Tolerance, record: Unread, place: tuple[int, str | None, int] | None) -> None:
    """Note a record that a reader leaves out; `place`: of it, the number of the split, its file, and the offset."""
    count, letter = ErrorCount(tolerance.step, UNREAD, tolerance.keeps, 1, record.message), None
    if tolerance.keeps:
        split, file, offset = place or (None, None, None)
        shown, data = (record.data or b"")[:_KEPT].decode(errors="replace"), pickled((record.about, record.data))
        message = record.message[:_KEPT]
        letter = Letter(tolerance.step, "", READING, None, shown, UNREAD, message, "", data, split, file, offset, 1)
    tolerance.letters.add(count, letter)


def halved(
    work: Callable[[int, int], R], start: int, stop: int, dead: Callable[[int, UserCodeError], None]
) -> Iterator[tuple[int, int, R]]:
    """What `work` gives for the rows from `start` up to `stop`. Where user code raises, that of either half, down to
    the rows that fail alone, of which `dead` is called with each; with the rows that each piece is of."""
    try:
        made = work(start, stop)
    except UserCodeError as error:
        if stop - start <= 1:
            dead(start, error)
            return
    else:
        yield start, stop, made
        return
    middle = (start + stop) // 2
    yield from halved(work, start, middle, dead)
    yield from halved(work, middle, stop, dead)


def at(executor: object, method: str, on: str) -> str:
    """Where user code is: in which method, on what."""
    return f"{name_of(executor)}.{method}, on {on}"


def shown(value: Any) -> str:
    """`repr(value)`, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _what(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _trace(error: BaseException) -> str:
    """The exception's traceback, without the frames of this package."""
    frames = traceback.TracebackException.from_exception(error)
    frames.stack = traceback.StackSummary.from_list([frame for frame in frames.stack if not _is_ours(frame.filename)])
    return "".join(frames.format()).rstrip()


def text_of(value: Any) -> str:
    """A value for people, cut to a readable length; JSON as far as that goes."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:_KEPT]
    except (TypeError, ValueError):
        return repr(value)[:_KEPT]


def pickled(value: Any) -> bytes | None:
    """A value as it is; None if it cannot be pickled."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # whatever objects of the user's raise
        return None


def _is_ours(filename: str) -> bool:
    return filename.replace("\\", "/").rpartition("/dpa/execution/")[1] != ""
