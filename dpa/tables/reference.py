"""The reference: what Spark computes from the same input, by a query or by a function of DataFrames.

Spark chooses how, with its own partitioning and aggregation: nothing of dpa's is in it but the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.errors import TableError
from dpa.tables._errors import explained, listed, spark_errors
from dpa.tables._views import temporary_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "input"
"""The name of the input in a reference query."""


def compute(
    spark: SparkSession,
    frame: DataFrame | pa.Table,
    sql: str | None = None,
    function: Callable[[DataFrame], DataFrame] | None = None,
) -> pa.Table:
    """Compute the reference of an input.

    Args:
        frame: the input, in Spark or in memory.
        sql: a query over the view `input`.
        function: from the input to the reference, instead of `sql`.

    Raises:
        TableError: the query or function is wrong, fails, or gives no DataFrame.
    """
    given = in_spark(spark, frame)
    if sql is not None and function is None:
        with explained("the reference query", f"the columns of `{VIEW}` are {listed(given.columns)}"):
            with temporary_view(given, VIEW):
                asked = spark.sql(sql)
            return asked.toArrow()
    if function is not None and sql is None:
        name = getattr(function, "__qualname__", repr(function))
        with explained(f"the reference function {name}"):
            return _called(function, given, name).toArrow()
    raise TableError("a reference is computed by `sql` or by `function`: give one of them")


def in_spark(spark: SparkSession, frame: DataFrame | pa.Table) -> DataFrame:
    """A table in memory as a DataFrame; a DataFrame as it is.

    Raises:
        TableError: Spark has no counterpart of one of the table's types.
    """
    if not isinstance(frame, pa.Table):
        return frame
    with explained("handing the table in memory to Spark"):
        return spark.createDataFrame(frame)


def _called(function: Callable[[DataFrame], DataFrame], given: DataFrame, name: str) -> DataFrame:
    try:
        made = function(given)
    except spark_errors():
        raise
    except Exception as error:
        raise TableError(f"the reference function {name} raised {type(error).__name__}: {error}") from error
    if not hasattr(made, "toArrow"):
        raise TableError(f"the reference function {name} must return a DataFrame, not {type(made).__name__}")
    return made
