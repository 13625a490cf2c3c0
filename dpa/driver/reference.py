"""What Spark computes from a job's input to check the result against: the query is resolved before the job runs, and
computed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.driver.inputs import OpenedInput, blaming
from dpa.driver.loading import reference_of
from dpa.driver.spec import JobSpec
from dpa.errors import JobFailedError, TableError
from dpa.measure.skew import skew
from dpa.protocol.graph import REDUCER
from dpa.protocol.plan import RunOutcome
from dpa.result import ReferenceReport
from dpa.spark import check_reference, compare, compute, spark_loads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reference:
    """The reference of a job.

    Attributes:
        asked: the section `reference`, or None if there is none.
    """

    def __init__(self, spec: JobSpec, opened: OpenedInput, spark: Callable[[], SparkSession]) -> None:
        """The reference of the input `opened`; `spark` returns a session, and is called only if one is needed."""
        self.asked = spec.config.reference
        self._spec = spec
        self._opened = opened
        self._spark = spark

    def check(self) -> None:
        """Have Spark resolve the query against the input's columns; no row is read. A function is not called.

        Raises:
            ConfigError: the query is wrong, or has no column for the key.
            JobFailedError: Spark has died.
        """
        if self.asked is not None and self.asked.sql:
            with blaming(self._spec.file, "reference.sql"):
                check_reference(self._spark(), self._opened.frame(), self.asked.sql, self._spec.config.key)

    def compare(self, result: Callable[[], pa.Table]) -> ReferenceReport:
        """Compute the reference, if one is asked for, and compare with it the result, which `result` returns.

        Raises:
            JobFailedError: it cannot be computed.
        """
        asked, config = self.asked, self._spec.config
        if asked is None or not (asked.sql or asked.function):
            return ReferenceReport()
        with _failing_the_job():
            frame, function = self._opened.frame(), reference_of(self._spec.file)
            expected = compute(self._spark(), frame, asked.sql, function, stage_dir=config.spark.stage_dir)
            found = compare(result(), expected, config.key, asked.tolerance)
        return ReferenceReport(True, found.matches, found.rows, found.differences)

    def spark_skew(self, outcome: RunOutcome) -> float | None:
        """The skew of a Spark shuffle of the same records to one partition a reducer; None if it is not asked for, or
        there was no record.

        Raises:
            JobFailedError: it cannot be computed.
        """
        counted = [part.key_counts for part in outcome.outputs[REDUCER] if part.key_counts is not None and part.rows]
        if self.asked is None or not self.asked.baseline or not counted:
            return None
        counts = pa.concat_tables(counted, promote_options="permissive")
        keys, records = counts["key"].combine_chunks(), counts["records"].to_numpy()
        config = self._spec.config
        with _failing_the_job():
            loads = spark_loads(
                self._spark(), keys, records, config.parallelism.reducers, stage_dir=config.spark.stage_dir
            )
        return skew(loads)


@contextmanager
def _failing_the_job() -> Iterator[None]:
    """Fail the job if the reference cannot be computed in this block."""
    try:
        yield
    except TableError as error:
        raise JobFailedError(f"reference: {error}") from None
