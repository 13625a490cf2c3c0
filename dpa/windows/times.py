"""The time of rows, as a column says it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.windows.assignment import LEAST, MOST, Times
from dpa.windows.options import MICROS, Unit

_DAY = 86_400_000_000
"""Microseconds."""

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
        down. What is of no year from 1 to 9999, such as microseconds taken for seconds, is no time.

        Raises:
            ExecutorError: there is no such column, or its values are no times.
        """
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

    def _numbers(self, column: pa.Array) -> tuple[npt.NDArray[Any], int]:
        """The column's numbers, 0 for null, and how many microseconds 1 is."""
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
