"""The same by Spark's Structured Streaming, as its users would write it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from experiments.streaming.inputs import MICROS, Arrivals, Counted, EventFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.noDataProgressEventInterval": "1000000",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
"""As many partitions of states as processors; RocksDB is the store for many of them."""

_SCHEMA = "key STRING, value BIGINT, time TIMESTAMP"

_POLL_SECONDS = 0.05


def run_spark(
    spark: SparkSession,
    files: EventFiles,
    directory: Path,
    checkpoint: Path,
    *,
    batch_files: int | None = None,
    ready: Callable[[], None] | None = None,
) -> Counted:
    """Count the rows of a directory until all were read: those that are there, `batch_files` at a time; None:
    those that appear, as soon as they do. `ready` is called when it is watched."""
    arrivals = Arrivals()

    def note(batch: DataFrame, number: int) -> None:
        rows: pa.Table = batch.toArrow()
        if rows.num_rows:
            arrivals.note(rows)

    reader = spark.readStream.schema(_SCHEMA)
    if batch_files is not None:
        reader = reader.option("maxFilesPerTrigger", batch_files)
    rows = reader.parquet(str(directory))
    counted = _counted(rows, files)
    writer = counted.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint)).foreachBatch(note)
    at_once: dict[str, Any] = {"processingTime": "0 seconds"}
    query = writer.trigger(**(at_once if batch_files is None else {"availableNow": True})).start()
    try:
        if ready is not None:
            ready()
        _wait(query, files)
        batches = [(batch["numInputRows"], batch["batchDuration"] / 1000) for batch in query.recentProgress]
    finally:
        query.stop()
    read = [batch for batch in batches if batch[0]]
    timed = read[1:] or read
    rate = sum(rows for rows, _ in timed) / sum(seconds for _, seconds in timed)
    return Counted(rate, arrivals, {"batches": len(batches), "batch_seconds": [seconds for _, seconds in read]})


def _counted(rows: DataFrame, files: EventFiles) -> DataFrame:
    from pyspark.sql import functions as sql

    timed = rows.withWatermark("time", "0 seconds")
    windows = timed.groupBy(sql.window("time", f"{round(files.window_seconds * MICROS)} microseconds"), "key")
    return windows.count().select("key", sql.col("window.end").alias("window_end"), "count")


def _wait(query: StreamingQuery, files: EventFiles) -> None:
    """Until all rows were read, and the query has ended if it does so by itself."""
    read = 0
    while query.isActive and read < files.rows:
        time.sleep(_POLL_SECONDS)
        read = sum(batch["numInputRows"] for batch in query.recentProgress)
    error = query.exception()
    if error is not None:
        raise error
