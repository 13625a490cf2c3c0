"""One run of a job: load, startup, stream, merge, reference and, last of all, publishing; and what is known of it at
any moment, so that a run that fails reports all that a run knows by then."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from dpa.definition import Definition
from dpa.errors import ConfigError, DpaError
from dpa.execution.key_stats import KeyStats
from dpa.inputs import Input, check, open_input, session_of
from dpa.output import OutputDirectory, in_memory
from dpa.protocol.metrics import Snapshot
from dpa.published import RoundsDirectory
from dpa.reference import Reference
from dpa.result import OutputReport, ReferenceReport, Report, Result, Seconds, when_written
from dpa.runtime.cluster import ray_session
from dpa.runtime.launch import run as run_on_ray
from dpa.runtime.plan import RunOutcome
from dpa.summary import report_of

_STREAM_ENDED = ("merge", "done")
"""Phases of a snapshot in which its numbers of the stream are final."""


class Observer(Protocol):
    """Who watches a job run."""

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins: `load`, `startup`, `stream`, `merge` or `reference`."""

    def update(self, snapshot: Snapshot) -> None:
        """Statistics, a few times a second while records flow."""

    def warn(self, message: str) -> None:
        """What the user should know while the run goes on."""


class Unobserved:
    """Nobody watches."""

    def phase(self, name: str, detail: str = "") -> None:
        """Nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Nothing."""

    def warn(self, message: str) -> None:
        """Nothing."""


class Stopwatch:
    """Wall time by phase, in seconds. A phase ends where the next one begins.

    Attributes:
        began: the moment of creation, in seconds since the epoch.
        phase: the phase that is being timed, or None.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.began = self._since = clock()
        self.phase: str | None = None
        self._spent = dict.fromkeys(("startup", "load", "stream", "merge", "reference"), 0.0)

    def enter(self, phase: str | None, ago: float = 0.0) -> None:
        """Note that a phase began `ago` seconds before now; with None, that the one before it ended."""
        moment = self._clock() - ago
        if self.phase is not None:
            self._spent[self.phase] += moment - self._since
        self.phase, self._since = phase, moment

    def correct(self, **seconds: float) -> None:
        """Replace what was measured from afar by what is known exactly."""
        self._spent.update(seconds)

    def seconds(self, first_record: float | None = None) -> Seconds:
        """The times so far; `first_record` is a moment, in seconds since the epoch."""
        self.enter(self.phase)
        first = None if first_record is None else first_record - self.began
        return Seconds(**self._spent, total=self._clock() - self.began, first_record=first)


class Run:
    """One run of a job. Its attributes fill as it goes; a report is made of those that are known."""

    def __init__(
        self, job: Definition, data: pa.Table | None, observer: Observer | None = None, address: str | None = None
    ) -> None:
        """The run of a job over `data`, or over the input that its configuration names, on the Ray at `address`, the
        configuration's, or one of its own."""
        self._job = job
        self._data = data
        self._observer = observer or Unobserved()
        self._address = address or job.config.ray.address
        self._stopwatch = Stopwatch()
        self._output, self._rounds = OutputDirectory(job.file), RoundsDirectory(job.file)
        self._snapshot: Snapshot | None = None
        self._outcome: RunOutcome | None = None
        self._stats: KeyStats | None = None
        self._compared = ReferenceReport()
        self._spark_skew: float | None = None

    def result(self) -> Result:
        """Check, run, clean up whatever happens, and report.

        Raises:
            ConfigError: something was wrong before any actor started.
        """
        check(self._job, self._data)
        self._job.check_picklable()
        try:
            table, output = self._through()
        except ConfigError:
            raise
        except DpaError as error:
            output = OutputReport(rows=self._rows, unpublished=self._output.path)
            return Result(self._report("failed", output, str(error)))
        status = "mismatch" if self._compared.matches is False else "ok"
        return Result(self._report(status, output), table, when_written(output))

    @property
    def _rows(self) -> int:
        """Rows of the result, as far as they are known."""
        return 0 if self._stats is None else self._stats.distinct

    def _through(self) -> tuple[pa.Table | None, OutputReport]:
        """All phases. Nothing can fail after the result is published, so a job that failed has published none."""
        job = self._job
        with ExitStack() as published:
            published.enter_context(self._output)
            with ExitStack() as stack:
                stack.enter_context(self._rounds)
                spark = session_of(job.config, stack)
                self._enter("load")
                opened = open_input(job, self._data, stack, spark)
                reference = Reference(job, opened, spark)
                reference.check()
                self._rounds.clear()
                outcome = self._stream(opened)
                table = in_memory(outcome) if self._output.path is None else None
                if reference.asked is not None:
                    self._enter("reference")
                    unpublished = OutputReport(self._output.staging, self._rows, _files(outcome))
                    self._compared = reference.compared(Result.reader(table, unpublished))
                    self._spark_skew = reference.spark_skew(outcome)
                    self._stopwatch.enter(None)
            return table, self._publish(outcome)

    def _stream(self, opened: Input) -> RunOutcome:
        job, config = self._job, self._job.config
        plan = replace(job.plan(opened.splits, opened.schema), rounds=self._rounds.path, output=self._output.staging)
        self._enter("startup")
        ray, actors = config.ray, config.parallelism.mappers + config.parallelism.reducers + 2
        with ray_session(
            self._address, actors=actors, runtime_env=ray.runtime_env, object_store_mb=ray.object_store_mb
        ):
            try:
                outcome = run_on_ray(plan, self._update, self._observer.warn)
            finally:
                self._stopwatch.enter(None)
        times = outcome.times
        self._stopwatch.correct(
            stream=times.stream_ended - times.stream_started, merge=times.merged - times.stream_ended
        )
        self._outcome, self._snapshot = outcome, outcome.snapshot
        self._stats = KeyStats.union(part.stats for part in outcome.outputs)
        return outcome

    def _publish(self, outcome: RunOutcome) -> OutputReport:
        return OutputReport(self._output.path, self._rows, self._output.commit(_files(outcome)))

    def _enter(self, phase: str, ago: float = 0.0) -> None:
        self._stopwatch.enter(phase, ago)
        self._observer.phase(phase)

    def _update(self, snapshot: Snapshot) -> None:
        if self._stopwatch.phase == "startup" and snapshot.at > 0:
            self._enter("stream", ago=snapshot.at)
        self._snapshot = snapshot
        self._observer.update(snapshot)  # the stream's last numbers come before the next phase
        if self._stopwatch.phase == "stream" and snapshot.phase in _STREAM_ENDED:
            self._enter("merge")

    def _report(self, status: str, output: OutputReport, error: str | None = None) -> Report:
        """What is known."""
        config, outcome = self._job.config, self._outcome
        outputs = () if outcome is None else outcome.outputs
        return report_of(
            status=status,
            name=config.name,
            config=config.model_dump(),
            snapshot=self._snapshot,
            seconds=self._stopwatch.seconds(None if outcome is None else outcome.times.first_record),
            keys=[part.rows for part in outputs],
            states=[part.states for part in outputs],
            stats=self._stats,
            spark_skew=self._spark_skew,
            reference=self._compared,
            output=output,
            error=error,
        )


def _files(outcome: RunOutcome) -> tuple[str, ...]:
    return tuple(part.file for part in outcome.outputs if part.file)
