"""How far the time of an input has come: what a source promises of the order of its rows, or that their time is when
they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from dpa.errors import TableError
from dpa.windows.options import TimeOptions
from dpa.windows.times import EventTime

_SECOND = 1_000_000
"""Microseconds."""

_READ_AT = pa.timestamp("us", "UTC")
"""The type of the column with processing time."""


@dataclass(frozen=True)
class SourceTime:
    """The time of the rows of a source. Event time comes with them. Processing time is when they are read, which is
    said with each step of reading: never before the watermark of a cut behind which they are read, whatever clocks say,
    so such rows are never late.

    Attributes:
        time: which column has it.
        is_added: whether it is processing time, and the column is added to the rows; the rest is of event time.
        out_of_order: microseconds by which a row may be behind the latest one before it in its channel; None: 0 while
            the input is open, and of one that is closed nobody knows, so that nothing is final before its end.
        max_ahead: microseconds by which a row's time may be later than it is now; later ones are taken for wrong, and
            say nothing of how far the input has come.
        idle: seconds without rows after which nobody waits for a channel of which all is read; None: it is waited for.
        clock: seconds since 1970 by which it is now; None: nobody looks, and any time will do.
    """

    time: EventTime
    is_added: bool = False
    out_of_order: int | None = None
    max_ahead: int = 300 * _SECOND
    idle: float | None = None
    clock: Callable[[], float] | None = None

    def added_to(self, rows: pa.Schema) -> pa.Schema:
        """The columns of rows with the one that is added.

        Raises:
            TableError: they have one of that name.
        """
        name = self.time.column
        if name in rows.names:
            why = f"the input has a column {name!r}, and the time at which rows are read is added by that name"
            raise TableError(f"{why}: name another column in `time`, or set `by: event` if it is when they happened")
        return rows.append(pa.field(name, _READ_AT))

    def stamped(self, rows: pa.RecordBatch, at: int) -> pa.RecordBatch:
        """Rows that were read at a time, in microseconds since 1970, with it as their last column; raises as
        `added_to`."""
        times = pa.repeat(pa.scalar(at, _READ_AT), rows.num_rows)
        return pa.RecordBatch.from_arrays([*rows.columns, times], schema=self.added_to(rows.schema))

    def greatest(self, rows: pa.RecordBatch) -> int | None:
        """The greatest event time of some rows, in microseconds since 1970; None: none of them has one that may be."""
        times, has = self.time.of(rows)
        found = times if has is None else times[has]
        greatest = int(found.max()) if len(found) else None
        if greatest is None or self.clock is None:
            return greatest
        latest = int(self.clock() * _SECOND) + self.max_ahead
        return greatest if greatest <= latest else max(found[found <= latest].tolist(), default=None)


def processing_time(options: TimeOptions | None) -> SourceTime | None:
    """The time of an input whose rows have the time at which they are read; None: they have another, or none."""
    return SourceTime(EventTime(options.column), is_added=True) if options is not None and options.is_added else None
