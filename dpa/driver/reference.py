"""What Spark computes from a job's inputs to check its results against: queries are resolved before the job runs, and
computed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from dpa.driver._left_out import NOTHING_LEFT_OUT, LeftOut
from dpa.driver._loading import reference_of
from dpa.driver.inputs import OpenedInput
from dpa.driver.sessions import blaming
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
        self._opened = dict(opened)
        self._spark = spark

    @property
    def is_asked(self) -> bool:
        """Whether there is anything to compute when the job has ended."""
        return self._asked is not None and self._asked.at_end

    def check(self) -> None:
        """Have Spark resolve the query against the inputs' columns; no row is read. A function is not called.

        Raises:
            ConfigError: the query is wrong, or has no column for the key.
            JobFailedError: Spark has died.
        """
        if self._asked is not None and self._asked.sql:
            with blaming(self._spec.file, f"{self._key}.sql"):
                check_reference(self._spark(), self._frames(), self._asked.sql, self.step.key)

    def compare(self, result: Callable[[], pa.Table], outcome: RunOutcome) -> ReferenceReport:
        """Compute the reference, if one is asked for, and compare with it the rows, which `result` returns: without
        what user code has failed on in the run, or not at all.

        Raises:
            JobFailedError: it cannot be computed.
        """
        if not (self.is_asked and self.has_query):
            return ReferenceReport()
        self._opened = {
            name: found if found.feed is None else found.as_read(outcome.given[name])
            for name, found in self._opened.items()
        }
        left_out = LeftOut.of(self.step, self._spec.steps, outcome)
        if left_out.why_not is not None:
            return ReferenceReport(why_not=left_out.why_not)
        with self._failing_the_job():
            expected = self._computed(self._frames(left_out))
            own, expected = (left_out.without_keys(rows, self.step) for rows in (result(), expected))
            return replace(self._compared(own, expected), left_out=left_out.records)

    @property
    def has_query(self) -> bool:
        """Whether there is a query, or a function, to compute rows with."""
        return self._asked is not None and bool(self._asked.sql or self._asked.function)

    def verify(self, own: pa.Table, keep: Callable[[pa.Table], pa.Table]) -> ReferenceReport:
        """Compute it from the inputs as they were opened, and compare those of its rows that are to be kept.

        Raises:
            TableError: it cannot be computed.
        """
        return self._compared(own, keep(self._computed(self._frames())))

    def _computed(self, frames: Mapping[str, DataFrame | pa.Table]) -> pa.Table:
        assert self._asked is not None
        function = reference_of(self._spec.file, self._key, self._asked, list(frames))
        stage_dir = self._spec.config.spark.stage_dir
        return compute(self._spark(), frames, self._asked.sql, function, stage_dir=stage_dir)

    def _compared(self, own: pa.Table, expected: pa.Table) -> ReferenceReport:
        from dpa.spark.comparison import compare

        assert self._asked is not None
        found = compare(own, expected, self.step.key, self._asked.tolerance)
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

    def _frames(self, left_out: LeftOut = NOTHING_LEFT_OUT) -> dict[str, DataFrame | pa.Table]:
        """Each input under the name of the step that reads it; the only one as the view `input` too."""
        frames: dict[str, DataFrame | pa.Table] = {}
        for name, found in self._opened.items():
            rows = left_out.input_of(name, found)
            frames[name] = found.frame() if rows is None else rows
        return frames

    @contextmanager
    def _failing_the_job(self) -> Iterator[None]:
        """Fail the job if the reference cannot be computed in this block."""
        try:
            yield
        except TableError as error:
            raise JobFailedError(f"{self._key}: {error}") from None
