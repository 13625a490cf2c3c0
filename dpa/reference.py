"""What Spark computes from a job's input to check the result against: the query is resolved before the job runs, and
computed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.balance.skew import skew
from dpa.definition import Definition
from dpa.errors import JobFailedError, TableError
from dpa.inputs import Input, blamed
from dpa.lookup import reference_of
from dpa.result import ReferenceReport
from dpa.runtime.plan import RunOutcome
from dpa.tables import check_reference, compare, compute, spark_loads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reference:
    """The reference of a job.

    Attributes:
        asked: the section `reference`, or None if there is none.
    """

    def __init__(self, job: Definition, opened: Input, spark: Callable[[], SparkSession]) -> None:
        """Of the input `opened`; `spark` is called only if a session is needed."""
        self.asked = job.config.reference
        self._job = job
        self._opened = opened
        self._spark = spark

    def check(self) -> None:
        """Have Spark resolve the query against the input's columns; no row is read. A function is not called.

        Raises:
            ConfigError: the query is wrong, or has no column for the key.
            JobFailedError: Spark has died.
        """
        if self.asked is not None and self.asked.sql:
            with blamed(self._job.file, "reference.sql"):
                check_reference(self._spark(), self._opened.frame(), self.asked.sql, self._job.config.key)

    def compared(self, result: Callable[[], pa.Table]) -> ReferenceReport:
        """Compute the reference, if one is asked for, and compare the result with it.

        Raises:
            JobFailedError: it cannot be computed.
        """
        asked, config = self.asked, self._job.config
        if asked is None or not (asked.sql or asked.function):
            return ReferenceReport()
        with _failing():
            frame, function = self._opened.frame(), reference_of(self._job.file)
            expected = compute(self._spark(), frame, asked.sql, function, stage_dir=config.spark.stage_dir)
            found = compare(result(), expected, config.key, asked.tolerance)
        return ReferenceReport(True, found.matches, found.rows, found.differences)

    def spark_skew(self, outcome: RunOutcome) -> float | None:
        """The skew of as many Spark partitions as there are reducers; None if it is not asked for, or there was no
        record.

        Raises:
            JobFailedError: it cannot be computed.
        """
        counted = [part.key_counts for part in outcome.outputs if part.key_counts is not None and part.rows]
        if self.asked is None or not self.asked.baseline or not counted:
            return None
        counts = pa.concat_tables(counted, promote_options="permissive")
        keys, records = counts["key"].combine_chunks(), counts["records"].to_numpy()
        config = self._job.config
        with _failing():
            loads = spark_loads(
                self._spark(), keys, records, config.parallelism.reducers, stage_dir=config.spark.stage_dir
            )
        return skew(loads)


@contextmanager
def _failing() -> Iterator[None]:
    """A reference that cannot be computed fails the job."""
    try:
        yield
    except TableError as error:
        raise JobFailedError(f"reference: {error}") from None
