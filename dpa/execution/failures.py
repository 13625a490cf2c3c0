"""Failures of user code. An exception becomes an error that names the executor, the key and the place or, if errors are
tolerated, a dead letter. Another thread can also read from a thread's frames which user code it is in: each function
that calls user code declares how to read that from its local variables."""

import json
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

from dpa._util.words import shortened
from dpa.errors import ExecutorError
from dpa.executors import called, name_of
from dpa.sources.records import Unread
from dpa.tolerance import READING, UNREAD, ErrorCount, Letter, Origin, Tolerance

R = TypeVar("R")

USER_ERRORS = (Exception, SystemExit)
"""Exceptions of user code that fail the job, also `sys.exit()` in an executor or its module."""

_KEPT = 4_096  # most characters of a record, a message or a traceback in a dead letter

P = ParamSpec("P")
T = TypeVar("T")
Describe = Callable[[Mapping[str, Any]], str]

_DESCRIPTIONS: dict[CodeType, Describe] = {}


class UserCodeError(ExecutorError):
    """User code raised `error` in `executor.method` while working `on` something; `row`: of the given rows, if only
    that one can be to blame."""

    executor: object
    method: str
    on: str
    error: BaseException
    row: int | None = None


def executor_error(
    executor: object, method: str, on: str, error: BaseException, row: int | None = None
) -> UserCodeError:
    what, trace = _what(error), _trace(error)
    message = f"{called(executor, method)} failed on {on}: {what}"
    made = UserCodeError(message if trace == what else f"{message}\n{trace}")
    made.executor, made.method, made.on, made.error, made.row = executor, method, on, error, row
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
    """Note a record that is left out because `executor.method` raised `error` while working `on` it; `origin`: the
    input rows behind it. Raises UserCodeError without a tolerance."""
    if tolerance is None:
        raise executor_error(executor, method, on, error) from None
    name, what = name_of(executor), type(error).__name__
    example = f"{called(executor, method)} failed on {on}: {_what(error)}"
    count = ErrorCount(tolerance.step, what, tolerance.keeps, 1, example)
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
    """Note a record that a reader leaves out; `place`: its split's number, file and offset."""
    count, letter = ErrorCount(tolerance.step, UNREAD, tolerance.keeps, 1, record.message), None
    if tolerance.keeps:
        split, file, offset = place or (None, None, None)
        shown, data = (record.data or b"")[:_KEPT].decode(errors="replace"), pickled((record.about, record.data))
        message = record.message[:_KEPT]
        letter = Letter(tolerance.step, "", READING, None, shown, UNREAD, message, "", data, split, file, offset, 1)
    tolerance.letters.add(count, letter)


def bisected(
    work: Callable[[int, int], R], rows: int, dies: Callable[[int, UserCodeError], None]
) -> Iterator[tuple[int, int, R]]:
    """The results of `work` for spans of rows, in order.

    If `work` raises, it must leave nothing behind. It is called again for parts of the span without the bad row, for
    which `dies` is called. If the error does not name the row, it is found by halving."""
    spans = [(0, rows)]
    while spans:
        start, stop = spans.pop()
        try:
            made = work(start, stop)
        except UserCodeError as error:
            row = start if stop - start <= 1 else None if error.row is None else start + error.row
            if row is not None:
                dies(row, error)
            # Rows before the bad one are good. Those after it are halved too: each failure costs a copy of the states
            # of its span, so with the rest as one span a block of bad rows would cost a quadratic number of copies.
            after = start if row is None else row + 1
            middle = (after + stop) // 2
            ahead = ((start, after if row is None else row), (after, middle), (middle, stop))
            spans += [span for span in reversed(ahead) if span[0] < span[1]]
        else:
            yield start, stop, made


def at(executor: object, method: str, on: str) -> str:
    return f"{called(executor, method)}, on {on}"


def shown(value: Any) -> str:
    return shortened(repr(value))


def _what(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _trace(error: BaseException) -> str:
    """Without the frames of this package, and of polars between it and a function of the user's."""
    frames = traceback.TracebackException.from_exception(error)
    frames.stack = traceback.StackSummary.from_list([frame for frame in frames.stack if not _is_ours(frame.filename)])
    return "".join(frames.format()).rstrip()


def text_of(value: Any) -> str:
    """For people, shortened; JSON if possible."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:_KEPT]
    except (TypeError, ValueError):
        return repr(value)[:_KEPT]


def pickled(value: Any) -> bytes | None:
    """None if it cannot be pickled."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # objects of the user's may raise anything
        return None


def _is_ours(filename: str) -> bool:
    path = filename.replace("\\", "/")
    return any(package in path for package in ("/dpa/execution/", "/dpa/columns/", "/site-packages/polars/"))


def described(describe: Describe) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`describe` gets the local variables of the decorated function, which stays as it is."""

    def note(function: Callable[P, T]) -> Callable[P, T]:
        _DESCRIPTIONS[function.__code__] = describe
        return function

    return note


def running(frame: FrameType | None) -> str | None:
    """The user code that a thread is in, by its innermost frame; None outside of described functions."""
    while frame is not None:
        describe = _DESCRIPTIONS.get(frame.f_code)
        if describe is not None:
            try:
                return describe(frame.f_locals)
            except Exception:  # it has only begun, or has just ended, or a value of the user's cannot be shown
                return None
        frame = frame.f_back
    return None
