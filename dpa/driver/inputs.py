"""A job's inputs, opened for tasks that read them in place, from memory, generated, or staged by Spark, or only looked
at; and the one session of Spark that a job uses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pyarrow as pa

from dpa._util.inference import known, known_schema, no_rows
from dpa.config import InputConfig, JobConfig, JobFile
from dpa.config.inputs import StreamConfig
from dpa.driver._loading import SOURCES, made_of
from dpa.driver.spec import JobSpec
from dpa.errors import ExecutorError, JobFailedError, SparkLostError, TableError
from dpa.logical.columns import columns_read
from dpa.logical.step import Step
from dpa.runtime.standing import lent_jvm
from dpa.sources.feed import Feed, NumberedFeed, Until, all_splits, never, table_of
from dpa.sources.files import FileTable
from dpa.sources.first_records import first_records
from dpa.sources.foreign import ForeignFeed, PolledRows, Poller
from dpa.sources.generated import EndlessTable, GeneratedTable, Generator, ReadRate
from dpa.sources.memory import MemoryFeed, columns_of
from dpa.sources.micro_batches import MicroBatches
from dpa.sources.splits import Split, total_rows, whole
from dpa.spark import (
    Kept,
    RowSample,
    Source,
    StreamSource,
    as_table,
    frame_of,
    generated_frame,
    input_table,
    load,
    reads_in_place,
    sample_rows,
    schema_of,
    spark_session,
    stream_schema,
    streamed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLLED_SPLITS = 4  # splits of a generated input without end that a poll gives

F = TypeVar("F", bound=Any)


@dataclass(frozen=True)
class OpenedInput:
    """An input that is ready to be read.

    Attributes:
        splits: what mappers read; none if the input was only looked at.
        schema: its columns; None if they are not known, as it is an empty list.
        frame: returns the same rows as a DataFrame of Spark, or as a table in memory.
        sample: draws about as many rows at random as its argument says: fewer, but some, where a second argument says
            earlier that they are enough, which Spark does not ask. Returns the number of all rows, None if unknown, and
            those drawn. ConfigError if they cannot be read, JobFailedError if Spark has died.
        feed: of an input that is open, which is polled while the job runs; None: the splits are all.
        frame_of: of such an input, does for splits that polls have given as `frame` for all.
        widened: the columns that are read as another type than some files have, as `n to int64`.
        source: what tasks read, or would; None if Spark must stage it first.
    """

    splits: tuple[Split, ...]
    schema: pa.Schema | None
    frame: Callable[[], DataFrame | pa.Table]
    sample: Callable[..., tuple[int | None, pa.Table]]
    feed: Feed | None = None
    frame_of: Callable[[Sequence[Split]], DataFrame | pa.Table] | None = None
    widened: tuple[str, ...] = ()
    source: Feed | None = None

    @property
    def rows(self) -> int | None:
        """How many there are; None if more may come."""
        return None if self.feed is not None else total_rows(self.splits)

    def as_read(self, given: Sequence[Split]) -> OpenedInput:
        assert self.frame_of is not None
        return replace(self, splits=tuple(given), frame=cache(partial(self.frame_of, given)), feed=None)


class Inputs:
    """What a job reads, not yet opened."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec

    def check(self) -> None:
        """ConfigError if an input is missing, or one in memory lacks a column; others are not looked at."""
        known: dict[str, pa.Schema | None] = {}
        for source in self._spec.sources:
            key, given, _ = self._spec.input_of(source)
            if key not in self._spec.objects and given.format == "given":
                raise self._spec.file.error(key, "a table is given in Python alone; name a format")
            with blaming(self._spec.file, key):
                table = _in_memory(self._spec, source)
            known |= {} if table is None else {source.name: columns_of(table)}
        self._spec.compilation(known)

    def open(
        self,
        stack: ExitStack,
        spark: Callable[[], SparkSession] | None,
        *,
        stage: bool = True,
        kept: Callable[[str], Kept] | None = None,
    ) -> dict[str, OpenedInput]:
        """Open all inputs for as long as `stack` is open; returns them by the name of the step that reads each. `spark`
        starts a session when one is needed; None: there is none, and inputs have no splits. Without `stage`, only
        columns are looked at of inputs that would be staged. `kept`: where what is staged for a step stays; None: it
        goes with `stack`. ConfigError if an input cannot be read, or lacks a column, or the job is to end at some time
        though none is open; JobFailedError if Spark has died."""
        opened = {}
        for source in self._spec.sources:
            given = _Input(self._spec, source, kept and kept(source.name), looks=spark is None)
            opened[source.name] = given.open(stack, spark or _no_spark, stage and spark is not None)
        self._spec.compilation({name: found.schema for name, found in opened.items()})
        is_closed = all(found.feed is None for found in opened.values())
        if self._spec.config.until != Until() and is_closed and not self._spec.is_part:
            raise self._spec.file.error("until", "no input of the job is open, so it ends with its input: leave it out")
        return opened


def _first_records(source: Source) -> Feed | None:
    """What polars reads of files that Spark would load; None: it does not."""
    if source.select or source.where:
        return None
    where = {name: getattr(source, name) for name in ("glob", "recursive", "exclude")}
    return first_records(source.format, source.paths, source.options, **where)


def _no_spark() -> NoReturn:
    raise TableError(
        "Spark loads this input, and is not started to look at a step: give `read` some of its rows, or run the flow"
    )


def _in_memory(spec: JobSpec, source: Step) -> pa.Table | None:
    """The input of a step, if it is in memory. TableError if it is no table, ConfigError if it lacks a column."""
    key, given, _ = spec.input_of(source)
    if key in spec.objects:
        table = as_table(spec.objects[key])
    elif given.format == "records":
        table = as_table(given.records)
    else:
        return None
    if source.declared is None:
        return table
    if columns_of(table) is None:
        return source.declared.schema.empty_table()
    try:
        batches = table.combine_chunks().to_batches() or [no_rows(table.schema)]
        return pa.Table.from_batches([source.declared.conformed(batch, "the input") for batch in batches])
    except ExecutorError as error:
        raise spec.file.placed(error) from None


class _Input:
    def __init__(self, spec: JobSpec, source: Step, kept: Kept | None, *, looks: bool) -> None:
        self._spec = spec
        self._source = source
        self._kept = kept
        self._looks = looks
        self._key, self._given, self._drawn = spec.input_of(source)

    def open(self, stack: ExitStack, spark: Callable[[], SparkSession], stage: bool) -> OpenedInput:
        file = self._spec.file
        with blaming(file, self._key):
            opened = self._open(stack, spark, stage)

        def sample(max_rows: int, enough: Callable[[], bool] = never) -> tuple[int | None, pa.Table]:
            with blaming(file, self._key):
                rows, drawn = opened.sample(max_rows, enough)
                return rows, known(drawn)

        return replace(opened, sample=sample)

    def _open(self, stack: ExitStack, spark: Callable[[], SparkSession], stage: bool) -> OpenedInput:
        config, given = self._spec.config, self._given
        table = _in_memory(self._spec, self._source)
        # Objects come first: one that stands for an input is in memory, whatever format the file names.
        unsampled = given.unsampled if table is None else "in memory: sample it before"
        if self._drawn is not None and unsampled:
            raise self._spec.file.error(self._source.at("sample"), f"is Spark's, and this input is {unsampled}")
        if table is not None:
            return self._opened(MemoryFeed(table), lambda: table)
        given = given.as_found(str(self._spec.file.directory))
        if given.format == "generated":
            return self._generated(given, spark)
        if given.format == "feed":
            return self._foreign(given)
        if given.stream is not None:
            return self._streamed(stack, spark(), given, given.stream, stage)
        feed = given.feed(str(self._spec.file.directory), tolerates=self._source.on_error != "fail")
        if feed is not None:
            return self._open_feed(self._reading(feed), lambda splits: table_of([*map(whole, splits)], feed.schema))
        source = Source.of(given.model_dump(), base=str(self._spec.file.directory))
        drawn = None
        if self._drawn is not None:
            drawn = RowSample(self._drawn.fraction, self._drawn.by, config.seed)
        if self._looks and not reads_in_place(source):
            return self._opened(_first_records(source) or _no_spark(), _no_spark)
        if stage or reads_in_place(source, drawn):
            return self._as_table(stack, spark, source, drawn)
        frame = cache(lambda: load(spark(), source, drawn))
        return OpenedInput(
            (), schema_of(spark, source), frame, lambda rows, _=never: sample_rows(frame(), rows, config.seed)
        )

    def _as_table(
        self, stack: ExitStack, spark: Callable[[], SparkSession], source: Source, drawn: RowSample | None
    ) -> OpenedInput:
        """An input that tasks read in place, or as Spark has staged it."""
        config, split_rows = self._spec.config, self._spec.config.limits.split_rows
        to_stage = input_table(
            spark,
            source,
            drawn,
            split_rows=split_rows,
            stage_dir=config.spark.stage_dir,
            kept=self._kept,
            look=self._look,
        )
        table = stack.enter_context(to_stage)
        return self._opened(self._reading(table), cache(lambda: frame_of(spark(), table)))

    def _look(self, names: list[str]) -> None:
        """ConfigError if the input lacks a column that the job reads: staging it first may take long."""
        wanted, _ = columns_read(self._spec.steps, self._source.name)
        if not set(wanted or ()) <= set(names):
            known = dict.fromkeys(source.name for source in self._spec.sources)
            self._spec.compilation({**known, self._source.name: pa.schema([(name, pa.null()) for name in names])})

    def _reading(self, feed: F) -> F:
        """The feed, reading only columns that the job needs, and its keys as dictionaries, if it can."""
        names, (wanted, keys) = feed.schema.names, columns_read(self._spec.steps, self._source.name)
        known = {
            "columns": None if wanted is None else tuple(name for name in wanted if name in names),
            "dictionary": tuple(name for name in keys if name in names),
        }
        return replace(feed, **{each.name: known[each.name] for each in fields(feed) if each.name in known})

    def _generated(self, given: InputConfig, spark: Callable[[], SparkSession]) -> OpenedInput:
        """Each task reads at its share of the rate. Spark generates the same rows by itself."""
        config = self._spec.config
        seed = config.seed if given.seed is None else given.seed
        pace, tasks = None, self._source.tasks or 1
        if given.rate is not None:
            pace = ReadRate(given.rate / tasks)
        polled = _POLLED_SPLITS * config.limits.split_rows
        rows = min(polled, config.until.records or polled) if given.rows is None else given.rows
        table = GeneratedTable(made_of(self._spec.file, self._key, given, Generator), rows, seed, given.padding)
        if given.rows is None:
            return self._open_feed(
                EndlessTable(table, given.rate, time.monotonic),
                lambda splits: generated_frame(spark(), replace(table, rows=total_rows(splits))),
            )
        split_rows = max(1, -(-given.rows // tasks))  # something for every task
        return self._opened(replace(table, pace=pace), cache(lambda: generated_frame(spark(), table)), split_rows)

    def _foreign(self, given: InputConfig) -> OpenedInput:
        """A user's feed. A reference has its rows in memory."""
        made = made_of(self._spec.file, self._key, given, Feed, Poller, group=SOURCES)
        name, split_rows = str(given.use), self._spec.config.limits.split_rows
        feed = PolledRows(made, name) if isinstance(made, Poller) else ForeignFeed(made, name)
        if feed.is_open:
            return self._open_feed(feed, lambda splits: table_of(splits, feed.schema))
        return self._opened(feed, cache(lambda: table_of([*all_splits(feed, split_rows)], feed.schema)))

    def _streamed(
        self, stack: ExitStack, spark: SparkSession, given: InputConfig, asked: StreamConfig, stage: bool
    ) -> OpenedInput:
        """A query of Structured Streaming, whose micro-batches are staged. A reference has their rows in memory."""
        config, every = self._spec.config, f"{round(asked.every * 1000)} milliseconds"
        source = StreamSource(asked.source, given.options, asked.columns, given.select, given.where, every)
        if stage:
            rows, stage_dir = config.limits.split_rows, config.spark.stage_dir
            feed = stack.enter_context(streamed(spark, source, stage_dir, rows, self._kept))
        else:
            feed = MicroBatches("", stream_schema(spark, source))
        return self._open_feed(self._reading(feed), lambda splits: table_of([*map(whole, splits)], feed.schema))

    def _open_feed(self, feed: Feed, frame_of: Callable[[Sequence[Split]], DataFrame | pa.Table]) -> OpenedInput:
        """A feed that gives more while the job runs; `frame_of` makes a frame of what it has given."""

        def sample(max_rows: int, enough: Callable[[], bool] = never) -> tuple[None, pa.Table]:
            return None, feed.sample(max_rows, self._spec.config.seed, enough)

        polled = NumberedFeed(feed) if self._spec.tolerates else feed
        schema = None if feed.schema is None else known_schema(feed.schema)
        empty = pa.Table.from_batches([no_rows(schema or pa.schema([]))])
        return OpenedInput((), schema, lambda: empty, sample, polled, frame_of, source=feed)

    def _opened(
        self, feed: Feed, frame: Callable[[], DataFrame | pa.Table], split_rows: int | None = None
    ) -> OpenedInput:
        """A feed that is read whole. Splits have at most as many rows as the limits say, or as `split_rows` does."""
        config = self._spec.config
        schema, limits = feed.schema and known_schema(feed.schema), config.limits
        size = min(limits.split_rows, split_rows or limits.split_rows)
        # The fewer pieces a mapper folds, the fewer states it sends; enough are left that all mappers end together.
        if isinstance(feed, FileTable) and limits.split_records is None:
            size = min(2 * size, max(size, feed.rows // (4 * (self._source.tasks or 1))))
        splits = () if self._looks else tuple(all_splits(feed, size))

        def sample(max_rows: int, enough: Callable[[], bool] = never) -> tuple[int, pa.Table]:
            return total_rows(splits), feed.sample(max_rows, config.seed, enough)

        widened = feed.widened if isinstance(feed, FileTable) else ()
        return OpenedInput(splits, schema, frame, sample, widened=widened, source=feed)


def lazy_session(
    config: JobConfig, stack: ExitStack, first: Callable[[], object] | None = None
) -> Callable[[], SparkSession]:
    """A function that returns the one Spark session of `stack`, in any thread. Its first call starts that, after
    `first`; it ends when what `stack` has entered from now on has ended."""
    own, turn = stack.enter_context(ExitStack()), threading.Lock()

    @cache
    def started() -> SparkSession:
        if first is not None:
            first()
        return own.enter_context(spark_session(config.name, config.spark.master, config.spark.conf, lend=lent_jvm))

    def session() -> SparkSession:
        with turn:
            return started()

    return session


@contextmanager
def blaming(file: JobFile, key: str, lost: str | None = None) -> Iterator[None]:
    """Blame `key` for a table that cannot be read: ConfigError; or it, or `lost`, if Spark has died: JobFailedError."""
    try:
        yield
    except SparkLostError as error:
        raise JobFailedError(f"{lost or key}: {error}") from None
    except TableError as error:
        raise file.error(key, str(error)) from None
