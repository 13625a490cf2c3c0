"""The time of rows, as a column says it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpa.errors import ExecutorError
from dpa.windows.assignment import Times
from dpa.windows.options import MICROS, Unit

_NS = 1_000
"""Nanoseconds of a microsecond."""

_MOST = 2.0**63
"""The least number of microseconds that 64 bits do not hold."""


_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)


def since_1970(time: datetime) -> int:
    """Microseconds since 1970 of a time, one without a zone being UTC."""
    return (time.replace(tzinfo=time.tzinfo or timezone.utc) - _BEGINNING) // timedelta(microseconds=1)


@dataclass(frozen=True)
class EventTime:
    """Which column of rows has their time.

    Attributes:
        column: its name.
        unit: of a column of numbers.
        is_end: whether it is the end of the window whose result a row is: the row is of the last microsecond before it.
    """

    column: str
    unit: Unit | None = None
    is_end: bool = False

    def of(self, rows: pa.RecordBatch) -> tuple[Times, npt.NDArray[np.bool_] | None]:
        """The time of each row, and which rows have one; None: all have. Times between two microseconds are rounded
        down.

        Raises:
            ExecutorError: there is no such column, or its values are no times.
        """
        column = rows.column(self._found(rows.schema))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        has = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        if pa.types.is_null(column.type):
            return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=bool)
        if pa.types.is_floating(column.type) and self.unit is not None:
            return self._of_floats(column)
        times = self._integers(column if has is None else column.fill_null(pa.scalar(0).cast(column.type)))
        return (times - 1 if self.is_end else times), has

    def zone(self, rows: pa.Schema) -> str | None:
        """The time zone of the windows of such rows: none where their time is a timestamp without one.

        Raises:
            ExecutorError: there is no such column.
        """
        kind = rows.field(self._found(rows)).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return None if pa.types.is_timestamp(kind) and kind.tz is None else "UTC"

    def _found(self, schema: pa.Schema) -> str:
        if self.column not in schema.names:
            has = ", ".join(schema.names) or "none"
            raise ExecutorError(f"the rows have no time column {self.column!r} here: keep it; their columns are {has}")
        return self.column

    def _integers(self, column: pa.Array) -> Times:
        kind = column.type
        found: Times | None = None
        try:
            if pa.types.is_timestamp(kind) and kind.unit == "ns":
                found = column.cast(pa.int64()).to_numpy() // _NS
            elif pa.types.is_timestamp(kind):
                found = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_numpy()
            elif pa.types.is_date(kind):
                found = column.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
            elif pa.types.is_integer(kind) and self.unit is not None:
                found = pc.multiply_checked(column.cast(pa.int64()), MICROS[self.unit]).to_numpy()
        except pa.ArrowInvalid as error:
            raise ExecutorError(f"the time column {self.column!r}: {error}") from None
        if found is not None:
            return found
        wanted = "a timestamp or a date, or a number of the `unit` that `time` names"
        raise ExecutorError(f"the time column {self.column!r} is {kind}: it must be {wanted}")

    def _of_floats(self, column: pa.Array) -> tuple[Times, npt.NDArray[np.bool_] | None]:
        assert self.unit is not None
        exact = np.floor(column.cast(pa.float64()).to_numpy(zero_copy_only=False) * MICROS[self.unit])
        has = np.abs(exact) < _MOST  # not those that are null or NaN either
        return np.where(has, exact, 0.0).astype(np.int64), None if has.all() else has
