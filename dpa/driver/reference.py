"""What Spark computes from a job's inputs to check its results against: queries are resolved before the job runs, and
computed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.driver._loading import reference_of
from dpa.driver.inputs import OpenedInput, blaming
from dpa.driver.spec import JobSpec
from dpa.errors import JobFailedError, TableError
from dpa.logical.step import Step
from dpa.measure.skew import skew
from dpa.protocol.plan import RunOutcome
from dpa.result import ReferenceReport
from dpa.spark import check_reference, compute, spark_loads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Reference:
    """The reference of one step's rows."""

    def __init__(
        self, spec: JobSpec, step: Step, opened: Mapping[str, OpenedInput], spark: Callable[[], SparkSession]
    ) -> None:
        """The reference of `step`, if it has one, from the inputs `opened`; `spark` returns a session, and is called
        only if one is needed."""
        self.step = step
        self._asked = step.config.reference
        self._key = step.at("reference")
        self._spec = spec
        self._opened = opened
        self._spark = spark

    @property
    def is_asked(self) -> bool:
        """Whether there is anything to compute."""
        return self._asked is not None

    def check(self) -> None:
        """Have Spark resolve the query against the inputs' columns; no row is read. A function is not called.

        Raises:
            ConfigError: the query is wrong, or has no column for the key.
            JobFailedError: Spark has died.
        """
        if self._asked is not None and self._asked.sql:
            with blaming(self._spec.file, f"{self._key}.sql"):
                check_reference(self._spark(), self._frames(), self._asked.sql, self.step.key)

    def compare(self, result: Callable[[], pa.Table]) -> ReferenceReport:
        """Compute the reference, if one is asked for, and compare with it the rows, which `result` returns.

        Raises:
            JobFailedError: it cannot be computed.
        """
        asked = self._asked
        if asked is None or not (asked.sql or asked.function):
            return ReferenceReport()
        from dpa.spark.comparison import compare

        with self._failing_the_job():
            frames = self._frames()
            function = reference_of(self._spec.file, self._key, asked, list(frames))
            stage_dir = self._spec.config.spark.stage_dir
            expected = compute(self._spark(), frames, asked.sql, function, stage_dir=stage_dir)
            found = compare(result(), expected, self.step.key, asked.tolerance)
        return ReferenceReport(True, found.matches, found.rows, found.differences)

    def spark_skew(self, outcome: RunOutcome) -> float | None:
        """The skew of a Spark shuffle of the same records to one partition a task; None if it is not asked for, there
        was no record, or one task gets them all in any case.

        Raises:
            JobFailedError: it cannot be computed.
        """
        shares = outcome.outputs[self.step.name]
        counted = [part.key_counts for part in shares if part.key_counts is not None and part.key_counts.num_rows]
        if self._asked is None or not self._asked.baseline or not counted or len(shares) < 2:
            return None
        counts = pa.concat_tables(counted, promote_options="permissive")
        keys, records = counts["key"].combine_chunks(), counts["records"].to_numpy()
        with self._failing_the_job():
            stage_dir = self._spec.config.spark.stage_dir
            loads = spark_loads(self._spark(), keys, records, len(shares), stage_dir=stage_dir)
        return skew(loads)

    def _frames(self) -> dict[str, DataFrame | pa.Table]:
        """Each input under the name of the step that reads it; the only one as the view `input` too."""
        return {name: found.frame() for name, found in self._opened.items()}

    @contextmanager
    def _failing_the_job(self) -> Iterator[None]:
        """Fail the job if the reference cannot be computed in this block."""
        try:
            yield
        except TableError as error:
            raise JobFailedError(f"{self._key}: {error}") from None
