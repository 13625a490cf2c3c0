"""What the C library does with memory that a task has freed: it keeps some, as the next block needs as much again.

By default it returns the memory of every large array, and the system clears each page anew for the next.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of parameters of glibc's `mallopt`."""

_KEPT = 64 * 1024**2
"""Bytes that stay, of those that are freed at the end of the heap."""

_LARGEST = 32 * 1024**2
"""Bytes of the largest array that comes from the heap: the most that glibc takes."""


def keep_freed_memory() -> None:
    """Keep freed memory for what this process allocates next; does nothing where the C library is another."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST)
