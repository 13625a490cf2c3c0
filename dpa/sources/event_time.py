"""Time of a source's rows: event time that comes with them, in the order that the source promises, or the time at which
they are read."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from dpa.errors import TableError
from dpa.windows.options import TimeOptions
from dpa.windows.times import EventTime

_SECOND = 1_000_000

_READ_AT = pa.timestamp("us", "UTC")  # the type of the processing-time column


@dataclass(frozen=True)
class SourceTime:
    """The time of a source's rows. Processing time is when they are read, stamped at each step of reading. It is never
    before the watermark of the cut that they follow, even if clocks differ, so such rows are never late.

    Attributes:
        time: which column has it.
        is_added: whether it is processing time, whose column is added. The attributes below are for event time.
        out_of_order: microseconds by which a row may be older than one before it in its channel. None: 0 while the
            input is open; a closed input promises nothing, so nothing is final before its end.
        max_ahead: microseconds by which a row's time may be ahead of the clock; later ones are taken for errors and do
            not advance the watermark.
        idle: seconds without rows after which a channel that is read to its end holds nothing back; None: it always
            does.
        clock: seconds since 1970; None: any time will do.
    """

    time: EventTime
    is_added: bool = False
    out_of_order: int | None = None
    max_ahead: int = 300 * _SECOND
    idle: float | None = None
    clock: Callable[[], float] | None = None

    def added_to(self, rows: pa.Schema) -> pa.Schema:
        """The schema with the added column. Raises TableError if it has a column of that name."""
        name = self.time.column
        if name in rows.names:
            why = f"the input has a column {name!r}, and the time at which rows are read is added by that name"
            raise TableError(f"{why}: name another column in `time`, or set `by: event` if it is when they happened")
        return rows.append(pa.field(name, _READ_AT))

    def stamped(self, rows: pa.RecordBatch, at: int) -> pa.RecordBatch:
        """Append a time, in microseconds since 1970, as the rows' last column; raises as `added_to`."""
        times = pa.repeat(pa.scalar(at, _READ_AT), rows.num_rows)
        return pa.RecordBatch.from_arrays([*rows.columns, times], schema=self.added_to(rows.schema))

    def greatest(self, rows: pa.RecordBatch) -> int | None:
        """The greatest credible event time of some rows, in microseconds since 1970; None if there is none."""
        times, has = self.time.of(rows)
        found = times if has is None else times[has]
        greatest = int(found.max()) if len(found) else None
        if greatest is None or self.clock is None:
            return greatest
        latest = int(self.clock() * _SECOND) + self.max_ahead
        return greatest if greatest <= latest else max(found[found <= latest].tolist(), default=None)


def processing_time(options: TimeOptions | None) -> SourceTime | None:
    """The time of an input whose rows get the time at which they are read; None for other inputs."""
    return SourceTime(EventTime(options.column), is_added=True) if options is not None and options.is_added else None
