"""Arrow tables handed to Spark, fetched from it, or generated in it.

Large tables travel through Parquet files, so that none has to fit the heap of Spark's driver. Small tables, types that
Parquet would change, and clusters that share no directory with this process go without."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from dpa.execution.keys import uuid_texts
from dpa.sources import memory
from dpa.sources.generated import GeneratedTable
from dpa.sources.paths import Location
from dpa.spark._errors import as_table_error
from dpa.spark._stage import new_stage, staged, uri_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_SMALL_BYTES = 4 * 2**20  # up to this size, handing a table over directly is faster than by file

_PARTITION_ROWS = 500_000

_BATCH_ROWS = 65_536

_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


@contextmanager
def in_spark(
    spark: SparkSession, table: DataFrame | pa.Table, stage_dir: str | None = None, name: str = "the table in memory"
) -> Iterator[DataFrame]:
    """Yield a table as a DataFrame for this block; a DataFrame as it is. Raises TableError if Spark has no counterpart
    of a column's type.

    Args:
        stage_dir: where to write a large table, as in `staged`.
        name: the table's name in error messages.
    """
    if not isinstance(table, pa.Table):
        yield table
        return
    what = f"handing {name} to Spark"
    table = as_spark_has_it(table)
    small = is_small(table)
    with as_table_error(what):
        frame = spark.createDataFrame(table if small else table.schema.empty_table())
    if small:
        yield frame
    elif _shares_files(spark, stage_dir) and all(_read_back(field.dataType) for field in frame.schema):
        with new_stage(stage_dir) as place:
            yield _by_file(table, frame.schema, spark, place, what)
    else:
        with as_table_error(what):
            frame = spark.createDataFrame(table)
        yield frame


def is_small(table: pa.Table) -> bool:
    return bool(table.nbytes <= _SMALL_BYTES)


def _by_file(table: pa.Table, schema: StructType, spark: SparkSession, place: Location, what: str) -> DataFrame:
    place.filesystem.create_dir(place.path)
    file = place.below("part.parquet")
    pq.write_table(table, file.path, filesystem=file.filesystem)
    with as_table_error(what):
        return spark.read.schema(schema).parquet(uri_of(file))


def fetched(frame: DataFrame, stage_dir: str | None, what: str) -> pa.Table:
    """Compute a DataFrame and return its rows. Raises TableError, with `what` in front, if Spark cannot. Spark writes
    the rows to `stage_dir`, as in `staged`."""
    with as_table_error(what):
        names = frame.columns
        shared = _shares_files(frame.sparkSession, stage_dir)
        if not (shared and all(_written(field.dataType) for field in frame.schema)):
            return frame.toArrow()
        numbered = frame.toDF(*map(str, range(len(names))))  # in a file, names must differ by more than their case
    with staged(numbered, stage_dir, what=what) as table:
        return table.read().rename_columns(names)


def _shares_files(spark: SparkSession, stage_dir: str | None) -> bool:
    """Whether Spark's executors see what this process writes to `stage_dir`, or to the temporary directory."""
    return stage_dir is not None or str(spark.sparkContext.master).startswith("local")


def _read_back(kind: DataType) -> bool:
    """Whether Spark reads from Arrow's file what it would make of the table. It would move timestamps."""
    from pyspark.sql import types as t

    others = t.TimestampType | t.TimestampNTZType | t.ArrayType | t.MapType | t.StructType
    return _written(kind) and not isinstance(kind, others)


def _written(kind: DataType) -> bool:
    """Whether Arrow reads what Spark writes: not intervals, and nulls of no type."""
    from pyspark.sql import types as t

    match kind:
        case t.ArrayType():
            return _written(kind.elementType)
        case t.MapType():
            return _written(kind.keyType) and _written(kind.valueType)
        case t.StructType():
            return all(_written(field.dataType) for field in kind.fields)
    numbers, times = t.IntegralType | t.FractionalType, t.DateType | t.TimestampType | t.TimestampNTZType
    return isinstance(kind, numbers | times | t.BooleanType | t.StringType | t.BinaryType)


def generated_frame(spark: SparkSession, table: GeneratedTable) -> DataFrame:
    """A generated table as a DataFrame. Spark's Python workers generate the rows in each query over it, so on a cluster
    they must be able to import dpa and the generator's module. Raises TableError if the generator cannot be pickled, or
    Spark has no counterpart of a column's type."""
    splits, paths = table.splits(_PARTITION_ROWS), [path for path in sys.path if path]

    def rows(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sys.path += [path for path in paths if path not in sys.path]
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                for part in splits[number].batches(_BATCH_ROWS):
                    yield from as_spark_has_it(pa.Table.from_batches([part])).to_batches()

    with as_table_error("the generated input"):
        schema = spark.createDataFrame(as_spark_has_it(table.schema.empty_table())).schema
        numbers = spark.range(0, len(splits), numPartitions=max(len(splits), 1))
        return numbers.mapInArrow(rows, schema)


def as_table(data: Any) -> pa.Table:
    """Make an Arrow table of a Spark DataFrame, or of anything that `dpa.sources.memory.as_table` accepts. Raises
    TableError if it is neither, Spark cannot compute it, two columns share a name, or a column mixes types."""
    if hasattr(data, "toArrow"):
        with as_table_error("the Spark DataFrame"):
            data = data.toArrow()
    return memory.as_table(data)


def as_spark_has_it(table: pa.Table) -> pa.Table:
    """A table with the types that Spark reads from Parquet: wider integers, text for UUIDs, days for dates."""
    return pa.table([_column(column) for column in table.columns], names=table.column_names)


def _column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if getattr(column.type, "extension_name", "") == "arrow.uuid":
        return pa.chunked_array([uuid_texts(chunk.storage) for chunk in column.chunks], pa.string())
    if pat.is_date64(column.type):
        return column.cast(pa.date32())
    return column.cast(_UNSIGNED.get(column.type, column.type))
