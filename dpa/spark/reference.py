"""The reference: what Spark computes from the same input, by a query or by a function of DataFrames.

Spark chooses how, with its own partitioning and aggregation: nothing of dpa's is in it but the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.errors import TableError
from dpa.routing.keys import KeyName, names_of
from dpa.sources.columns import listed, require_columns
from dpa.spark._errors import as_table_error, spark_errors
from dpa.spark._views import temporary_view
from dpa.spark.exchange import fetched, in_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "input"
"""The name of the input in a reference query."""

_QUERY = "the reference query"


def check_reference(spark: SparkSession, frame: DataFrame | pa.Table, sql: str, key: KeyName) -> None:
    """Have Spark resolve a reference query against the columns of an input; nothing is computed.

    Raises:
        TableError: the query is wrong, or its result lacks a column of the key.
    """
    with in_spark(spark, frame.schema.empty_table() if isinstance(frame, pa.Table) else frame) as given:
        asked = _resolved(given, sql)
        with as_table_error(_QUERY):
            columns = asked.columns
    require_columns(columns, names_of(key), f"the result of {_QUERY}")


def compute(
    spark: SparkSession,
    frame: DataFrame | pa.Table,
    sql: str | None = None,
    function: Callable[[DataFrame], DataFrame] | None = None,
    stage_dir: str | None = None,
) -> pa.Table:
    """Compute the reference of an input.

    Args:
        frame: the input, in Spark or in memory.
        sql: a query over the view `input`.
        function: from the input to the reference, instead of `sql`.
        stage_dir: the directory through which large tables are exchanged with Spark, as in `staged`.

    Raises:
        TableError: the query or function is wrong, fails, or gives no DataFrame.
    """
    with in_spark(spark, frame, stage_dir) as given:
        if sql is not None and function is None:
            return fetched(_resolved(given, sql), stage_dir, _QUERY)
        if function is not None and sql is None:
            what = f"the reference function {getattr(function, '__qualname__', repr(function))}"
            return fetched(_called(function, given, what), stage_dir, what)
    raise TableError("a reference is computed by `sql` or by `function`: give one of them")


def _resolved(given: DataFrame, sql: str) -> DataFrame:
    with as_table_error(_QUERY):
        columns = given.columns
    with as_table_error(_QUERY, f"the columns of `{VIEW}` are {listed(columns)}"), temporary_view(given, VIEW):
        return given.sparkSession.sql(sql)


def _called(function: Callable[[DataFrame], DataFrame], given: DataFrame, what: str) -> DataFrame:
    with as_table_error(what):
        try:
            made = function(given)
        except Exception as error:
            _ = given.sparkSession.version  # fails as well if Spark has died, whatever the function made of that
            if isinstance(error, spark_errors()):
                raise
            raise TableError(f"{what} raised {type(error).__name__}: {error}") from error
    if not hasattr(made, "toArrow"):
        raise TableError(f"{what} must return a DataFrame, not {type(made).__name__}")
    return made
