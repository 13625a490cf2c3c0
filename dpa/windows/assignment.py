"""Which windows an event is in, and which sessions of a key become one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpa.windows.options import Windows

LEAST, MOST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999, which are all that Python and Spark know, since 1970."""

Times = npt.NDArray[np.int64]
"""Microseconds since 1970."""


class Assigned(NamedTuple):
    """Events in windows.

    Attributes:
        rows: the event of each of these; None: each is there once.
        starts: when its window begins.
    """

    rows: npt.NDArray[np.intp] | None
    starts: Times


def assigned(times: Times, windows: Windows) -> Assigned:
    """All windows of each event, the latest first; of a session the one that the event alone would be in."""
    if windows.is_session:
        return Assigned(None, times)
    slide, size = windows.slide_us, windows.size_us
    last = times - (times - windows.offset_us) % slide
    if slide == size:
        return Assigned(None, last)
    before = np.arange(-(-size // slide)) * slide
    starts = last[:, None] - before
    inside = starts + size > times[:, None]
    return Assigned(np.nonzero(inside)[0], starts[inside])


def fitting(times: Times, windows: Windows) -> npt.NDArray[np.bool_]:
    """Which events, all of the years 1 to 9999, are in windows that begin and end in these years, shape (events,)."""
    size, slide = windows.size_us, 1 if windows.is_session else windows.slide_us
    last = times if windows.is_session else times - (times - windows.offset_us) % slide
    before = 0 if windows.is_session else (-(-size // slide) - 1) * slide
    return (last - before >= LEAST) & (last + size <= MOST)


class Sessions(NamedTuple):
    """Intervals of keys, joined.

    Attributes:
        of: the session of each interval, shape (intervals,).
        first: an interval of each session, shape (sessions,).
        starts, ends: of each session, shape (sessions,).
    """

    of: npt.NDArray[np.intp]
    first: npt.NDArray[np.intp]
    starts: Times
    ends: Times


def joined(keys: npt.NDArray[np.integer[Any]], starts: Times, ends: Times) -> Sessions:
    """Join the intervals of each key that overlap or touch, as Spark and Flink do.

    Args:
        keys: the key of each interval, a number that is at least 0; shape (intervals,).
        starts, ends: of each interval.
    """
    if not len(keys):
        return Sessions(np.zeros(0, np.intp), np.zeros(0, np.intp), starts, ends)
    order = np.lexsort((starts, keys))
    key, start, end = keys[order], starts[order], ends[order]
    new_key = np.r_[True, key[1:] != key[:-1]]
    # the latest end so far in the same key: ranks keep the keys apart, whatever their times
    rank = np.argsort(np.argsort(end, kind="stable"), kind="stable") + len(end) * (np.cumsum(new_key) - 1)
    latest = np.sort(end)[np.maximum.accumulate(rank) % len(end)]
    begins = new_key.copy()
    begins[1:] |= start[1:] > latest[:-1]
    at = np.flatnonzero(begins)
    of = np.empty(len(keys), dtype=np.intp)
    of[order] = np.cumsum(begins) - 1
    return Sessions(of, order[at], start[at], latest[np.r_[at[1:], len(keys)] - 1])
