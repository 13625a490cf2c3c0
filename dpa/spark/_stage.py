"""The input as Parquet that mappers read without Spark: in place if it is that already, else written by Spark.

Nothing outlives the context managers here: staged files are removed when the block is left, for whatever reason.
What a process that was killed has staged on this machine is removed by the next one that stages in the same directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from dpa._util.owned import OwnedDirectory, sweep
from dpa._util.signals import interrupts_held
from dpa.errors import TableError
from dpa.sources.parquet import ParquetTable, parquet_table
from dpa.sources.paths import Location, locate, resolved
from dpa.spark import _leftovers
from dpa.spark._errors import as_table_error, quoted, tidying_up
from dpa.spark._sample import RowSample
from dpa.spark._session_state import SharedSetting
from dpa.spark._source import Source, load, reads_in_place, require_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PREFIX = "dpa-stage-"
_EXACT_TIMESTAMPS = SharedSetting("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS", default="INT96")
"""Has Parquet keep the time zone of timestamps, which Spark's default loses."""

_CANCEL_SECONDS = 0.2
"""How often to check for Ctrl-C, and to cancel again: Spark forgets a cancellation before the job's first task."""

_ROW_GROUP_ROWS = "parquet.block.row.count.limit"


@contextmanager
def input_table(
    spark: Callable[[], SparkSession],
    source: Source,
    sample: RowSample | None = None,
    *,
    split_rows: int = 1_000_000,
    stage_dir: str | None = None,
) -> Iterator[ParquetTable]:
    """Yield the input as Parquet, whose `splits` stay readable until the block is left.

    Args:
        spark: returns the session, and is called only if one is needed.
        source: what to read. Parquet without `select`, `where`, options or a sample is read in place.
        split_rows: most rows in one row group of a staged file, so that splits can be as small.
        stage_dir: where to stage, as in `staged`.

    Raises:
        TableError: the input cannot be read.
    """
    table = _in_place(source, sample)
    if table is not None:
        yield table
        return
    with as_table_error("the input"):
        frame = _valid_text(load(spark(), source, sample))
    what = f"staging {source.name} in {resolved(stage_dir or gettempdir(), '.')}"
    with staged(frame, stage_dir, row_group_rows=split_rows, what=what) as table:
        yield table


def _in_place(source: Source, sample: RowSample | None = None) -> ParquetTable | None:
    """The input, if it is read in place."""
    require_paths(source)
    if not reads_in_place(source, sample):
        return None
    return parquet_table(source.paths, glob=source.glob, recursive=source.recursive, exclude=source.exclude)


def _valid_text(frame: DataFrame) -> DataFrame:
    """The frame with what is not UTF-8 in its strings replaced by U+FFFD: Spark passes such bytes on, Python cannot."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    strings = [field.name for field in frame.schema if field.dataType == StringType()]
    return frame.withColumns({name: f.make_valid_utf8(quoted(name)) for name in strings})


@contextmanager
def staged(
    frame: DataFrame, stage_dir: str | None = None, *, row_group_rows: int = 1_000_000, what: str = "staging the input"
) -> Iterator[ParquetTable]:
    """Have Spark write a DataFrame as Parquet into a new directory, yield it, and remove the directory.

    Args:
        stage_dir: an existing or new directory or URI, which Spark's executors and the mappers' machines share; the
            machine's temporary directory if None. The new directory is made inside it.
        row_group_rows: most rows in one row group.
        what: how a message about a failure begins.

    Raises:
        TableError: Spark cannot read, compute or write the rows.
    """
    with new_stage(stage_dir) as place:
        with as_table_error(what):
            _write(frame, place, row_group_rows)
        yield parquet_table([place.name])


@contextmanager
def new_stage(stage_dir: str | None) -> Iterator[Location]:
    """Yield the place of a new directory inside `stage_dir`, yet to be made, and remove it. If the block is left by an
    exception, tasks of Spark's may still write there, so it is removed once more when Spark has ended.

    Raises:
        TableError: nothing can be made in `stage_dir`.
    """
    ours, place = _new_place(stage_dir or gettempdir())
    _leftovers.add(ours)
    good = False
    try:
        yield place
        good = True
    finally:
        with interrupts_held():
            _leftovers.remove(ours, for_good=good)


def _new_place(stage_dir: str) -> tuple[_leftovers.Place, Location]:
    """A directory of our own inside another one, and where Spark is to write. On this machine it has an owner."""
    parent = locate(resolved(stage_dir, "."))
    if not isinstance(parent.filesystem, LocalFileSystem):
        place = parent.at(f"{parent.path.rstrip('/')}/{_PREFIX}{uuid.uuid4().hex}")
        return place, place
    try:
        sweep(Path(parent.path), _PREFIX)
        directory = OwnedDirectory.make(Path(parent.path), _PREFIX)
    except OSError as error:
        raise TableError(f"staging the input at {stage_dir}: {error}") from None
    return directory, parent.at(str(directory.path / "data"))


def uri_of(place: Location) -> str:
    """The name under which Spark finds a place, whatever file system is its default."""
    return place.name if "://" in place.name else Path(place.name).as_uri()


def _write(frame: DataFrame, place: Location, row_group_rows: int) -> None:
    """Write a DataFrame; if interrupted, cancel that and return only when Spark has stopped writing."""
    spark, tag = frame.sparkSession, f"{_PREFIX}{uuid.uuid4().hex}"
    context = spark.sparkContext

    def write() -> None:
        context.addJobTag(tag)
        frame.write.option(_ROW_GROUP_ROWS, str(row_group_rows)).parquet(uri_of(place))

    with _EXACT_TIMESTAMPS.of(spark), ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            while not wait([writing], timeout=_CANCEL_SECONDS).done:
                pass  # not one long wait: some libraries resume it after a signal
            writing.result()
        except BaseException:
            with interrupts_held():
                while not writing.done():
                    with tidying_up():
                        context.cancelJobsWithTag(tag)
                    wait([writing], timeout=_CANCEL_SECONDS)
            raise


def schema_of(spark: Callable[[], SparkSession], source: Source) -> pa.Schema:
    """The input's columns, as the mappers will see them; neither reads nor stages rows.

    Raises:
        TableError: the input cannot be read.
    """
    table = _in_place(source)
    if table is not None:
        return table.schema
    with as_table_error("the input"):
        return load(spark(), source).limit(0).toArrow().schema
