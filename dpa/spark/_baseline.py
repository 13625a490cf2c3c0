"""The baseline that a run's skew is measured against: how Spark's shuffle would distribute the same records.

Spark itself computes where each key goes: `hash` is the Murmur3 of its hash partitioning. It is not re-implemented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpa.spark._errors import as_table_error
from dpa.spark._exchange import in_spark, is_small

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession


def spark_loads(
    spark: SparkSession,
    keys: pa.Array | pa.ChunkedArray,
    records: NDArray[np.int64],
    partitions: int,
    stage_dir: str | None = None,
) -> list[int]:
    """The records that each of `partitions` hash partitions gets if Spark shuffles by the key.

    Args:
        keys: the distinct keys, of the type that the key column has in Spark: an integer's width changes its hash. Of a
            composite key, a struct of its columns.
        records: how many records each key has.
        stage_dir: the directory through which many keys are handed to Spark, as in `staged`.

    Raises:
        TableError: Spark cannot hold keys of this type.
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
