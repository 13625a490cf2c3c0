"""The input as Parquet that mappers read without Spark: in place if it is that already, else written by Spark; what
takes long to write may be read meanwhile, as `dpa.spark._hand_over` has it.

Nothing outlives the context managers here, unless it is asked for: staged files are removed when the block is left, for
whatever reason.
What a process that was killed has staged on this machine is removed by the next one that stages in the same directory.
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
from dpa.spark import _hand_over, _leftovers
from dpa.spark._errors import as_table_error, quoted, tidying_up
from dpa.spark._sample import RowSample
from dpa.spark._session_state import SharedSetting
from dpa.spark._source import Source, load, reads_in_place, require_paths, text_in_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PREFIX = "dpa-stage-"
EXACT_TIMESTAMPS = SharedSetting("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS", default="INT96")
"""Has Parquet keep the time zone of timestamps, which Spark's default loses."""

_CANCEL_SECONDS = 0.2
"""How often to cancel again: Spark forgets a cancellation before the job's first task."""

ROW_GROUP_ROWS = "parquet.block.row.count.limit"

_BY_TASK = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}
"""Has a task's file renamed when the task is committed, and not when the whole job is."""


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
    """Yield the input as Parquet, or as text that is read in place, whose splits stay readable until the block is left.

    Args:
        spark: returns the session, and is called only if one is needed.
        source: what to read. Parquet and large text without `select`, `where`, options or a sample are read in place.
        split_rows: most rows in one row group of a staged file, so that splits can be as small.
        stage_dir: where to stage, as in `staged`.
        kept: a place for what is staged to stay at; None: it goes with the block.
        look: gets the names of the columns before anything is staged, and may raise what is wrong with them.
        early: whether to yield what takes long to stage as a feed, of the files that Spark has committed. That needs a
            Spark in this machine alone, which never repeats a task.

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
    with _place(stage_dir, kept) as place, _staged(frame, place, split_rows, what, early=early) as found:
        yield found


@dataclass(frozen=True)
class Kept:
    """A place where staged input stays, for another process to go on with; `is_there`: it has been staged before."""

    place: str
    is_there: bool

    def staged(self) -> ParquetTable | MicroBatches:
        """What was staged there; a feed, if it was one.

        Raises:
            TableError: it is gone, or was not complete.
        """
        place = locate(self.place)
        try:
            return _hand_over.again(place) or parquet_table([self.place])
        except TableError as error:
            raise TableError(f"what was staged for the job before cannot be read again: {error}") from None

    @property
    def is_complete(self) -> bool:
        """Whether another process can go on with what is there."""
        return _hand_over.is_complete(locate(self.place))


def _in_place(
    source: Source, sample: RowSample | None = None, stage_dir: str | None = None
) -> ParquetTable | TextTable | None:
    """The input, if it is read in place. Text is not where there is a `stage_dir`: who sees that may not see it."""
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
    """The frame with what is not UTF-8 in its strings replaced by U+FFFD: Spark passes such bytes on, Python cannot."""
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
    kept: Kept | None = None,
) -> Iterator[ParquetTable]:
    """Have Spark write a DataFrame as Parquet into a new directory, yield it, and remove the directory.

    Args:
        stage_dir: an existing or new directory or URI, which Spark's executors and the mappers' machines share; the
            machine's temporary directory if None. The new directory is made inside it.
        row_group_rows: most rows in one row group.
        what: how a message about a failure begins.
        kept: a directory to be made in place of that, which is not removed once it is written.

    Raises:
        TableError: Spark cannot read, compute or write the rows.
    """
    with new_stage(stage_dir) as place, _staged(frame, place, row_group_rows, what) as table:
        assert isinstance(table, ParquetTable)
        yield table


@contextmanager
def _place(stage_dir: str | None, kept: Kept | None) -> Iterator[Location]:
    """Where to stage: a place that stays once all is staged, or one that goes with the block."""
    with new_stage(stage_dir) if kept is None else _kept(locate(kept.place)) as place:
        yield place


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
    """Yield the place of a new directory inside `stage_dir`, yet to be made, and remove it. If the block is left by an
    exception, tasks of Spark's may still write there, so it is removed once more when Spark has ended.

    Raises:
        TableError: nothing can be made in `stage_dir`.
    """
    ours, place = _new_place(stage_dir)
    _leftovers.add(ours)
    good = False
    try:
        yield place
        good = True
    finally:
        with interrupts_held():
            _leftovers.remove(ours, for_good=good)


@contextmanager
def _kept(place: Location) -> Iterator[Location]:
    """Remove a place, as `new_stage` does, if the block is left before Spark has staged all."""
    _leftovers.add(place)
    try:
        yield place
    finally:
        with interrupts_held():
            if _hand_over.is_complete(place):
                _leftovers.keep(place)
            else:
                _leftovers.remove(place, for_good=False)


def _new_place(stage_dir: str | None) -> tuple[_leftovers.Place, Location]:
    """A directory of our own inside another one, and where Spark is to write. On this machine it has an owner; in the
    temporary directory, where everybody can look, nobody else can enter it."""
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
    """The name under which Spark finds a place, whatever file system is its default."""
    return place.name if "://" in place.name else Path(place.name).as_uri()


def is_never_repeated(master: str) -> bool:
    """Whether a Spark with such a master runs no task twice: what one has committed is never written again."""
    return re.fullmatch(r"local(\[[^,\]]*\])?", master) is not None


@contextmanager
def _writing(frame: DataFrame, place: Location, row_group_rows: int, *, early: bool) -> Iterator[Future[None]]:
    """Have Spark write a DataFrame beside the block; if that is left before, cancel it, and return only when Spark has
    stopped writing. `early`: each file comes to its place with the task that has written it."""
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
    """The input's columns, as the mappers will see them; neither reads nor stages rows.

    Raises:
        TableError: the input cannot be read.
    """
    table = _in_place(source)
    if table is not None:
        return table.schema
    with as_table_error("the input"):
        return load(spark(), source).limit(0).toArrow().schema
