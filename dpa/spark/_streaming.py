"""A query of Structured Streaming whose micro-batches are staged once each, for tasks to read without Spark."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.sources.micro_batches import COMPLETE, ENDED, MicroBatches, place_of_batch
from dpa.sources.parquet import parquet_table
from dpa.sources.paths import Location, locate
from dpa.spark._errors import as_table_error, brief, tidying_up
from dpa.spark._source import csv_dialect, narrowed
from dpa.spark._stage import EXACT_TIMESTAMPS, ROW_GROUP_ROWS, Kept, new_stage, uri_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamSource:
    """A stream that Spark reads.

    Attributes:
        name: of the source, such as `rate`, `socket`, `kafka`, or a format of files.
        options: of the source.
        columns: in Spark's DDL, for sources that need them, such as files.
        select, where: as for a table.
        every: how often Spark makes a micro-batch, such as `1 second`.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    columns: str | None = None
    select: Sequence[str] = ()
    where: str | None = None
    every: str = "1 second"


def stream_schema(spark: SparkSession, source: StreamSource) -> pa.Schema:
    """The columns of a stream; reads nothing. Raises as `streamed`."""
    frame = _frame(spark, source)
    with as_table_error(f"the stream {source.name!r}"):
        return spark.createDataFrame([], frame.schema).toArrow().schema


def _frame(spark: SparkSession, source: StreamSource) -> DataFrame:
    with as_table_error(f"the stream {source.name!r}"):
        reader = spark.readStream.format(source.name).options(**{**csv_dialect(source.name), **source.options})
        frame = (reader if source.columns is None else reader.schema(source.columns)).load()
    return narrowed(frame, source.where, source.select)


@contextmanager
def streamed(
    spark: SparkSession, source: StreamSource, stage_dir: str | None, row_group_rows: int, kept: Kept | None = None
) -> Iterator[MicroBatches]:
    """Run a query during this block, and yield what it stages. Raises TableError if there is no such source, a column
    or expression is wrong, or the stream cannot be read.

    Args:
        stage_dir: where to stage, as in `staged`; all goes with the block.
        row_group_rows: most rows in a row group.
        kept: where staged batches stay instead, so that another process continues them: Spark from its own checkpoint
            there, with the same numbers of batches.
    """
    frame = _frame(spark, source)
    with new_stage(stage_dir) if kept is None else nullcontext(locate(kept.place)) as place:
        place.filesystem.create_dir(place.path, recursive=True)
        with as_table_error(f"staging the stream {source.name!r}"):
            schema = uri_of(place.below("_schema"))
            _write(spark.createDataFrame([], frame.schema), schema, row_group_rows)
            ended = place.below(ENDED)
            if ended.exists:
                ended.filesystem.delete_file(ended.path)
            query = _started(frame, source, place, row_group_rows)
        with _marking(query, ended):
            try:
                yield MicroBatches(place.name, parquet_table([f"{place.name}/_schema"]).schema)
            finally:
                with tidying_up():
                    query.stop()


def _started(frame: DataFrame, source: StreamSource, place: Location, row_group_rows: int) -> StreamingQuery:
    def stage(batch: DataFrame, number: int) -> None:
        """Spark repeats a batch that it does not know to be done, with the same number and the same rows."""
        there = locate(place_of_batch(place.name, number))
        if not there.below(COMPLETE).exists:
            _write(batch, uri_of(there), row_group_rows)

    writer = frame.writeStream.foreachBatch(stage).trigger(processingTime=source.every)
    return writer.option("checkpointLocation", uri_of(place.below("_spark"))).start()


def _write(frame: DataFrame, place: str, row_group_rows: int) -> None:
    with EXACT_TIMESTAMPS.of(frame.sparkSession):
        frame.write.mode("overwrite").option(ROW_GROUP_ROWS, str(row_group_rows)).parquet(place)


@contextmanager
def _marking(query: StreamingQuery, mark: Location) -> Iterator[None]:
    """Have a thread write a mark beside this block when the query has ended, with its failure: an exception in a thread
    would be lost. Once the block is left, no mark is written."""
    left = threading.Event()

    def run() -> None:
        why = ""
        try:
            query.awaitTermination()
        except Exception as error:
            why = f"the query of Structured Streaming has failed: {brief(str(error)) or type(error).__name__}"
        while not left.is_set():
            try:
                return _put(mark, why)
            except OSError as error:  # such as a full disk, which the end of the job mends
                _log.warning("the end of what is staged cannot be said at %s: %s", mark.name, error)
                left.wait(1.0)

    thread = threading.Thread(target=run, name="dpa-staged", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def _put(place: Location, text: str) -> None:
    """Write a small file atomically."""
    folder, _, name = place.path.rpartition("/")
    written = place.at(f"{folder}/.{name}")
    with written.filesystem.open_output_stream(written.path) as file:
        file.write(text.encode())
    place.filesystem.move(written.path, place.path)
