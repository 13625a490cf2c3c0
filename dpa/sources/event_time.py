"""How far the event time of an input has come: what a source promises of the order of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from dpa.windows.times import EventTime

_SECOND = 1_000_000
"""Microseconds."""


@dataclass(frozen=True)
class SourceTime:
    """The event time of the rows of a source.

    Attributes:
        time: which column has it.
        out_of_order: microseconds by which a row may be behind the latest one before it in its channel; None: 0 while
            the input is open, and of one that is closed nobody knows, so that nothing is final before its end.
        max_ahead: microseconds by which a row's time may be later than it is now; later ones are taken for wrong, and
            say nothing of how far the input has come.
        idle: seconds without rows after which nobody waits for a channel of which all is read; None: it is waited for.
        clock: seconds since 1970 by which it is now; None: nobody looks, and any time will do.
    """

    time: EventTime
    out_of_order: int | None = None
    max_ahead: int = 300 * _SECOND
    idle: float | None = None
    clock: Callable[[], float] | None = None

    def greatest(self, rows: pa.RecordBatch) -> int | None:
        """The greatest event time of some rows, in microseconds since 1970; None: none of them has one that may be."""
        times, has = self.time.of(rows)
        found = times if has is None else times[has]
        greatest = int(found.max()) if len(found) else None
        if greatest is None or self.clock is None:
            return greatest
        latest = int(self.clock() * _SECOND) + self.max_ahead
        return greatest if greatest <= latest else max(found[found <= latest].tolist(), default=None)
