"""Which piece of user code a thread is in, read from its frames by another thread: nothing is noted while records flow.

A function that calls user code says beside its definition how to read off its local variables what it is at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Describe = Callable[[Mapping[str, Any]], str]

_DESCRIPTIONS: dict[CodeType, Describe] = {}


def described(describe: Describe) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`describe` gets the local variables of the decorated function, which stays as it is."""

    def note(function: Callable[P, T]) -> Callable[P, T]:
        _DESCRIPTIONS[function.__code__] = describe
        return function

    return note


def running(frame: FrameType | None) -> str | None:
    """What a thread whose innermost frame is `frame` is at; None if no described function is among its callers."""
    while frame is not None:
        describe = _DESCRIPTIONS.get(frame.f_code)
        if describe is not None:
            try:
                return describe(frame.f_locals)
            except Exception:  # it has only begun, or has just ended, or a value of the user's cannot be shown
                return None
        frame = frame.f_back
    return None
