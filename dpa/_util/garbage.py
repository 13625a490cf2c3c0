"""Python's search for garbage in cycles, and when it had better not run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Make many objects in this block, most of which stay or go with it: a search for cycles among them, again and
    again as their number grows, finds none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
