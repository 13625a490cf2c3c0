"""One run of a job: load, startup, stream, merge, reference and, last of all, publishing. What is known so far is kept,
so that a run that fails reports it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, reduce
from operator import add
from typing import Any

import pyarrow as pa

from dpa._util.logs import chosen_level
from dpa._util.words import plural
from dpa.config import JobFile, OutputConfig
from dpa.driver._first_tables import with_first_tables
from dpa.driver._stage_summary import StageOutcome
from dpa.driver._stopwatch import Stopwatch
from dpa.driver.backend import Backend, Runner
from dpa.driver.inputs import Inputs, OpenedInput, lazy_session
from dpa.driver.interrupts import ProgramEnd
from dpa.driver.outputs import Publication
from dpa.driver.partial_results import RoundsPublication, published
from dpa.driver.placing import Placing
from dpa.driver.reference import Reference
from dpa.driver.spec import JobSpec
from dpa.driver.summary import build_report
from dpa.errors import ConfigError, DpaError, JobCancelledError, JobFailedError
from dpa.logical.step import Step
from dpa.protocol.plan import RunHooks, RunOutcome
from dpa.protocol.recovery import Death
from dpa.protocol.task.delivery import Delivery
from dpa.protocol.wire.metrics import CheckpointStats, Snapshot
from dpa.protocol.wire.nodes import Place
from dpa.result import OutputReport, RecoveryReport, ReferenceReport, Report, Result, when_written
from dpa.runtime.packed_plan import frozen
from dpa.telemetry.observers import Observer, Observers, Unobserved
from dpa.telemetry.run_log import RunLog
from dpa.telemetry.tracker import RunTracker

_log = logging.getLogger(__name__)

_STREAM_ENDED = ("merge", "done")
"""Phases of a snapshot in which its numbers of the stream are final."""

_TASKS_ENDED = ("done", "failed")
"""Phases of the last snapshot of a run."""


class Run:
    """One run of a job, used once. Its attributes fill as it goes; the report is made of those that are known."""

    def __init__(self, spec: JobSpec, backend: Backend, observer: Observer | None = None) -> None:
        self._backend = backend
        self._tracker = RunTracker()
        self._observers = Observers(RunLog(_log, spec.config.name), observer or Unobserved())
        self._stopwatch = Stopwatch()
        # Directories first: the executors that steps import may change the working directory.
        rounds = {
            key: RoundsPublication(spec.file, given.path, key)
            for key, given in published(spec.file)
            if given.path is not None
        }
        self._spec = spec = spec.for_one_run()
        self._inputs = Inputs(spec)
        self._sinks = [_Sink(spec.file, step, spec.outputs.get(step.at("write"))) for step in spec.results]
        self._rounds = {
            step.name: rounds[step.at("aggregation")]
            for step in spec.steps
            if step.config.aggregation is not None and step.config.aggregation.path is not None
        }
        self._snapshot: Snapshot | None = None
        self._warnings: list[str] = []
        self._recoveries: list[RecoveryReport] = []
        self._dead_checkpoints: list[CheckpointStats] = []
        self._outcome: RunOutcome | None = None
        self._program_end = ProgramEnd()
        self._first_tables: dict[str, str] = {}

    def result(self) -> Result:
        """Check, run, clean up whatever happens, and report.

        Raises:
            ConfigError: something was wrong before any task started.
            JobCancelledError: a request to the running job ended it.
        """
        self._spec.check()
        self._inputs.check()
        self._spec.check_executors(self._backend.check_executor)
        try:
            with self._program_end:
                self._through()
        except (ConfigError, JobCancelledError):
            raise
        except DpaError as error:
            _log.info("%s: failed: %s", self._spec.config.name, error)  # not louder: the caller receives it
            events = error.events if isinstance(error, JobFailedError) else {}
            return Result(self._report("failed", str(error)), events=events)
        status = "mismatch" if any(sink.compared.matches is False for sink in self._sinks) else "ok"
        tables = {sink.name: sink.table for sink in self._sinks if sink.table is not None}
        written = {sink.name: when_written(sink.report) for sink in self._sinks}
        keys = {sink.name: sink.step.at("write.path") for sink in self._sinks}
        return Result(self._report(status), tables, written, _keys=keys)

    def _through(self) -> None:
        """All phases. Nothing can fail after the first result is published but publishing the next, so a job that
        failed has published none, or, of several, those whose directories could be replaced before one could not."""
        with ExitStack() as directories:
            for sink in self._sinks:
                directories.enter_context(sink.output)
            with ExitStack() as stack:
                for rounds in self._rounds.values():
                    stack.enter_context(rounds)
                placement = self._spec.config.placement
                tasks = self._lazy_tasks(stack) if placement is None else None
                spark = lazy_session(self._spec.config, stack, first=tasks)
                self._enter("load")
                opened = self._inputs.open(stack, spark)
                if tasks is None:
                    tasks = self._lazy_tasks(stack, Placing.of(self._spec, opened).placed)
                references = [Reference(self._spec, sink.step, opened, spark) for sink in self._sinks]
                for reference in references:
                    reference.check()
                for rounds in self._rounds.values():
                    rounds.clear()
                outcome = self._stream(opened, tasks())
                for sink in self._sinks:
                    sink.take(outcome)
                if any(reference.is_asked for reference in references):
                    self._enter("reference")
                    for sink, reference in zip(self._sinks, references, strict=True):
                        sink.compared = reference.compare(sink.read)
                        sink.spark_skew = reference.spark_skew(outcome)
                    self._stopwatch.enter(None)
            for sink in self._sinks:
                sink.publish(outcome)
                if sink.report.path is not None:
                    name = self._spec.config.name
                    _log.info("%s: published %d rows at %s", name, sink.report.rows, sink.report.path)

    def _lazy_tasks(self, stack: ExitStack, place: Place | None = None) -> Callable[[], Runner]:
        """A function whose first call has the backend prepare, for as long as `stack` is open. It is called when Spark
        is to be started, beside which tasks can start; else when the input has been checked. `place`: where they are to
        start, if that matters."""
        tasks = sum(step.tasks or 0 for step in self._spec.steps)
        return cache(lambda: stack.enter_context(self._backend.prepared(tasks, place)))

    def _stream(self, opened: Mapping[str, OpenedInput], tasks: Runner) -> RunOutcome:
        plan = self._spec.plan(
            {name: found.splits for name, found in opened.items()},
            {name: found.schema for name, found in opened.items()},
        )
        graph = plan.graph
        if self._backend.samples:
            plan = frozen(plan)  # the sample may change what user code holds
            graph, self._first_tables = with_first_tables(graph, self._spec, opened, lambda: tasks.is_ready)
        plan = replace(
            plan,
            graph=graph,
            deliveries={name: self._delivery(name, to) for name, to in plan.deliveries.items()},
            log_level=chosen_level(),
        )
        self._enter("startup")
        try:
            outcome = tasks.run(plan, RunHooks(self._update, self._warn, self._restart))
        finally:
            self._stopwatch.enter(None)
        times = outcome.times
        self._stopwatch.correct(
            stream=times.stream_ended - times.stream_started, merge=times.merged - times.stream_ended
        )
        self._outcome, self._snapshot = outcome, outcome.snapshot
        return outcome

    def _delivery(self, step: str, delivery: Delivery) -> Delivery:
        """Where the tasks of a step deliver their shares of this run's results."""
        rounds = self._rounds.get(step)
        sink = next((sink.output.sink for sink in self._sinks if sink.name == step), None)
        return replace(delivery, sink=sink, rounds=None if rounds is None else rounds.sink)

    def _enter(self, phase: str, ago: float = 0.0) -> None:
        self._program_end.begin_phase()
        self._stopwatch.enter(phase, ago)
        self._observers.phase(phase)

    def _update(self, snapshot: Snapshot) -> None:
        self._program_end.check()
        if self._stopwatch.phase == "startup" and snapshot.at > 0:
            self._enter("stream", ago=snapshot.at)
        self._snapshot = snapshot
        self._observers.update(self._tracker.update(snapshot))  # the stream's last numbers come before the next phase
        self._note_flow()
        if self._stopwatch.phase == "stream" and snapshot.phase in _STREAM_ENDED:
            self._enter("merge")
        if snapshot.phase in _TASKS_ENDED:
            self._stopwatch.enter(None)  # ending what they ran on is no part of a phase

    def _restart(self, death: Death) -> None:
        """Leave nothing of what a dead generation has staged; the numbers of the next one begin again."""
        for sink in self._sinks:
            sink.output.restart()
        for rounds in self._rounds.values():
            rounds.clear()
        saved = (self._snapshot and self._snapshot.checkpoints) or CheckpointStats()
        if self._snapshot is not None and self._snapshot.generation < death.generation:  # which has said nothing yet
            saved = CheckpointStats(read=saved.read, read_before=saved.read)
        behind, rows = saved.read, max(0, self._tracker.totals.read - (saved.read - saved.read_before))
        self._dead_checkpoints.append(saved)
        self._tracker = RunTracker()
        lost = RecoveryReport(
            generation=death.generation,
            at=max(0.0, death.at - self._stopwatch.began),
            task=str(death.task),
            node=death.node,
            cause=death.cause,
            rows=rows,
        )
        self._recoveries.append(lost)
        where = f"behind {plural(behind, 'row')}" if behind else "at the start"
        begins = f"generation {death.generation + 1} begins {where} of the input"
        again = f"reads {plural(rows, 'row')} again, as last reported"
        self._observers.warn(f"{death.in_words()}; {begins} and {again}; all numbers begin again")
        self._enter("startup")

    @property
    def _checkpoints(self) -> CheckpointStats | None:
        """Those of all generations."""
        if self._spec.config.checkpoint is None:
            return None
        known, snapshot = self._dead_checkpoints, self._snapshot
        if snapshot is not None and snapshot.checkpoints is not None and snapshot.generation == len(known):
            known = [*known, snapshot.checkpoints]
        return reduce(add, known, CheckpointStats())

    def _note_flow(self) -> None:
        """Note when records flow again after a death."""
        last = self._recoveries[-1] if self._recoveries else None
        if last is not None and last.seconds is None and self._tracker.totals.processed:
            seconds = self._stopwatch.since_began - last.at
            self._recoveries[-1] = replace(last, seconds=seconds)
            self._observers.warn(f"records flow again, {seconds:.1f} s after the death of {last.task} was noticed")

    def _warn(self, message: str) -> None:
        self._warnings.append(message)
        self._observers.warn(message)

    def _report(self, status: str, error: str | None = None) -> Report:
        """What is known."""
        outcome, snapshot, sinks = self._outcome, self._snapshot, {sink.name: sink for sink in self._sinks}
        outcomes = {}
        for step in self._spec.steps:
            if step.is_stage and not step.is_source:
                shares = () if outcome is None else outcome.outputs[step.name]
                first = self._first_tables.get(step.name)
                known = StageOutcome(grouping=step.grouping.kind, shares=shares, first_table=first)
                outcomes[step.name] = sinks[step.name].completed(known) if step.name in sinks else known
        return build_report(
            status=status,
            config=self._spec.config,
            seconds=self._stopwatch.seconds(None if outcome is None else outcome.times.first_record),
            snapshot=snapshot,
            outcomes=outcomes,
            use=outcome.use if outcome is not None else snapshot.use if snapshot is not None else None,
            warnings=self._warnings,
            recoveries=self._recoveries,
            checkpoints=self._checkpoints,
            error=error,
        )


class _Sink:
    """A step whose rows are a result, and what is known of that result.

    Attributes:
        step: the step.
        output: its sink.
        table: the result, where it stays in memory and is complete.
        report: where it is. Before it is published, that is where it would have been.
        compared: the comparison with its reference.
        spark_skew: the skew of Spark's hash partitioning of its records, where that is known.
    """

    def __init__(self, file: JobFile, step: Step, output: Publication | None) -> None:
        """Of `step`, published by `output`, or kept in memory if None."""
        self.step = step
        self.output = output or Publication.of(file, OutputConfig(), step.name)
        self.table: pa.Table | None = None
        self.compared = ReferenceReport()
        self.spark_skew: float | None = None
        self.report = OutputReport(unpublished=self.output.place)
        self._staged: list[Any] = []

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.step.name

    def take(self, outcome: RunOutcome) -> None:
        """Take the complete result, not yet published."""
        shares, place = outcome.outputs[self.name], self.output.place
        self._staged = [staged for part in shares for staged in part.staged]
        self.report = OutputReport(rows=sum(part.rows for part in shares), unpublished=place)
        self.table = self.read() if place is None else None

    def read(self) -> pa.Table:
        """The complete result, not yet published."""
        return self.output.sink.read(self._staged)

    def publish(self, outcome: RunOutcome) -> None:
        """Put the complete result in its place."""
        files = self.output.commit(self._staged, outcome.times.merged - outcome.times.stream_started)
        self.report = OutputReport(self.output.place, self.report.rows, files)

    def completed(self, known: StageOutcome) -> StageOutcome:
        """What is known of the stage, with what is known of its result."""
        return replace(known, spark_skew=self.spark_skew, reference=self.compared, output=self.report)
