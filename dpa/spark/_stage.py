"""The input as Parquet that mappers read without Spark: in place if it is Parquet, else written by Spark.

A job waits for the whole table, which can be counted and sampled fully. On the machine's own processors nothing is
gained if tasks read while Spark stages: both end later.

Staged files are removed when the block is left, for whatever reason, unless the caller keeps them. What a killed
process has staged on this machine is removed by the next one that stages in the same directory."""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyarrow import fs

from dpa._util.declared import schema_named
from dpa._util.owned import OwnedDirectory, sweep
from dpa._util.signals import interrupts_held
from dpa.errors import TableError
from dpa.sources.files import FileTable, file_table
from dpa.sources.ipc import ipc_file
from dpa.sources.lines import TextTable, text_table
from dpa.sources.micro_batches import COMPLETE
from dpa.sources.parquet import ParquetFile, parquet_file, parquet_table
from dpa.sources.paths import Location, for_hadoop, locate, resolved
from dpa.sources.scans import ScanFormat, scan_file, scanned
from dpa.spark import _session
from dpa.spark._errors import as_table_error, quoted, tidying_up
from dpa.spark._session import SharedSetting, has_session
from dpa.spark._source import RowSample, Source, load, reads_in_place, require_paths, text_in_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_PREFIX = "dpa-stage-"
EXACT_TIMESTAMPS = SharedSetting("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS", default="INT96")
"""Keeps the time zone of timestamps in Parquet, which Spark's default loses."""

_CANCEL_SECONDS = 0.2  # how often to cancel again: Spark forgets a cancellation before the job's first task

ROW_GROUP_ROWS = "parquet.block.row.count.limit"

_LOOK_SECONDS = 0.2  # how often to look for Ctrl-C
_SCANS_AT_A_TIME = 2  # files of lines to look through at once; a block of each is in memory


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
) -> Iterator[FileTable | TextTable]:
    """Yield the input as Parquet, or as text in place. Its splits stay readable until the block is left. Raises
    TableError if the input cannot be read.

    Args:
        spark: returns the session; called only if one is needed.
        source: Parquet and large text without `select`, `where`, options or a sample are read in place.
        split_rows: most rows in a row group of a staged file, so that splits can be that small.
        stage_dir: where to stage, as in `staged`.
        kept: where staged input stays; None: it goes with the block.
        look: receives the column names before anything is staged, and may raise.
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
    making = new_stage(stage_dir) if kept is None else _kept(locate(kept.place))
    with making as place:
        yield _staged(frame, place, split_rows, what)


@dataclass(frozen=True)
class Kept:
    """A place where staged input stays for another process; `is_there`: it has been staged before."""

    place: str
    is_there: bool

    def staged(self) -> FileTable:
        """What was staged there. Raises TableError if it is gone."""
        try:
            return parquet_table([self.place])
        except TableError as error:
            raise TableError(f"what was staged for the job before cannot be read again: {error}") from None


def _in_place(
    source: Source, sample: RowSample | None = None, stage_dir: str | None = None
) -> FileTable | TextTable | None:
    """The input if it is read in place. Text is not with a `stage_dir`: machines that see it may not see the text."""
    require_paths(source)
    if reads_in_place(source, sample):
        return _files(source)
    files = text_in_place(source, sample) if stage_dir is None else []
    return text_table(files) if files else None


def _files(source: Source) -> FileTable:
    given = {name: getattr(source, name) for name in ("glob", "recursive", "exclude")}
    given["allow_missing"] = source.allow_missing_columns
    if source.format not in ("csv", "json"):
        return file_table(ipc_file if source.format == "arrow" else parquet_file, source.paths, **given)
    declared = None if source.columns is None else schema_named(source.columns)
    look = functools.partial(scan_file, form=ScanFormat.of(source.format, source.options), declared=declared)
    return scanned(file_table(look, source.paths, **given, at_a_time=_SCANS_AT_A_TIME))


def frame_of(spark: SparkSession, table: FileTable | TextTable) -> DataFrame | pa.Table:
    if isinstance(table, TextTable):
        return _valid_text(load(spark, Source("text", [for_hadoop(path) for path in table.paths])))
    if any(not isinstance(file, ParquetFile) for file in table.files):
        return table.read()
    if len({file.schema.remove_metadata() for file in table.files}) == 1:
        return load(spark, Source("parquet", table.paths))
    return _united(spark, table)


def _united(spark: SparkSession, table: FileTable) -> DataFrame | pa.Table:
    """The rows of files that differ: Spark reads those of each schema by themselves, and their columns are cast. In
    memory where Spark has no counterpart of a type."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_type

    paths: dict[pa.Schema, list[str]] = {}
    for file in table.files:
        if sum(file.groups):
            paths.setdefault(file.schema.remove_metadata(), []).append(file.path)
    try:
        kinds = {each.name: from_arrow_type(each.type, prefer_timestamp_ntz=True) for each in table.united.known}
    except PySparkException:
        return table.read()
    frames = []
    for schema, some in paths.items():
        frame = load(spark, Source("parquet", [for_hadoop(path) for path in some]))
        has = {each.name for each in schema if not pa.types.is_null(each.type)}
        columns = {name: f.col(quoted(name)) if name in has else f.lit(None) for name in kinds}
        frames.append(frame.select([columns[name].cast(kind).alias(name) for name, kind in kinds.items()]))
    return functools.reduce(lambda one, other: one.union(other), frames)


def _valid_text(frame: DataFrame) -> DataFrame:
    """Replace what is not UTF-8 in strings by U+FFFD: Spark passes such bytes on, Python cannot."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    strings = [field.name for field in frame.schema if field.dataType == StringType()]
    return frame.withColumns({name: f.make_valid_utf8(quoted(name)) for name in strings})


@contextmanager
def staged(
    frame: DataFrame, stage_dir: str | None = None, *, row_group_rows: int = 1_000_000, what: str = "staging the input"
) -> Iterator[FileTable]:
    """Have Spark write a DataFrame as Parquet into a new directory, yield it, and remove the directory. Raises
    TableError if Spark cannot read, compute or write the rows.

    Args:
        stage_dir: a directory or URI that Spark's executors and the mappers' machines share, made if need be; None: the
            machine's temporary directory. The new directory is made inside it.
        row_group_rows: most rows in a row group.
        what: starts error messages.
    """
    with new_stage(stage_dir) as place:
        yield _staged(frame, place, row_group_rows, what)


def _staged(frame: DataFrame, place: Location, row_group_rows: int, what: str) -> FileTable:
    spark = frame.sparkSession

    def write() -> None:
        frame.write.option(ROW_GROUP_ROWS, str(row_group_rows)).parquet(uri_of(place))

    with EXACT_TIMESTAMPS.of(spark), beside(lambda: spark, write, what) as writing:
        while not wait([writing], timeout=_LOOK_SECONDS).done:  # some libraries resume one long wait after a signal
            pass
        writing.result()
    return parquet_table([place.name])


@contextmanager
def new_stage(stage_dir: str | None) -> Iterator[Location]:
    """Yield the place of a directory yet to be made inside `stage_dir`, and remove it. If the block fails, tasks of
    Spark's may still write there, so it is removed again when Spark has ended. Raises TableError if nothing can be made
    there."""
    ours, place = _new_place(stage_dir)
    _session.add_place(ours)
    good = False
    try:
        yield place
        good = True
    finally:
        with interrupts_held():
            _session.remove_place(ours, for_good=good)


@contextmanager
def _kept(place: Location) -> Iterator[Location]:
    """Yield a place, and remove it as `new_stage` does, unless Spark has staged everything."""
    _session.add_place(place)
    try:
        yield place
    finally:
        with interrupts_held():
            if place.below(COMPLETE).exists:
                _session.keep_place(place)
            else:
                _session.remove_place(place, for_good=False)


def _new_place(stage_dir: str | None) -> tuple[_session.Place, Location]:
    """A directory to remove, and where Spark shall write. On this machine it has an owner; in the temporary directory,
    which everybody can list, only that owner can enter it."""
    mode = 0o700 if stage_dir is None else 0o777
    stage_dir = stage_dir or gettempdir()
    parent = locate(resolved(stage_dir, "."))
    if not isinstance(parent.filesystem, fs.LocalFileSystem):
        place = parent.below(f"{_PREFIX}{uuid.uuid4().hex}")
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


@contextmanager
def beside(spark: Callable[[], SparkSession], work: Callable[[], T], what: str) -> Iterator[Future[T]]:
    """Have a thread work with Spark, which `spark` may start there, beside this block. A block that is left early
    cancels Spark's jobs of that thread, and waits until it has stopped. Spark's errors become TableErrors that start
    with `what`."""
    tags, is_left = [f"{_PREFIX}{uuid.uuid4().hex}"], threading.Event()
    if has_session():
        with as_table_error(what):
            tags += spark().sparkContext.getJobTags()  # whoever cancels the jobs of this thread cancels these too

    def tagged() -> T:
        context = spark().sparkContext
        if is_left.is_set():
            raise CancelledError
        with as_table_error(what):
            for each in tags:
                context.addJobTag(each)
            return work()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(tagged)
        try:
            yield working
        finally:
            with interrupts_held():
                is_left.set()
                while not working.done():
                    if has_session():
                        with tidying_up():
                            spark().sparkContext.cancelJobsWithTag(tags[0])
                    wait([working], timeout=_CANCEL_SECONDS)


def schema_of(spark: Callable[[], SparkSession], source: Source) -> pa.Schema:
    """The input's columns as mappers will see them; neither reads nor stages rows. Raises TableError."""
    table = _in_place(source)
    if table is not None:
        return table.schema
    with as_table_error("the input"):
        return load(spark(), source).limit(0).toArrow().schema
