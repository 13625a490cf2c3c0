"""Arrow types that Spark does not have, turned into those in which it reads such columns of Parquet."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from dpa.execution.keys import uuid_texts

_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def as_spark_has_it(table: pa.Table) -> pa.Table:
    """The table with unsigned integers as wider ones, UUIDs as text, and dates as days; other columns as they are."""
    return pa.table([_column(column) for column in table.columns], names=table.column_names)


def _column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if getattr(column.type, "extension_name", "") == "arrow.uuid":
        return pa.chunked_array([uuid_texts(chunk.storage) for chunk in column.chunks], pa.string())
    if pat.is_date64(column.type):
        return column.cast(pa.date32())
    return column.cast(_UNSIGNED.get(column.type, column.type))
