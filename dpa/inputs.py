"""A job's input: opened for the mappers, in place, from memory or staged by Spark, or only looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpa.config import JobConfig, JobFile
from dpa.definition import Definition
from dpa.errors import ConfigError, JobFailedError, SparkLostError, TableError
from dpa.execution.mapping import check_columns
from dpa.routing.keys import names_of
from dpa.splits import Split, memory_splits
from dpa.tables import (
    Sample,
    Source,
    as_table,
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
class Input:
    """The input, ready to be read: its splits (none if Spark only looked at it), columns, the same rows in Spark, and a
    function from a number of rows and a seed to the number of all rows and a random sample of about so many."""

    splits: tuple[Split, ...]
    schema: pa.Schema
    frame: Callable[[], DataFrame | pa.Table]
    sample: Callable[[int, int], tuple[int, pa.Table]]


@contextmanager
def blamed(file: JobFile, key: str) -> Iterator[None]:
    """Blame what stands at `key` for a table that cannot be had, unless it is because Spark has died.

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


def session_of(config: JobConfig, stack: ExitStack) -> Callable[[], SparkSession]:
    """A function that gives the one Spark session of `stack`, starting it when it is first called."""
    sessions: list[SparkSession] = []

    def session() -> SparkSession:
        if not sessions:
            spark = config.spark
            sessions.append(stack.enter_context(spark_session(config.name, spark.master, spark.conf)))
        return sessions[0]

    return session


def open_input(
    job: Definition, data: pa.Table | None, stack: ExitStack, spark: Callable[[], SparkSession], *, stage: bool = True
) -> Input:
    """Have the input ready for as long as `stack` is open: `data`, or what the configuration names. Without `stage`
    nothing is written for it: of what is not read in place only the columns are looked at.

    Raises:
        ConfigError: it cannot be read, or it lacks a column.
        JobFailedError: Spark has died.
    """
    with blamed(job.file, "input"):
        opened = _in_memory(job, data) if data is not None else _opened(job, stack, spark, stage)
    try:
        check_columns(job.task, opened.schema)
    except ConfigError as error:
        key, _, message = str(error).partition(": ")
        raise job.file.error(key, message) from None
    return opened


def check(job: Definition, data: pa.Table | None) -> None:
    """Check all that can be checked without reading the input: the definition, and that there is an input.

    Raises:
        ConfigError: naming what is wrong and where.
    """
    job.check_definition()
    if data is None and job.config.input is None:
        raise job.file.error("input", "a job needs an input")


def sample_of(job: Definition, opened: Input, most_rows: int) -> tuple[int | None, pa.Table]:
    """About `most_rows` rows of the input, drawn at random, and how many there are in all.

    Raises:
        ConfigError: the input cannot be read.
        JobFailedError: Spark has died.
    """
    with blamed(job.file, "input"):
        return opened.sample(most_rows, job.config.seed)


def _opened(job: Definition, stack: ExitStack, spark: Callable[[], SparkSession], stage: bool) -> Input:
    config, given, sample = job.config, job.config.input, job.config.sample
    assert given is not None
    if given.format == "records":
        return _in_memory(job, as_table(given.records))
    source = Source.of(given.model_dump(), base=str(job.file.directory))
    drawn = None
    if sample is not None:
        drawn = Sample(sample.fraction, sample.by, config.seed if sample.seed is None else sample.seed)
    if not stage and not reads_in_place(source, drawn):
        frame = cache(lambda: load(spark(), source, drawn))
        return Input((), schema_of(spark, source), frame, lambda rows, seed: sample_rows(frame(), rows, seed))
    split_rows = config.limits.split_records
    table = stack.enter_context(
        input_table(spark, source, drawn, split_rows=split_rows, stage_dir=config.spark.stage_dir)
    )
    wanted = None
    if job.mapper is None and config.value is not None:
        wanted = (*names_of(config.key), *config.value)
        wanted = tuple(name for name in wanted if name in table.schema.names)
    repeated = [name for name in names_of(config.key) if job.mapper is None and name in table.schema.names]
    splits = table.splits(columns=wanted, dictionary=repeated, split_rows=split_rows)
    read = Source("parquet", table.paths)
    return Input(
        tuple(splits),
        table.schema,
        cache(lambda: load(spark(), read)),
        lambda rows, seed: (table.rows, table.sample(rows, seed, wanted)),
    )


def _in_memory(job: Definition, table: pa.Table) -> Input:
    if job.config.sample is not None:
        raise job.file.error("sample", "is Spark's, and this input is in memory: sample it before")
    splits = memory_splits(table, job.config.limits.split_records)

    def sample(most_rows: int, seed: int) -> tuple[int, pa.Table]:
        drawn = np.random.default_rng(seed).permutation(table.num_rows)[:most_rows]
        return table.num_rows, table.take(pa.array(np.sort(drawn)))

    return Input(tuple(splits), table.schema, lambda: table, sample)
