"""One run of a job: load, startup, stream, merge, reference and, last of all, publishing. What is known so far is kept,
so that a run that fails reports it."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from dpa._util.logs import chosen_level
from dpa.driver.backend import Backend
from dpa.driver.inputs import Input, OpenedInput, lazy_session
from dpa.driver.observer import Observer, Unobserved
from dpa.driver.outputs import OutputDirectory, in_memory
from dpa.driver.partial_results import PartialResultsDirectory
from dpa.driver.reference import Reference
from dpa.driver.spec import JobSpec
from dpa.driver.stage_summary import StageOutcome
from dpa.driver.stopwatch import Stopwatch
from dpa.driver.summary import build_report
from dpa.errors import ConfigError, DpaError, JobFailedError
from dpa.protocol.graph import REDUCER
from dpa.protocol.metrics import Snapshot, StageSnapshot
from dpa.protocol.plan import RunOutcome
from dpa.result import OutputReport, ReferenceReport, Report, Result, when_written

_log = logging.getLogger(__name__)

_STREAM_ENDED = ("merge", "done")
"""Phases of a snapshot in which its numbers of the stream are final."""

_TASKS_ENDED = ("done", "failed")
"""Phases of the last snapshot of a run."""


class Run:
    """One run of a job, used once. Its attributes fill as it goes; the report is made of those that are known."""

    def __init__(self, spec: JobSpec, input: Input, backend: Backend, observer: Observer | None = None) -> None:
        self._spec = spec
        self._input = input
        self._backend = backend
        self._observer = observer or Unobserved()
        self._stopwatch = Stopwatch()
        self._output, self._partial_results = OutputDirectory(spec.file), PartialResultsDirectory(spec.file)
        self._snapshot: Snapshot | None = None
        self._logged_versions: dict[str, int] = {}
        self._warnings: list[str] = []
        self._outcome: RunOutcome | None = None
        self._compared = ReferenceReport()
        self._spark_skew: float | None = None

    def result(self) -> Result:
        """Check, run, clean up whatever happens, and report.

        Raises:
            ConfigError: something was wrong before any task started.
        """
        self._spec.check()
        self._input.check()
        self._spec.check_executors(self._backend.check_executor)
        try:
            table, output = self._through()
        except ConfigError:
            raise
        except DpaError as error:
            _log.info("%s: failed: %s", self._spec.config.name, error)  # not louder: the caller receives it
            output = OutputReport(rows=self._rows, unpublished=self._output.path)
            events = error.events if isinstance(error, JobFailedError) else {}
            return Result(self._report("failed", output, str(error)), events=events)
        status = "mismatch" if self._compared.matches is False else "ok"
        tables = {} if table is None else {REDUCER: table}
        return Result(self._report(status, output), tables, {REDUCER: when_written(output)})

    @property
    def _rows(self) -> int:
        """Rows of the result, as far as they are known."""
        return 0 if self._outcome is None else sum(part.rows for part in self._outcome.outputs[REDUCER])

    def _through(self) -> tuple[pa.Table | None, OutputReport]:
        """All phases. Nothing can fail after the result is published, so a job that failed has published none."""
        with self._output:
            with ExitStack() as stack:
                stack.enter_context(self._partial_results)
                spark = lazy_session(self._spec.config, stack)
                self._enter("load")
                opened = self._input.open(stack, spark)
                reference = Reference(self._spec, opened, spark)
                reference.check()
                self._partial_results.clear()
                outcome = self._stream(opened)
                table = in_memory(outcome) if self._output.path is None else None
                if reference.asked is not None:
                    self._enter("reference")
                    unpublished = OutputReport(self._output.staging, self._rows, _files(outcome))
                    self._compared = reference.compare(Result.reader(table, unpublished))
                    self._spark_skew = reference.spark_skew(outcome)
                    self._stopwatch.enter(None)
            return table, self._publish(outcome)

    def _stream(self, opened: OpenedInput) -> RunOutcome:
        published = self._partial_results.path
        plan = replace(
            self._spec.plan(opened.splits, opened.schema),
            results={REDUCER: self._output.staging},
            partial_results={} if published is None else {REDUCER: published},
            log_level=chosen_level(),
        )
        self._enter("startup")
        try:
            outcome = self._backend.run(plan, self._update, self._warn)
        finally:
            self._stopwatch.enter(None)
        times = outcome.times
        self._stopwatch.correct(
            stream=times.stream_ended - times.stream_started, merge=times.merged - times.stream_ended
        )
        self._outcome, self._snapshot = outcome, outcome.snapshot
        return outcome

    def _publish(self, outcome: RunOutcome) -> OutputReport:
        files = self._output.commit(_files(outcome))
        if self._output.path is not None:
            _log.info("%s: published %d rows at %s", self._spec.config.name, self._rows, self._output.path)
        return OutputReport(self._output.path, self._rows, files)

    def _enter(self, phase: str, ago: float = 0.0) -> None:
        self._stopwatch.enter(phase, ago)
        _log.info("%s: phase %s", self._spec.config.name, phase)
        self._observer.phase(phase)

    def _update(self, snapshot: Snapshot) -> None:
        if self._stopwatch.phase == "startup" and snapshot.at > 0:
            self._enter("stream", ago=snapshot.at)
        self._snapshot = snapshot
        for stage in snapshot.stages:
            self._log_redistributions(stage)
        self._observer.update(snapshot)  # the stream's last numbers come before the next phase
        if self._stopwatch.phase == "stream" and snapshot.phase in _STREAM_ENDED:
            self._enter("merge")
        if snapshot.phase in _TASKS_ENDED:
            self._stopwatch.enter(None)  # ending what they ran on is no part of a phase

    def _log_redistributions(self, stage: StageSnapshot) -> None:
        """Log those that were not logged before."""
        for decision in stage.decisions:
            version = decision.version or 0
            if version > self._logged_versions.get(stage.name, 0):
                self._logged_versions[stage.name] = version
                text = "%s: redistribution for %s %d, table version %d: %s"
                _log.info(text, self._spec.config.name, stage.name, decision.reducer, version, decision.reason)

    def _warn(self, message: str) -> None:
        _log.warning("%s: %s", self._spec.config.name, message)
        self._warnings.append(message)
        self._observer.warn(message)

    def _report(self, status: str, output: OutputReport, error: str | None = None) -> Report:
        """What is known."""
        outcome, config = self._outcome, self._spec.config
        reducer = StageOutcome(
            grouping=config.grouping.kind,
            shares=() if outcome is None else outcome.outputs[REDUCER],
            spark_skew=self._spark_skew,
            reference=self._compared,
            output=output,
        )
        return build_report(
            status=status,
            config=config,
            seconds=self._stopwatch.seconds(None if outcome is None else outcome.times.first_record),
            snapshot=self._snapshot,
            outcomes={REDUCER: reducer},
            warnings=self._warnings,
            error=error,
        )


def _files(outcome: RunOutcome) -> tuple[str, ...]:
    return tuple(part.file for part in outcome.outputs[REDUCER] if part.file)
