"""The same by Spark's Structured Streaming, as its users would write it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor

from experiments.streaming.inputs import MICROS, Arrivals, EventFiles

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StatefulProcessorHandle, StreamingQuery

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
"""As many partitions of states as processors; RocksDB is the one store that states in Python may have."""

_SCHEMA = "key STRING, value BIGINT, time TIMESTAMP"

_POLL_SECONDS = 0.05


class WindowCount(StatefulProcessor):
    """Counts the rows of a key in a window, and gives the count when event time has passed its end."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._count = handle.getValueState("count", "count BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Count the rows of a micro-batch."""
        known = self._count.get()
        if known is None:
            self._handle.registerTimer(round(key[1].timestamp() * 1000))
        self._count.update(((0 if known is None else known[0]) + sum(len(frame) for frame in rows),))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Give the count."""
        import pandas as pd

        count = self._count.get()
        self._count.clear()
        yield pd.DataFrame({"key": [key[0]], "window_end": [key[1]], "count": [count[0]]})

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class SparkRun:
    """What a query gave: the rows that it read a second, and its micro-batches."""

    rate: float
    arrivals: Arrivals
    more: dict[str, Any]


def run_spark(
    spark: SparkSession,
    files: EventFiles,
    directory: Path,
    checkpoint: Path,
    *,
    in_python: bool = False,
    batch_files: int | None = None,
    ready: Callable[[], None] | None = None,
) -> SparkRun:
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
    counted = _in_python(rows, files) if in_python else _counted(rows, files)
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
    return SparkRun(rate, arrivals, {"batches": len(batches), "batch_seconds": [seconds for _, seconds in read]})


def _counted(rows: DataFrame, files: EventFiles) -> DataFrame:
    from pyspark.sql import functions as sql

    timed = rows.withWatermark("time", "0 seconds")
    windows = timed.groupBy(sql.window("time", f"{round(files.window_seconds * MICROS)} microseconds"), "key")
    return windows.count().select("key", sql.col("window.end").alias("window_end"), "count")


def _in_python(rows: DataFrame, files: EventFiles) -> DataFrame:
    from pyspark.sql import functions as sql

    window = sql.window("time", f"{round(files.window_seconds * MICROS)} microseconds")
    timed = rows.withWatermark("time", "0 seconds").withColumn("window_end", window.end)
    return timed.groupBy("key", "window_end").transformWithStateInPandas(
        statefulProcessor=WindowCount(),
        outputStructType="key STRING, window_end TIMESTAMP, count BIGINT",
        outputMode="append",
        timeMode="EventTime",
    )


def _wait(query: StreamingQuery, files: EventFiles) -> None:
    """Until all rows were read, and the query has ended if it does so by itself."""
    read = 0
    while query.isActive and read < files.rows:
        time.sleep(_POLL_SECONDS)
        read = sum(batch["numInputRows"] for batch in query.recentProgress)
    error = query.exception()
    if error is not None:
        raise error
