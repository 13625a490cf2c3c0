"""One run of a job: load, startup, stream, merge and reference, the time that each takes, and who watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from dpa.balance.skew import skew
from dpa.config.schema import ReferenceConfig
from dpa.definition import Definition
from dpa.disk import writing
from dpa.errors import JobFailedError, TableError
from dpa.execution.key_stats import KeyStats
from dpa.inputs import Input, check, open_input, session_of
from dpa.lookup import named
from dpa.output import OutputDirectory, in_memory
from dpa.protocol.metrics import Snapshot
from dpa.published import RoundsDirectory
from dpa.result import OutputReport, ReferenceReport, Result, Seconds
from dpa.runtime.cluster import ray_session
from dpa.runtime.launch import run as run_on_ray
from dpa.runtime.plan import RunOutcome
from dpa.summary import report_of
from dpa.tables import compare, compute, spark_loads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_STREAM_ENDED = ("merge", "done")
"""Phases of a snapshot in which its numbers of the stream are final."""


class Observer(Protocol):
    """Who watches a job run."""

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins: `load`, `startup`, `stream`, `merge` or `reference`."""

    def update(self, snapshot: Snapshot) -> None:
        """Statistics, a few times a second while records flow."""

    def warn(self, message: str) -> None:
        """Something that the user should know while the job goes on, such as a task that does not come back."""


class Unobserved:
    """Nobody watches."""

    def phase(self, name: str, detail: str = "") -> None:
        """Nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Nothing."""

    def warn(self, message: str) -> None:
        """Nothing."""


class Run:
    """One run of a job: phases, their times, and what is known if one fails."""

    def __init__(
        self, job: Definition, data: pa.Table | None, observer: Observer | None = None, address: str | None = None
    ) -> None:
        """The run of a job over `data`, or over the input that its configuration names, on the Ray at `address`, the
        configuration's, or one of its own."""
        self._job = job
        self._data = data
        self._observer = observer or Unobserved()
        self._address = address or job.config.ray.address
        self._began = time.time()
        self._spent = {"startup": 0.0, "load": 0.0, "reference": 0.0}
        self._snapshot: Snapshot | None = None

    def result(self) -> Result:
        """Check, run, clean up whatever happens, and report."""
        job = self._job
        check(job, self._data)
        job.check_picklable()
        try:
            with ExitStack() as stack:
                return self._through(stack)
        except JobFailedError as error:
            report = report_of(
                status="failed",
                name=job.config.name,
                config=job.config.model_dump(mode="json"),
                snapshot=self._snapshot,
                seconds=Seconds(**self._spent, total=time.time() - self._began),
                error=str(error),
            )
            return Result(report)

    def _through(self, stack: ExitStack) -> Result:
        job, config = self._job, self._job.config
        output = stack.enter_context(OutputDirectory(job.file))
        rounds = stack.enter_context(RoundsDirectory(job.file))
        spark = session_of(config, stack)
        self._observer.phase("load")
        with self._timed("load"):
            opened = open_input(job, self._data, stack, spark)
        rounds.clear()
        outcome = self._stream(opened, output, rounds)
        key_stats = KeyStats.union(part.stats for part in outcome.outputs)
        table = in_memory(outcome) if output.path is None else None
        with writing(str(output.path)):
            files = output.commit(part.file for part in outcome.outputs if part.file)
        report_on = OutputReport(output.path, key_stats.distinct, files)
        reference, spark_skew = self._compare(spark, opened, outcome, Result.reader(table, report_on))
        times = outcome.times
        report = report_of(
            status="mismatch" if reference.matches is False else "ok",
            name=config.name,
            config=config.model_dump(mode="json"),
            snapshot=outcome.snapshot,
            seconds=Seconds(
                **self._spent,
                stream=times.stream_ended - times.stream_started,
                merge=times.merged - times.stream_ended,
                total=time.time() - self._began,
                first_record=None if times.first_record is None else times.first_record - self._began,
            ),
            keys=[part.rows for part in outcome.outputs],
            states=[part.states for part in outcome.outputs],
            stats=key_stats,
            spark_skew=spark_skew,
            reference=reference,
            output=report_on,
        )
        return Result(report, table)

    def _stream(self, opened: Input, output: OutputDirectory, rounds: RoundsDirectory) -> RunOutcome:
        config = self._job.config
        plan = replace(self._job.plan(opened.splits, opened.schema), rounds=rounds.path, output=output.staging)
        self._observer.phase("startup")
        asked = time.time()
        ray, actors = config.ray, config.parallelism.mappers + config.parallelism.reducers + 2
        with ray_session(
            self._address, actors=actors, runtime_env=ray.runtime_env, object_store_mb=ray.object_store_mb
        ):
            outcome = run_on_ray(plan, self._update, self._observer.warn)
        self._spent["startup"] = outcome.times.stream_started - asked
        return outcome

    def _update(self, snapshot: Snapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        if before is None:
            self._observer.phase("stream")
        self._observer.update(snapshot)  # the stream's last numbers come before the next phase
        if snapshot.phase in _STREAM_ENDED and (before is None or before.phase not in _STREAM_ENDED):
            self._observer.phase("merge")

    def _compare(
        self, spark: Callable[[], SparkSession], opened: Input, outcome: RunOutcome, result: Callable[[], pa.Table]
    ) -> tuple[ReferenceReport, float | None]:
        """Check the result against Spark, and compute the baseline's skew."""
        asked = self._job.config.reference
        if asked is None:
            return ReferenceReport(), None
        self._observer.phase("reference")
        with self._timed("reference"):
            report = ReferenceReport()
            if asked.sql or asked.function:
                report = self._checked(spark, opened, result, asked)
            return report, self._spark_skew(spark, outcome) if asked.baseline else None

    def _checked(
        self,
        spark: Callable[[], SparkSession],
        opened: Input,
        result: Callable[[], pa.Table],
        asked: ReferenceConfig,
    ) -> ReferenceReport:
        """The result beside what Spark makes of the same input."""
        function = named(self._job.file, "reference.function", asked.function) if asked.function else None
        try:
            expected = compute(spark(), opened.frame(), sql=asked.sql, function=function)
            found = compare(result(), expected, self._job.config.key, asked.tolerance)
        except TableError as error:
            raise JobFailedError(f"reference: {error}") from None
        return ReferenceReport(True, found.matches, found.rows, found.differences)

    def _spark_skew(self, spark: Callable[[], SparkSession], outcome: RunOutcome) -> float | None:
        """The skew of as many Spark partitions as there are reducers; None if there was no record."""
        counted = [part.key_counts for part in outcome.outputs if part.key_counts is not None and part.rows]
        if not counted:
            return None
        counts = pa.concat_tables(counted, promote_options="permissive")
        keys, records = counts["key"].combine_chunks(), counts["records"].to_numpy()
        return skew(spark_loads(spark(), keys, records, self._job.config.parallelism.reducers))

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        """Add the seconds spent in the block to those of a phase."""
        began = time.time()
        try:
            yield
        finally:
            self._spent[phase] += time.time() - began
