"""The one session of Spark that a job uses, and whom its errors blame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING

from dpa.config import JobConfig, JobFile
from dpa.errors import JobFailedError, SparkLostError, TableError
from dpa.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
