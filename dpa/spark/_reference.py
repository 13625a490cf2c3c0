"""What Spark computes from a job's inputs: the reference, by a query or a function of DataFrames, and the baseline, how
Spark's shuffle would distribute the same records.

Spark chooses how, with its own partitioning and aggregation. Its `hash` is the Murmur3 of its hash partitioning, which
is not re-implemented here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from dpa.errors import TableError
from dpa.routing.keys import KeyName, names_of
from dpa.sources.columns import listed, require_columns
from dpa.spark._errors import as_table_error, spark_errors
from dpa.spark._exchange import fetched, in_spark, is_small
from dpa.spark._session import temporary_view

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

Frames: TypeAlias = "Mapping[str, DataFrame | pa.Table]"
"""The inputs of a job by name, in Spark or in memory."""

VIEW = "input"  # another name for a job's only input in a reference query

QUERY = "the reference query"


def check_reference(spark: SparkSession, frames: Frames, sql: str, key: KeyName) -> None:
    """Have Spark resolve a reference query against the inputs' columns, without computing anything. Raises TableError
    if the query is wrong, or its result lacks a column of the key (`()`: any will do)."""
    columns_only = {
        name: frame.schema.empty_table() if isinstance(frame, pa.Table) else frame for name, frame in frames.items()
    }
    with _all_in_spark(spark, columns_only) as given:
        asked = _resolved(spark, given, sql)
        with as_table_error(QUERY):
            columns = asked.columns
    require_columns(columns, names_of(key), f"the result of {QUERY}")


def compute(
    spark: SparkSession,
    frames: Frames,
    sql: str | None = None,
    function: Callable[..., DataFrame] | None = None,
    stage_dir: str | None = None,
) -> pa.Table:
    """Compute the reference of a job. Raises TableError if the query or function is wrong, fails, or gives no
    DataFrame, or Spark cannot take an input.

    Args:
        sql: a query over the inputs as views of their names; a single one is also the view `input`.
        function: instead of `sql`, a function from the inputs to the reference. It receives a single input as its one
            argument, several as keyword arguments.
        stage_dir: where large tables pass to and from Spark, as in `staged`.
    """
    with _all_in_spark(spark, frames, stage_dir) as given:
        if sql is not None and function is None:
            return fetched(_resolved(spark, given, sql), stage_dir, QUERY)
        if function is not None and sql is None:
            what = f"the reference function {getattr(function, '__qualname__', repr(function))}"
            return fetched(_called(spark, function, given, what), stage_dir, what)
    raise TableError("a reference is computed by `sql` or by `function`: give one of them")


@contextmanager
def _all_in_spark(spark: SparkSession, frames: Frames, stage_dir: str | None = None) -> Iterator[dict[str, DataFrame]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(in_spark(spark, frame, stage_dir, f"the table `{name}` in memory"))
            for name, frame in frames.items()
        }


def _resolved(spark: SparkSession, given: Mapping[str, DataFrame], sql: str) -> DataFrame:
    also = [VIEW] if len(given) == 1 and VIEW not in map(str.lower, given) else []  # names of views have no case
    columns = []
    with ExitStack() as views:
        for name, frame in given.items():
            names = [*also, name]
            with as_table_error(QUERY):
                columns.append(f"of {' and '.join(f'`{each}`' for each in names)} are {listed(frame.columns)}")
            for each in names:
                views.enter_context(temporary_view(frame, each))
        with as_table_error(QUERY, f"the columns {'; '.join(columns)}"):
            return spark.sql(sql)


def _called(
    spark: SparkSession, function: Callable[..., DataFrame], given: Mapping[str, DataFrame], what: str
) -> DataFrame:
    with as_table_error(what):
        try:
            made = function(**given) if len(given) > 1 else function(*given.values())
        except Exception as error:
            _ = spark.version  # fails as well if Spark has died, whatever the function made of that
            if isinstance(error, spark_errors()):
                raise
            raise TableError(f"{what} raised {type(error).__name__}: {error}") from error
    if not hasattr(made, "toArrow"):
        raise TableError(f"{what} must return a DataFrame, not {type(made).__name__}")
    return made


def spark_loads(
    spark: SparkSession,
    keys: pa.Array | pa.ChunkedArray,
    records: NDArray[np.int64],
    partitions: int,
    stage_dir: str | None = None,
) -> list[int]:
    """The records that each of `partitions` hash partitions gets if Spark shuffles by the key. Raises TableError if
    Spark cannot hold keys of this type.

    Args:
        keys: the distinct keys; a composite key as a struct. Their type must be the key column's in Spark: an integer's
            width changes its hash.
        records: the number of records of each key.
        stage_dir: where many keys pass to Spark, as in `staged`.
    """
    columns = keys.flatten() if pa.types.is_struct(keys.type) else [keys]
    named = {
        f"key{number}": column.cast(pa.string()) if pa.types.is_null(column.type) else column  # null hashes alike
        for number, column in enumerate(columns)
    }
    counts = pa.table({**named, "records": np.asarray(records, dtype=np.int64)})
    with in_spark(spark, counts, stage_dir) as frame, as_table_error("Spark's partition of each key"):
        placed = frame.selectExpr(f"pmod(hash({', '.join(named)}), {partitions}) AS partition", "records")
        if not is_small(counts):
            placed = placed.groupBy("partition").sum("records")
        found = placed.toArrow()
    loads = np.zeros(partitions, dtype=np.int64)
    np.add.at(loads, found.column(0).to_numpy(), found.column(1).to_numpy())
    return [int(load) for load in loads]
