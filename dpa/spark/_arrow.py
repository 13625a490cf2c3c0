"""Arrow tables on the way from Spark and to it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from dpa.execution.keys import uuid_texts
from dpa.sources import memory
from dpa.spark._errors import as_table_error

_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def as_table(data: Any) -> pa.Table:
    """Make an Arrow table of an input in memory: a Spark DataFrame, or what `dpa.sources.memory.as_table` accepts.

    Raises:
        TableError: it is none of these, Spark cannot compute it, two columns share a name, or a column mixes types.
    """
    if hasattr(data, "toArrow"):
        with as_table_error("the Spark DataFrame"):
            data = data.toArrow()
    return memory.as_table(data)


def as_spark_has_it(table: pa.Table) -> pa.Table:
    """The table in types that Spark has, as it reads such columns of Parquet: unsigned integers as wider ones, UUIDs as
    text, and dates as days; other columns as they are."""
    return pa.table([_column(column) for column in table.columns], names=table.column_names)


def _column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if getattr(column.type, "extension_name", "") == "arrow.uuid":
        return pa.chunked_array([uuid_texts(chunk.storage) for chunk in column.chunks], pa.string())
    if pat.is_date64(column.type):
        return column.cast(pa.date32())
    return column.cast(_UNSIGNED.get(column.type, column.type))
