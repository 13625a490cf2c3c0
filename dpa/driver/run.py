"""One run of a job: load, startup, stream, merge, reference and, last of all, publishing. What is known so far is kept,
so that a run that fails reports it."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, reduce
from operator import add
from pathlib import Path

from dpa._secrets import hidden
from dpa._util.as_yaml import as_yaml
from dpa._util.outages import Outages
from dpa._util.streams import chosen_level
from dpa._util.words import plural
from dpa.driver._first_tables import with_first_tables
from dpa.driver._saved_run import SavedRun
from dpa.driver.backend import Backend, Runner
from dpa.driver.inputs import Inputs, OpenedInput, lazy_session
from dpa.driver.interrupts import ProgramEnd
from dpa.driver.outputs import DEAD_LETTERS, PartialPublication, ResultSink, publish, published
from dpa.driver.placing import Placing
from dpa.driver.reference import Reference
from dpa.driver.spec import JobSpec
from dpa.driver.summary import StageOutcome, Stopwatch, build_report
from dpa.errors import ConfigError, DpaError, JobCancelledError, JobFailedError
from dpa.protocol.plan import RunHooks, RunOutcome
from dpa.protocol.recovery import Death
from dpa.protocol.task.delivery import Delivery
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.metrics import CheckpointStats, Snapshot
from dpa.protocol.wire.nodes import Place
from dpa.result import RecoveryReport, Report, Result, when_written
from dpa.runtime.packed_plan import frozen
from dpa.sinks.objects import ParquetObjects
from dpa.sinks.sink import EpochLogOptions
from dpa.sources.feed import never
from dpa.telemetry.observers import Observer, Observers, RunLog, Unobserved
from dpa.telemetry.tracker import RunTracker

_log = logging.getLogger(__name__)

_STREAM_ENDED = ("merge", "done")
"""Phases of a snapshot in which its numbers of the stream are final."""

_TASKS_ENDED = ("done", "failed")
"""Phases of the last snapshot of a run."""


class Run:
    """One run of a job, used once. Its attributes fill as it goes; the report is made of those that are known."""

    def __init__(
        self,
        spec: JobSpec,
        backend: Backend,
        observer: Observer | None = None,
        resume: str | None = None,
        closes: Callable[[], bool] = never,
    ) -> None:
        """`resume`: where the checkpoints are of the job to continue; None: it begins. `closes`: whether open inputs
        are to be closed now. ConfigError if a directory cannot be what the job needs of it."""
        self._backend = backend
        self._asks_to_close = closes
        self._is_closed = False
        self._tracker = RunTracker()
        self._observers = Observers(RunLog(_log, spec.config.name), observer or Unobserved())
        self._stopwatch = Stopwatch()
        # Directories first: the executors that steps import may change the working directory.
        partial = {
            key: PartialPublication(spec.file, given.path, key)
            for key, given in published(spec.file)
            if given.path is not None
        }
        log, self._directory = spec.config.epoch_log, spec.file.directory
        self._log_path = log if log is None or "://" in log else str(Path(log).absolute())
        self._saved = None
        if spec.config.checkpoint is not None:
            self._saved = SavedRun(spec, spec.config.checkpoint, resume)
        elif resume is not None:
            raise spec.file.error("checkpoint", "a job that is resumed makes checkpoints too: give it a `path`")
        self._spec = spec = spec.for_one_run()
        self._inputs = Inputs(spec)
        is_saved = self._saved is not None
        self._sinks = [
            ResultSink(spec.file, step, spec.outputs.get(step.at("write")), is_saved=is_saved) for step in spec.results
        ]
        self._dead_letters = spec.outputs.get(DEAD_LETTERS)
        self._know_job(uuid.uuid4().hex)
        self._partial = {
            step.name: partial[step.at("aggregation")]
            for step in spec.steps
            if step.config.aggregation is not None and step.config.aggregation.path is not None
        }
        self._outages = Outages()
        letters = () if self._dead_letters is None else (self._dead_letters,)
        for output in (*(sink.output for sink in self._sinks), *self._partial.values(), *letters):
            output.outages = self._outages
        self._snapshot: Snapshot | None = None
        self._warnings: list[str] = []
        self._errors_seen: set[tuple[str, str]] = set()
        self._recoveries: list[RecoveryReport] = []
        self._dead_checkpoints: list[CheckpointStats] = []
        self._no_checkpoint = CheckpointStats()
        self._outcome: RunOutcome | None = None
        self._program_end = ProgramEnd()
        self._first_tables: dict[str, str] = {}

    def _know_job(self, job: str) -> None:
        self._job = job
        for sink in self._sinks:
            sink.output.sink.job = job
        if self._dead_letters is not None:
            self._dead_letters.sink.job = job

    @property
    def resumable(self) -> str | None:
        """Where the checkpoints are from which another run can continue; None: nowhere."""
        return None if self._saved is None else self._saved.resumable

    def result(self) -> Result:
        """Check, run, clean up however it ends, and report. ConfigError if something was wrong before any task started;
        JobCancelledError if a request ended the job."""
        if self._saved is not None and self._saved.resumes:
            self._know_job(self._saved.find().job)
            self._saved.require_known(sink.output for sink in self._sinks)
        self._spec.check()
        self._inputs.check()
        self._spec.check_executors()
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
        far = {sink.name: sink.output.sink for sink in self._sinks if isinstance(sink.output.sink, ParquetObjects)}
        return Result(self._report(status), tables, written, _keys=keys, _sinks=far)

    def _through(self) -> None:
        """All phases. Nothing can fail after the first result is published but publishing the next, so a job that
        failed has published none, or, of several, those whose directories could be replaced before one could not."""
        # Two stacks: Ray, Spark and the inputs end before results are published, and what was staged goes last of all.
        with ExitStack() as directories:
            if self._saved is not None:
                self._begin(directories.enter_context(self._saved))
            for sink in self._sinks:
                directories.enter_context(sink.output)
            if self._dead_letters is not None:
                directories.enter_context(self._dead_letters)
            with ExitStack() as stack:
                for partial in self._partial.values():
                    stack.enter_context(partial)
                placement = self._spec.config.placement
                # Where tasks are placed, the nodes depend on what the inputs cost, so Ray cannot start before them.
                tasks = self._lazy_tasks(stack) if placement is None else None
                spark = lazy_session(self._spec.config, stack, first=tasks)
                self._enter("load")
                kept = None if self._saved is None else self._saved.kept
                opened = self._inputs.open(stack, spark, early=self._backend.samples, kept=kept)
                if tasks is None:
                    tasks = self._lazy_tasks(stack, Placing.of(self._spec, opened).placed)
                references = [Reference(self._spec, sink.step, opened, spark) for sink in self._sinks]
                for reference in references:
                    if reference.is_asked:
                        reference.check()
                for partial in self._partial.values():
                    partial.clear()
                outcome = self._stream(opened, tasks())
                for sink in self._sinks:
                    sink.take(outcome)
                if any(reference.is_asked for reference in references):
                    self._enter("reference")
                    for sink, reference in zip(self._sinks, references, strict=True):
                        sink.compared = reference.compare(sink.read, outcome)
                        sink.spark_skew = reference.spark_skew(outcome)
                    self._stopwatch.enter(None)
            self._publish(outcome)
            if self._saved is not None:
                self._saved.done()

    def _publish(self, outcome: RunOutcome) -> None:
        if self._dead_letters is not None:
            publish(self._dead_letters, outcome.letters)
        for sink in self._sinks:
            sink.publish(outcome)
            if sink.report.path is not None:
                name = self._spec.config.name
                _log.info("%s: published %d rows at %s", name, sink.report.rows, sink.report.path)

    def _begin(self, saved: SavedRun) -> None:
        """Report that a resumed job continues. For the report, its driver has died."""
        job = saved.saved
        self._know_job(job.job)
        self._no_checkpoint = CheckpointStats(read=job.read, read_before=job.read)
        if saved.resumes:
            behind = f"resumed behind {plural(job.read, 'row')} of the input, with the checkpoints of {job.job}"
            self._recoveries.append(RecoveryReport(job.generation - 1, 0.0, "driver", "", behind, rows=None))
            self._observers.warn(behind)

    def _lazy_tasks(self, stack: ExitStack, place: Place | None = None) -> Callable[[], Runner]:
        """A function whose first call has the backend prepare tasks for as long as `stack` is open. Called before Spark
        starts, so that both start together; else once the input has been checked. `place`: where tasks start, if that
        matters."""
        tasks = sum(step.tasks or 0 for step in self._spec.steps)
        return cache(lambda: stack.enter_context(self._backend.prepared(tasks, place)))

    def _stream(self, opened: Mapping[str, OpenedInput], tasks: Runner) -> RunOutcome:
        plan = self._spec.plan(
            {name: found.splits for name, found in opened.items()},
            {name: found.schema for name, found in opened.items()},
            {name: found.feed for name, found in opened.items() if found.feed is not None},
            [name for name, found in opened.items() if found.ends],
        )
        graph = plan.graph
        self._enter("startup")  # inputs are sampled for as long as Ray starts
        if self._backend.samples and not (self._saved and self._saved.resumes):
            plan = frozen(plan)  # the sample may change what user code holds
            graph, self._first_tables = with_first_tables(graph, self._spec, opened, lambda: tasks.is_ready)
        sinks = {sink.name: sink for sink in self._sinks}
        publishes = [sink.step.at("write") for sink in self._sinks if sink.output.sink.with_checkpoints]
        stages = tuple(sinks[each.name].published(each) if each.name in sinks else each for each in graph.stages)
        plan = replace(
            plan,
            graph=replace(graph, stages=stages),
            deliveries={name: self._delivery(name, to) for name, to in plan.deliveries.items()},
            log_level=chosen_level(),
            saved=None if self._saved is None else self._saved.know(opened, publishes),
            epoch_log=self._epoch_log(),
        )
        try:
            self._outages.begin(
                plan.limits.patience,
                lambda words: self._warn(f"the job {words}"),
                self._program_end.wait,
                time.monotonic,
            )
            hooks = RunHooks(self._update, self._warn, self._restart, self._closes, self._commit, self._outages.bear)
            outcome = tasks.run(plan, hooks)
        finally:
            self._stopwatch.enter(None)
        times = outcome.times
        self._stopwatch.correct(
            stream=times.stream_ended - times.stream_started, merge=times.merged - times.stream_ended
        )
        self._outcome, self._snapshot = outcome, outcome.snapshot
        return outcome

    def _epoch_log(self) -> EpochLogOptions | None:
        if self._log_path is None:
            return None
        name = self._spec.config.name
        job = f"{name}-{self._job}" if self._saved is None else self._saved.saved.job
        known = {"directory": str(self._directory), "job": self._spec.config.resolved()}
        return EpochLogOptions(f"{self._log_path.rstrip('/')}/{job}", job, as_yaml(known))

    def _delivery(self, step: str, delivery: Delivery) -> Delivery:
        sink = next((sink.output.sink for sink in self._sinks if sink.name == step), None)
        if sink is not None and sink.publishes is not None:
            return replace(delivery, sink=sink, partial=sink)
        partial = self._partial.get(step)
        return replace(delivery, sink=sink, partial=None if partial is None else partial.sink)

    def _closes(self) -> bool:
        if self._asks_to_close() and not self._is_closed:
            self._is_closed = True
            self._observers.warn("the inputs are closed; the job ends with what has come, and at once if asked again")
        return self._is_closed

    def _commit(self, commit: Commit) -> None:
        """Commit an epoch to a sink of this process."""
        output = next(sink.output for sink in self._sinks if sink.name == commit.stage)
        output.commit(commit.staged, commit.at, commit.epoch)

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
        self._note_flow(snapshot)
        self._note_errors(snapshot)
        if self._stopwatch.phase == "stream" and snapshot.phase in _STREAM_ENDED:
            self._enter("merge")
        if snapshot.phase in _TASKS_ENDED:
            self._stopwatch.enter(None)  # ending what they ran on is no part of a phase

    def _restart(self, death: Death) -> None:
        """Drop what a dead generation has staged. The numbers of the next one begin again."""
        if self._saved is not None:
            self._saved.lives += 1
        for sink in self._sinks:
            sink.output.restart()
        for partial in self._partial.values():
            partial.restart()
        saved = (self._snapshot and self._snapshot.checkpoints) or self._no_checkpoint
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
            cause=hidden(death.cause),
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
        """Of all generations."""
        if self._saved is None:
            return None
        known, snapshot = self._dead_checkpoints, self._snapshot
        generation = self._saved.saved.generation + len(known)
        if snapshot is not None and snapshot.checkpoints is not None and snapshot.generation == generation:
            known = [*known, snapshot.checkpoints]
        return reduce(add, known, self._no_checkpoint)

    def _note_errors(self, snapshot: Snapshot) -> None:
        """Warn of an error of user code the first time that a step has one of its type."""
        for found in snapshot.errors:
            if (found.step, found.error) not in self._errors_seen:
                self._errors_seen.add((found.step, found.error))
                what = "a dead letter" if found.kept else "skipped"
                self._observers.warn(f"{found.example}; the record is {what}, and so are others of {found.step}")

    def _note_flow(self, snapshot: Snapshot) -> None:
        """Note how far a generation is that follows a death, and when records flow again."""
        last = self._recoveries[-1] if self._recoveries else None
        if last is None or last.seconds is not None:
            return
        seconds = self._stopwatch.since_began - last.at
        if last.begun is None:
            last = replace(last, begun=seconds - snapshot.at)
        if last.restored is None and snapshot.at > 0:
            last = replace(last, restored=seconds - snapshot.at)
        if self._tracker.totals.handled:
            last = replace(last, seconds=seconds)
            since = "the start of this driver" if last.rows is None else f"the death of {last.task} was noticed"
            self._observers.warn(f"records flow again, {seconds:.1f} s after {since}")
        self._recoveries[-1] = last

    def _warn(self, message: str) -> None:
        self._warnings.append(hidden(message))
        self._observers.warn(message)

    def _report(self, status: str, error: str | None = None) -> Report:
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
            dead_letters=None if self._dead_letters is None else self._dead_letters.place,
            error=error,
        )
