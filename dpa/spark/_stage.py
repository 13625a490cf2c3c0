"""The input as Parquet that mappers read without Spark: in place if it is Parquet, else written by Spark. What takes
long to write may be read meanwhile (`dpa.spark._hand_over`).

Staged files are removed when the block is left, for whatever reason, unless the caller keeps them. What a killed
process has staged on this machine is removed by the next one that stages in the same directory.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from dpa._util.owned import OwnedDirectory, sweep
from dpa._util.signals import interrupts_held
from dpa.errors import TableError
from dpa.sources.micro_batches import MicroBatches
from dpa.sources.parquet import ParquetTable, parquet_table
from dpa.sources.paths import Location, for_hadoop, locate, resolved
from dpa.sources.text import TextTable, text_table
from dpa.spark import _hand_over, _session_state
from dpa.spark._errors import as_table_error, quoted, tidying_up
from dpa.spark._session_state import SharedSetting
from dpa.spark._source import RowSample, Source, load, reads_in_place, require_paths, text_in_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PREFIX = "dpa-stage-"
EXACT_TIMESTAMPS = SharedSetting("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS", default="INT96")
"""Keeps the time zone of timestamps in Parquet, which Spark's default loses."""

_CANCEL_SECONDS = 0.2
"""How often to cancel again: Spark forgets a cancellation before the job's first task."""

ROW_GROUP_ROWS = "parquet.block.row.count.limit"

_BY_TASK = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}
"""Renames a task's file when the task is committed, not when the whole job is."""


@contextmanager
def input_table(
    spark: Callable[[], SparkSession],
    source: Source,
    sample: RowSample | None = None,
    *,
    split_rows: int = 1_000_000,
    stage_dir: str | None = None,
    kept: Kept | None = None,
    look: Callable[[list[str]], None] | None = None,
    early: bool = False,
) -> Iterator[ParquetTable | TextTable | MicroBatches]:
    """Yield the input as Parquet, or as text in place. Its splits stay readable until the block is left.

    Args:
        spark: returns the session; called only if one is needed.
        source: Parquet and large text without `select`, `where`, options or a sample are read in place.
        split_rows: most rows in a row group of a staged file, so that splits can be that small.
        stage_dir: where to stage, as in `staged`.
        kept: where staged input stays; None: it goes with the block.
        look: receives the column names before anything is staged, and may raise.
        early: yield a feed of committed files if staging takes long. Only a Spark on this machine alone never repeats a
            task, so others are waited for.

    Raises:
        TableError: the input cannot be read.
    """
    table = _in_place(source, sample, stage_dir)
    if table is not None:
        yield table
        return
    if kept is not None and kept.is_there:
        yield kept.staged()
        return
    with as_table_error("the input"):
        session = spark()
        frame = _valid_text(load(session, source, sample))
    if look is not None:
        look(frame.columns)
    what = f"staging {source.name} in {resolved(stage_dir or gettempdir(), '.')}"
    early = early and is_never_repeated(session.sparkContext.master or "")
    making = new_stage(stage_dir) if kept is None else _kept(locate(kept.place))
    with making as place, _staged(frame, place, split_rows, what, early=early) as found:
        yield found


@dataclass(frozen=True)
class Kept:
    """A place where staged input stays for another process; `is_there`: it has been staged before."""

    place: str
    is_there: bool

    def staged(self) -> ParquetTable | MicroBatches:
        """What was staged there; a feed if it was one. Raises TableError if it is gone, or not complete."""
        place = locate(self.place)
        try:
            return _hand_over.again(place) or parquet_table([self.place])
        except TableError as error:
            raise TableError(f"what was staged for the job before cannot be read again: {error}") from None

    @property
    def is_complete(self) -> bool:
        return _hand_over.is_complete(locate(self.place))


def _in_place(
    source: Source, sample: RowSample | None = None, stage_dir: str | None = None
) -> ParquetTable | TextTable | None:
    """The input if it is read in place. Text is not if there is a `stage_dir`: machines that see that may not see the
    text."""
    require_paths(source)
    if reads_in_place(source, sample):
        return parquet_table(source.paths, glob=source.glob, recursive=source.recursive, exclude=source.exclude)
    files = text_in_place(source, sample) if stage_dir is None else []
    return text_table(files) if files else None


def frame_of(spark: SparkSession, table: ParquetTable | TextTable) -> DataFrame:
    """The rows of a table that tasks read, as a DataFrame."""
    if isinstance(table, TextTable):
        return _valid_text(load(spark, Source("text", [for_hadoop(path) for path in table.paths])))
    return load(spark, Source("parquet", table.paths))


def _valid_text(frame: DataFrame) -> DataFrame:
    """Replace what is not UTF-8 in strings by U+FFFD: Spark passes such bytes on, Python cannot."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    strings = [field.name for field in frame.schema if field.dataType == StringType()]
    return frame.withColumns({name: f.make_valid_utf8(quoted(name)) for name in strings})


@contextmanager
def staged(
    frame: DataFrame,
    stage_dir: str | None = None,
    *,
    row_group_rows: int = 1_000_000,
    what: str = "staging the input",
) -> Iterator[ParquetTable]:
    """Have Spark write a DataFrame as Parquet into a new directory, yield it, and remove the directory.

    Args:
        stage_dir: a directory or URI that Spark's executors and the mappers' machines share, made if need be; None: the
            machine's temporary directory. The new directory is made inside it.
        row_group_rows: most rows in a row group.
        what: starts error messages.

    Raises:
        TableError: Spark cannot read, compute or write the rows.
    """
    with new_stage(stage_dir) as place, _staged(frame, place, row_group_rows, what) as table:
        assert isinstance(table, ParquetTable)
        yield table


@contextmanager
def _staged(
    frame: DataFrame, place: Location, row_group_rows: int, what: str, *, early: bool = False
) -> Iterator[ParquetTable | MicroBatches]:
    with _writing(frame, place, row_group_rows, early=early) as writing:
        with as_table_error(what):
            is_whole = _hand_over.is_whole(writing, place, wait_for_all=not early)
        if is_whole:
            yield parquet_table([place.name])
        else:
            with _hand_over.handed_over(writing, place, what) as feed:
                yield feed


@contextmanager
def new_stage(stage_dir: str | None) -> Iterator[Location]:
    """Yield the place of a directory yet to be made inside `stage_dir`, and remove it. If the block fails, tasks of
    Spark's may still write there, so it is removed again when Spark has ended. Raises TableError if nothing can be made
    there."""
    ours, place = _new_place(stage_dir)
    _session_state.add_place(ours)
    good = False
    try:
        yield place
        good = True
    finally:
        with interrupts_held():
            _session_state.remove_place(ours, for_good=good)


@contextmanager
def _kept(place: Location) -> Iterator[Location]:
    """Yield a place, and remove it as `new_stage` does, unless Spark has staged everything."""
    _session_state.add_place(place)
    try:
        yield place
    finally:
        with interrupts_held():
            if _hand_over.is_complete(place):
                _session_state.keep_place(place)
            else:
                _session_state.remove_place(place, for_good=False)


def _new_place(stage_dir: str | None) -> tuple[_session_state.Place, Location]:
    """A directory to remove, and where Spark shall write. On this machine it has an owner; in the temporary directory,
    which everybody can list, only that owner can enter it."""
    mode = 0o700 if stage_dir is None else 0o777
    stage_dir = stage_dir or gettempdir()
    parent = locate(resolved(stage_dir, "."))
    if not isinstance(parent.filesystem, LocalFileSystem):
        place = parent.at(f"{parent.path.rstrip('/')}/{_PREFIX}{uuid.uuid4().hex}")
        return place, place
    try:
        sweep(Path(parent.path), _PREFIX)
        directory = OwnedDirectory.make(Path(parent.path), _PREFIX, mode)
    except OSError as error:
        raise TableError(f"staging the input at {stage_dir}: {error}") from None
    return directory, parent.at(str(directory.path / "data"))


def uri_of(place: Location) -> str:
    """The name by which Spark finds a place, whatever its default file system."""
    return place.name if "://" in place.name else Path(place.name).as_uri()


def is_never_repeated(master: str) -> bool:
    """Whether a Spark with this master runs no task twice, so that a committed file never changes."""
    return re.fullmatch(r"local(\[[^,\]]*\])?", master) is not None


@contextmanager
def _writing(frame: DataFrame, place: Location, row_group_rows: int, *, early: bool) -> Iterator[Future[None]]:
    """Have Spark write a DataFrame beside this block. A block that is left early cancels it, and waits until Spark has
    stopped. `early`: each task commits its own file."""
    spark, tag = frame.sparkSession, f"{_PREFIX}{uuid.uuid4().hex}"
    context = spark.sparkContext
    options = {ROW_GROUP_ROWS: str(row_group_rows), **(_BY_TASK if early else {})}

    def write() -> None:
        context.addJobTag(tag)
        frame.write.options(**options).parquet(uri_of(place))

    with EXACT_TIMESTAMPS.of(spark), ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield writing
        finally:
            with interrupts_held():
                while not writing.done():
                    with tidying_up():
                        context.cancelJobsWithTag(tag)
                    wait([writing], timeout=_CANCEL_SECONDS)


def schema_of(spark: Callable[[], SparkSession], source: Source) -> pa.Schema:
    """The input's columns as mappers will see them; neither reads nor stages rows. Raises TableError."""
    table = _in_place(source)
    if table is not None:
        return table.schema
    with as_table_error("the input"):
        return load(spark(), source).limit(0).toArrow().schema
