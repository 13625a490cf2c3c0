"""The time of rows by a column; the windows of an event; and how a key's sessions are joined."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.windows.options import MICROS, Unit, Windows

_DAY = 86_400_000_000  # microseconds

_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)

LEAST, MOST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and last microsecond since 1970 of the years 1 to 9999, the range of Python and Spark."""

Times = npt.NDArray[np.int64]
"""Microseconds since 1970."""


def since_1970(time: datetime) -> int:
    """Microseconds since 1970; a time without a zone is UTC."""
    return (time.replace(tzinfo=time.tzinfo or timezone.utc) - _BEGINNING) // timedelta(microseconds=1)


@dataclass(frozen=True)
class EventTime:
    """The column that has the time of rows.

    Attributes:
        column: its name.
        unit: of a column of numbers.
        is_end: whether it is the end of the window whose result a row is: the row is of the last microsecond before it.
    """

    column: str
    unit: Unit | None = None
    is_end: bool = False

    def of(self, rows: pa.RecordBatch) -> tuple[Times, npt.NDArray[np.bool_] | None]:
        """The time of each row, and which rows have one; None: all have. Fractions of microseconds are rounded down. A
        time outside the years 1 to 9999, such as microseconds read as seconds, is no time. Raises ExecutorError if
        there is no such column, or its values are no times."""
        column = rows.column(self._found(rows.schema))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_null(column.type):
            return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=bool)
        values, unit = self._numbers(column)
        has = (values >= -(-LEAST // unit)) & (values < MOST // unit + 1)  # NaN is neither
        if column.null_count:
            has &= column.is_valid().to_numpy(zero_copy_only=False)
        times = (values if has.all() else np.where(has, values, 0)).astype(np.int64) * unit
        return (times - 1 if self.is_end else times), None if has.all() else has

    def zone(self, rows: pa.Schema) -> str | None:
        """The time zone of these rows' windows; None if their time is a timestamp without zone. Raises ExecutorError if
        there is no such column."""
        kind = rows.field(self._found(rows)).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return None if pa.types.is_timestamp(kind) and kind.tz is None else "UTC"

    def _found(self, schema: pa.Schema) -> str:
        if self.column not in schema.names:
            has = ", ".join(schema.names) or "none"
            raise ExecutorError(f"the rows have no time column {self.column!r} here: keep it; their columns are {has}")
        return self.column

    def _numbers(self, column: pa.Array) -> tuple[npt.NDArray[Any], int]:
        """The column's numbers, 0 for null, and the microseconds of one unit."""
        kind = column.type
        if pa.types.is_timestamp(kind):
            numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
            return (numbers // 1_000, 1) if kind.unit == "ns" else (numbers, MICROS[kind.unit])
        if pa.types.is_date(kind):
            days = pa.types.is_date32(kind)
            return column.view(pa.int32() if days else pa.int64()).fill_null(0).to_numpy(), _DAY if days else 1_000
        if self.unit is not None and pa.types.is_floating(kind):
            with np.errstate(over="ignore"):
                return np.floor(column.cast(pa.float64()).fill_null(0).to_numpy() * MICROS[self.unit]), 1
        if self.unit is not None and pa.types.is_integer(kind):
            return column.cast(kind if kind == pa.uint64() else pa.int64()).fill_null(0).to_numpy(), MICROS[self.unit]
        wanted = "a timestamp or a date, or a number of the `unit` that `time` names"
        raise ExecutorError(f"the time column {self.column!r} is {kind}: it must be {wanted}")


class Assigned(NamedTuple):
    """Events in windows.

    Attributes:
        rows: the event of each of these; None: each is there once.
        starts: when its window begins.
    """

    rows: npt.NDArray[np.intp] | None
    starts: Times


def assigned(times: Times, windows: Windows) -> Assigned:
    """All windows of each event, the latest first; for sessions, the session of the event alone."""
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
    """Which events are in windows that start and end in the years 1 to 9999, shape (events,)."""
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
