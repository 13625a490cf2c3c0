"""Generated inputs in Spark: the rows that mappers generate, generated once more by the workers of Spark's Python UDFs.

On a cluster those must be able to import dpa and the generator's module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.sources.generated import GeneratedTable
from dpa.spark._arrow import as_spark_has_it
from dpa.spark._errors import as_table_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITION_ROWS = 500_000
"""Rows that a task of Spark's generates."""

_BATCH_ROWS = 65_536
"""Rows handed to the JVM at a time."""


def generated_frame(spark: SparkSession, table: GeneratedTable) -> DataFrame:
    """A generated table as a DataFrame. Nothing is generated before Spark runs a query over it, and then every time.

    Raises:
        TableError: the generator cannot be pickled, or Spark has no counterpart of a column's type.
    """
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
