"""A job's inputs: tables in memory, or what the job file names; opened for the tasks that read them in place, from
memory, generated, or staged by Spark, or only looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from dpa.config import InputConfig, JobConfig, JobFile
from dpa.driver._loading import feed_of, generator_of
from dpa.driver.spec import JobSpec
from dpa.errors import ExecutorError, JobFailedError, SparkLostError, TableError
from dpa.logical.columns import columns_read
from dpa.logical.step import Step
from dpa.sources.feed import Feed, all_splits, never, table_of
from dpa.sources.generated import GeneratedTable, ReadRate
from dpa.sources.memory import MemoryFeed, columns_of
from dpa.sources.splits import Split, total_rows
from dpa.spark import (
    RowSample,
    Source,
    as_table,
    generated_frame,
    input_table,
    load,
    reads_in_place,
    sample_rows,
    schema_of,
    spark_session,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Draw(Protocol):
    """Draws rows of an input at random."""

    def __call__(self, max_rows: int, enough: Callable[[], bool] = ..., /) -> tuple[int | None, pa.Table]:
        """The number of all rows, or None if it is unknown, and about `max_rows` of them: fewer, though some, where
        `enough` says so earlier. Spark does not ask it.

        Raises:
            ConfigError: they cannot be read.
            JobFailedError: Spark has died.
        """


@dataclass(frozen=True)
class OpenedInput:
    """An input that is ready to be read.

    Attributes:
        splits: what mappers read; none if the input was only looked at.
        schema: its columns; None if they are not known, as it is an empty list.
        frame: returns the same rows as a DataFrame of Spark, or as a table in memory.
        sample: draws some of the rows.
    """

    splits: tuple[Split, ...]
    schema: pa.Schema | None
    frame: Callable[[], DataFrame | pa.Table]
    sample: Draw


class Inputs:
    """What a job reads, not yet opened."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec

    def check(self) -> None:
        """Check that there are inputs at all, and the columns of those in memory; others are not looked at.

        Raises:
            ConfigError: one is missing, or lacks a column.
        """
        known: dict[str, pa.Schema | None] = {}
        for source in self._spec.sources:
            key, given, _ = self._spec.input_of(source)
            if key not in self._spec.objects and given.format == "given":
                raise self._spec.file.error(key, "a table is given in Python alone; name a format")
            with blaming(self._spec.file, key):
                table = _in_memory(self._spec, source)
            known[source.name] = None if table is None else columns_of(table)
        self._spec.compilation(known)

    def open(
        self, stack: ExitStack, spark: Callable[[], SparkSession], *, stage: bool = True
    ) -> dict[str, OpenedInput]:
        """Open all inputs for as long as `stack` is open. Returns them by the name of the step that reads each.

        Args:
            stack: closes what is opened.
            spark: returns a session, and is called only if one is needed.
            stage: whether to write an input that cannot be read in place; if not, only its columns are looked at.

        Raises:
            ConfigError: one cannot be read, or lacks a column.
            JobFailedError: Spark has died.
        """
        opened = {source.name: _Input(self._spec, source).open(stack, spark, stage) for source in self._spec.sources}
        self._spec.compilation({name: found.schema for name, found in opened.items()})
        return opened


def _in_memory(spec: JobSpec, source: Step) -> pa.Table | None:
    """The input of a step, if it is in memory.

    Raises:
        TableError: it is no table.
        ConfigError: its columns are not those declared.
    """
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
        batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        return pa.Table.from_batches([source.declared.conformed(batch, "the input") for batch in batches])
    except ExecutorError as error:
        place, _, message = str(error).partition(": ")
        raise spec.file.error(place, message) from None


class _Input:
    """The input of one step."""

    def __init__(self, spec: JobSpec, source: Step) -> None:
        self._spec = spec
        self._source = source
        self._key, self._given, self._drawn = spec.input_of(source)

    def open(self, stack: ExitStack, spark: Callable[[], SparkSession], stage: bool) -> OpenedInput:
        """Open the input, as `Inputs.open` does."""
        file = self._spec.file
        with blaming(file, self._key):
            opened = self._open(stack, spark, stage)

        def sample(max_rows: int, enough: Callable[[], bool] = never) -> tuple[int | None, pa.Table]:
            with blaming(file, self._key):
                return opened.sample(max_rows, enough)

        return replace(opened, sample=sample)

    def _open(self, stack: ExitStack, spark: Callable[[], SparkSession], stage: bool) -> OpenedInput:
        config, given = self._spec.config, self._given
        table = _in_memory(self._spec, self._source)
        if table is not None:
            self._require_no_sample("in memory: sample it before")
            return self._opened(MemoryFeed(table), lambda: table)
        if given.format == "generated":
            return self._generated(given, spark)
        if given.format == "feed":
            return self._foreign(given)
        source = Source.of(given.model_dump(), base=str(self._spec.file.directory))
        drawn = None
        if self._drawn is not None:
            seed = config.seed if self._drawn.seed is None else self._drawn.seed
            drawn = RowSample(self._drawn.fraction, self._drawn.by, seed)
        if stage or reads_in_place(source, drawn):
            return self._as_parquet(stack, spark, source, drawn)
        frame = cache(lambda: load(spark(), source, drawn))
        return OpenedInput(
            (), schema_of(spark, source), frame, lambda rows, _=never: sample_rows(frame(), rows, config.seed)
        )

    def _as_parquet(
        self, stack: ExitStack, spark: Callable[[], SparkSession], source: Source, drawn: RowSample | None
    ) -> OpenedInput:
        """An input that tasks read as Parquet, in place or as Spark has staged it."""
        config, split_rows = self._spec.config, self._spec.config.limits.split_records
        table = stack.enter_context(
            input_table(spark, source, drawn, split_rows=split_rows, stage_dir=config.spark.stage_dir)
        )
        wanted, keys = columns_read(self._spec.steps, self._source.name)
        if wanted is not None:
            wanted = tuple(name for name in wanted if name in table.schema.names)
        repeated = tuple(name for name in keys if name in table.schema.names)
        read = Source("parquet", table.paths)
        feed = replace(table, columns=wanted, dictionary=repeated)
        return self._opened(feed, cache(lambda: load(spark(), read)))

    def _generated(self, given: InputConfig, spark: Callable[[], SparkSession]) -> OpenedInput:
        """A generated input, which each task reads at its share of the rate. Spark generates the rows for itself."""
        config = self._spec.config
        self._require_no_sample("generated: give it fewer `rows`")
        seed = config.seed if given.seed is None else given.seed
        table = GeneratedTable(generator_of(self._spec.file, self._key, given), given.rows, seed, given.padding)
        pace, tasks = None, self._source.tasks or 1
        if given.rate is not None:
            pace = ReadRate(given.rate / tasks, time.monotonic, time.sleep)
        split_rows = max(1, -(-given.rows // tasks))  # something for every task
        return self._opened(replace(table, pace=pace), cache(lambda: generated_frame(spark(), table)), split_rows)

    def _foreign(self, given: InputConfig) -> OpenedInput:
        """A feed of somebody else's. A reference has its rows in memory."""
        self._require_no_sample("a feed: have it give fewer rows")
        feed, split_rows = feed_of(self._spec.file, self._key, given), self._spec.config.limits.split_records
        return self._opened(feed, cache(lambda: table_of([*all_splits(feed, split_rows)], feed.schema)))

    def _opened(
        self, feed: Feed, frame: Callable[[], DataFrame | pa.Table], split_rows: int | None = None
    ) -> OpenedInput:
        """A feed, opened: its splits have at most as many rows as the job's limits say, or fewer if so asked."""
        config = self._spec.config
        limit = config.limits.split_records
        splits = tuple(all_splits(feed, limit if split_rows is None else min(limit, split_rows)))

        def sample(max_rows: int, enough: Callable[[], bool] = never) -> tuple[int, pa.Table]:
            return total_rows(splits), feed.sample(max_rows, config.seed, enough)

        return OpenedInput(splits, feed.schema, frame, sample)

    def _require_no_sample(self, what: str) -> None:
        if self._drawn is not None:
            raise self._spec.file.error(self._source.at("sample"), f"is Spark's, and this input is {what}")


def lazy_session(
    config: JobConfig, stack: ExitStack, first: Callable[[], object] | None = None
) -> Callable[[], SparkSession]:
    """A function that returns the one Spark session of `stack`, which its first call starts, after calling `first`."""

    def start() -> SparkSession:
        if first is not None:
            first()
        return stack.enter_context(spark_session(config.name, config.spark.master, config.spark.conf))

    return cache(start)


@contextmanager
def blaming(file: JobFile, key: str) -> Iterator[None]:
    """Name `key` of the job file as the cause where a table cannot be read, unless the cause is that Spark has died.

    Raises:
        ConfigError: instead of a `TableError`.
        JobFailedError: instead of a `SparkLostError`.
    """
    try:
        yield
    except SparkLostError as error:
        raise JobFailedError(f"{key}: {error}") from None
    except TableError as error:
        raise file.error(key, str(error)) from None
