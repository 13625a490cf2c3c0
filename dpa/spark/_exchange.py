"""Arrow tables handed to Spark and fetched from it through Parquet files, so that none has to fit into the heap of
Spark's driver. Without a file go small tables, tables with types that Parquet would change, and all tables where no
directory is known that this process shares with Spark's executors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.sources.paths import Location
from dpa.spark._arrow import as_spark_has_it
from dpa.spark._errors import as_table_error
from dpa.spark._stage import new_stage, staged, uri_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_SMALL_BYTES = 4 * 2**20
"""Tables up to this size are handed to Spark directly, which takes less time than a file only for small ones."""


@contextmanager
def in_spark(
    spark: SparkSession,
    table: DataFrame | pa.Table,
    stage_dir: str | None = None,
    name: str = "the table in memory",
) -> Iterator[DataFrame]:
    """Yield a table in memory as a DataFrame that can be used within the block; a DataFrame as it is.

    Args:
        stage_dir: the directory to which a large table is written, as in `staged`.
        name: what a message about a failure calls the table.

    Raises:
        TableError: Spark has no counterpart of one of the table's types.
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
    """Whether a table is handed to Spark without a file."""
    return bool(table.nbytes <= _SMALL_BYTES)


def _by_file(table: pa.Table, schema: StructType, spark: SparkSession, place: Location, what: str) -> DataFrame:
    place.filesystem.create_dir(place.path)
    file = place.at(f"{place.path}/part.parquet")
    pq.write_table(table, file.path, filesystem=file.filesystem)
    with as_table_error(what):
        return spark.read.schema(schema).parquet(uri_of(file))


def fetched(frame: DataFrame, stage_dir: str | None, what: str) -> pa.Table:
    """Compute a DataFrame and return its rows.

    Args:
        stage_dir: the directory to which Spark writes them, as in `staged`.
        what: how a message about a failure begins.

    Raises:
        TableError: Spark cannot compute the rows.
    """
    with as_table_error(what):
        names = frame.columns
        shared = _shares_files(frame.sparkSession, stage_dir)
        if not (shared and all(_written(field.dataType) for field in frame.schema)):
            return frame.toArrow()
        numbered = frame.toDF(*map(str, range(len(names))))  # in a file, names must differ by more than their case
    with staged(numbered, stage_dir, what=what) as table:
        return table.read().rename_columns(names)


def _shares_files(spark: SparkSession, stage_dir: str | None) -> bool:
    """Whether Spark's executors and this process see the files of `stage_dir`, or of the temporary directory."""
    return stage_dir is not None or str(spark.sparkContext.master).startswith("local")


def _read_back(kind: DataType) -> bool:
    """Whether Spark reads from a file of Arrow's what it would make of the table itself. (Timestamps it would move.)"""
    from pyspark.sql import types as t

    return _written(kind) and not isinstance(kind, t.TimestampType | t.TimestampNTZType) and not _parts(kind)


def _written(kind: DataType) -> bool:
    """Whether Spark writes values of a type such that Arrow reads the same; intervals and nulls of no type are not."""
    from pyspark.sql import types as t

    parts = _parts(kind)
    if parts:
        return all(_written(part) for part in parts)
    return isinstance(
        kind,
        t.BooleanType
        | t.IntegralType
        | t.FractionalType
        | t.StringType
        | t.BinaryType
        | t.DateType
        | t.TimestampType
        | t.TimestampNTZType,
    )


def _parts(kind: DataType) -> list[DataType]:
    """The types that a nested type is made of."""
    from pyspark.sql import types as t

    match kind:
        case t.ArrayType():
            return [kind.elementType]
        case t.MapType():
            return [kind.keyType, kind.valueType]
        case t.StructType():
            return [field.dataType for field in kind.fields]
    return []
