"""A job's input: a table in memory, or what the section `input` names; opened for the mappers in place, from memory,
generated, or staged by Spark, or only looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpa.config import InputConfig, JobConfig, JobFile
from dpa.config.inputs import OF_GENERATED
from dpa.driver.loading import generator_of
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError, JobFailedError, SparkLostError, TableError
from dpa.execution.mapping import check_columns
from dpa.routing.keys import names_of
from dpa.sources.generated import GeneratedTable, Pace
from dpa.sources.splits import Split, memory_splits
from dpa.spark import (
    Sample,
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


@dataclass(frozen=True)
class OpenedInput:
    """An input that is ready to be read.

    Attributes:
        splits: what mappers read; none if the input was only looked at.
        schema: its columns.
        frame: returns the same rows as a DataFrame of Spark, or as a table in memory.
        sample: returns the number of all rows, or None if it is unknown, and about as many rows as its argument says,
            drawn at random. Raises ConfigError if they cannot be read, JobFailedError if Spark has died.
    """

    splits: tuple[Split, ...]
    schema: pa.Schema
    frame: Callable[[], DataFrame | pa.Table]
    sample: Callable[[int], tuple[int | None, pa.Table]]


class Input:
    """What a job reads, not yet opened."""

    def __init__(self, spec: JobSpec, table: pa.Table | None = None) -> None:
        """`table`, or else what the configuration of `spec` names."""
        self._spec = spec
        self._table = table

    def check(self) -> None:
        """Check that there is an input at all; it is not looked at.

        Raises:
            ConfigError: there is none.
        """
        if self._table is None and self._spec.config.input is None:
            raise self._spec.file.error("input", "a job needs an input")

    def open(self, stack: ExitStack, spark: Callable[[], SparkSession], *, stage: bool = True) -> OpenedInput:
        """Open the input for as long as `stack` is open.

        Args:
            stack: closes what is opened.
            spark: returns a session, and is called only if one is needed.
            stage: whether to write an input that cannot be read in place; if not, only its columns are looked at.

        Raises:
            ConfigError: it cannot be read, or it lacks a column.
            JobFailedError: Spark has died.
        """
        file = self._spec.file
        with blaming(file, "input"):
            opened = self._open(stack, spark, stage)
        try:
            check_columns(self._spec.task, opened.schema)
        except ConfigError as error:
            key, _, message = str(error).partition(": ")
            raise file.error(key, message) from None

        def sample(max_rows: int) -> tuple[int | None, pa.Table]:
            with blaming(file, "input"):
                return opened.sample(max_rows)

        return replace(opened, sample=sample)

    def _open(self, stack: ExitStack, spark: Callable[[], SparkSession], stage: bool) -> OpenedInput:
        config, given = self._spec.config, self._spec.config.input
        if self._table is not None:
            return _in_memory(self._spec, self._table)
        assert given is not None
        if given.format == "records":
            return _in_memory(self._spec, as_table(given.records))
        if given.format == "generated":
            return _generated(self._spec, given, spark)
        source = Source.of(given.model_dump(exclude=set(OF_GENERATED)), base=str(self._spec.file.directory))
        drawn = _sample_section(config)
        if stage or reads_in_place(source, drawn):
            return _as_parquet(self._spec, stack, spark, source, drawn)
        frame = cache(lambda: load(spark(), source, drawn))
        return OpenedInput((), schema_of(spark, source), frame, lambda rows: sample_rows(frame(), rows, config.seed))


def lazy_session(config: JobConfig, stack: ExitStack) -> Callable[[], SparkSession]:
    """A function that returns the one Spark session of `stack`, which its first call starts."""
    asked = config.spark
    return cache(lambda: stack.enter_context(spark_session(config.name, asked.master, asked.conf)))


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


def _sample_section(config: JobConfig) -> Sample | None:
    sample = config.sample
    if sample is None:
        return None
    return Sample(sample.fraction, sample.by, config.seed if sample.seed is None else sample.seed)


def _as_parquet(
    spec: JobSpec, stack: ExitStack, spark: Callable[[], SparkSession], source: Source, drawn: Sample | None
) -> OpenedInput:
    """An input that mappers read as Parquet, in place or as Spark has staged it."""
    config, split_rows = spec.config, spec.config.limits.split_records
    table = stack.enter_context(
        input_table(spark, source, drawn, split_rows=split_rows, stage_dir=config.spark.stage_dir)
    )
    wanted = None
    if spec.mapper is None and config.value is not None:
        wanted = (*names_of(config.key), *config.value)
        wanted = tuple(name for name in wanted if name in table.schema.names)
    repeated = [name for name in names_of(config.key) if spec.mapper is None and name in table.schema.names]
    splits = table.splits(columns=wanted, dictionary=repeated, split_rows=split_rows)
    read = Source("parquet", table.paths)
    return OpenedInput(
        tuple(splits),
        table.schema,
        cache(lambda: load(spark(), read)),
        lambda rows: (table.rows, table.sample(rows, config.seed, wanted)),
    )


def _in_memory(spec: JobSpec, table: pa.Table) -> OpenedInput:
    config = spec.config
    if config.sample is not None:
        raise spec.file.error("sample", "is Spark's, and this input is in memory: sample it before")

    def sample(max_rows: int) -> tuple[int, pa.Table]:
        drawn = np.random.default_rng(config.seed).permutation(table.num_rows)[:max_rows]
        return table.num_rows, table.take(pa.array(np.sort(drawn)))

    splits = memory_splits(table, config.limits.split_records)
    return OpenedInput(tuple(splits), table.schema, lambda: table, sample)


def _generated(spec: JobSpec, given: InputConfig, spark: Callable[[], SparkSession]) -> OpenedInput:
    """A generated input, which each mapper reads at its share of the rate. Spark generates the rows for itself."""
    config = spec.config
    if config.sample is not None:
        raise spec.file.error("sample", "is Spark's, and this input is generated: give it fewer `rows`")
    seed = config.seed if given.seed is None else given.seed
    table = GeneratedTable(generator_of(spec.file), given.rows, seed, given.padding)
    pace = None
    if given.rate is not None:
        pace = Pace(given.rate / config.parallelism.mappers, time.monotonic, time.sleep)
    return OpenedInput(
        tuple(table.splits(config.limits.split_records, pace)),
        table.schema,
        cache(lambda: generated_frame(spark(), table)),
        lambda rows: (table.rows, table.sample(rows, config.seed)),
    )
