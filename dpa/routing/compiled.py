"""Loops over records that numba compiles. `dpa[groupings]` installs numba.

Compiled code is kept for other processes, beside the source or else in the user's cache directory. Where neither can be
written every process compiles anew, which takes seconds."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(loop: Callable[..., Any], signature: str | None = None) -> Any:
    """The loop, compiled at once for a signature of numba, or else when it is first called."""
    try:
        return njit(signature, cache=True)(loop)
    except RuntimeError:  # numba found no directory to keep it in
        return njit(signature)(loop)
