"""Loops over records that numba compiles.

Compiled code is kept for other processes, beside the source or else in the user's cache directory. Where neither can
be written every process compiles anew, which takes seconds.
"""

from collections.abc import Callable
from typing import Any

from numba import njit

Loop = Callable[..., Any]


def compiled(loop: Loop) -> Any:
    return _cached(loop)


def compiled_for(signature: str) -> Callable[[Loop], Any]:
    return lambda loop: _cached(loop, signature)


def _cached(loop: Loop, signature: str | None = None) -> Any:
    try:
        return njit(signature, cache=True)(loop)
    except RuntimeError:  # numba found no directory to keep it in
        return njit(signature)(loop)
