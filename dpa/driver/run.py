"""One run of a job: load, startup, stream, merge, reference and, last of all, publishing. What is known so far is kept,
so that a run that fails reports it."""

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

from dpa._secrets import without_secrets
from dpa._util.as_yaml import as_yaml
from dpa._util.streams import chosen_level
from dpa.driver._first_tables import with_first_tables
from dpa.driver._joins import Chosen, chosen
from dpa.driver._progress import RunProgress
from dpa.driver._run_outputs import RunOutputs
from dpa.driver._saved_run import SavedRun
from dpa.driver.backend import Backend, Runner
from dpa.driver.inputs import Inputs, OpenedInput, lazy_session
from dpa.driver.placing import Placing
from dpa.driver.reference import Reference
from dpa.driver.spec import JobSpec
from dpa.driver.summary import versions
from dpa.errors import ConfigError, DpaError, JobCancelledError, JobFailedError
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.recovery import Death
from dpa.protocol.wire.metrics import Snapshot
from dpa.protocol.wire.nodes import Placer
from dpa.result import GroupingReport, Report, Result, StageReport
from dpa.runtime.packed_plan import frozen
from dpa.sinks.sink import EpochLogOptions
from dpa.sources.feed import never
from dpa.telemetry.observers import Observer, Observers, RunLog
from dpa.telemetry.spans import spans_of

_log = logging.getLogger(__name__)


class Run:
    """One run of a job, used once."""

    def __init__(
        self,
        spec: JobSpec,
        backend: Backend,
        observers: Sequence[Observer] = (),
        resume: str | None = None,
        closes: Callable[[], bool] = never,
        unverified: Callable[[Result], AbstractContextManager[None]] | None = None,
    ) -> None:
        """`resume`: where the checkpoints are of the job to continue; None: it begins. `closes`, `unverified`: as of
        `Job.run`. ConfigError if a directory cannot be used as the job names it."""
        config = spec.config
        self._backend = backend
        self._asks_to_close, self._unverified = closes, unverified or nullcontext
        self._is_closed = False
        self._progress = RunProgress(Observers(RunLog(_log, config.name), *spans_of(config.name), *observers))
        # All relative paths come first: `for_one_run` imports executors, which may change the working directory.
        log, self._directory = config.epoch_log, spec.file.directory
        self._log_path = log if log is None or "://" in log else str(Path(log).absolute())
        self._saved = _saved(spec, resume)
        self._spec = spec = spec.for_one_run()
        self._inputs = Inputs(spec)
        self._chosen = Chosen(spec, {})
        self._outputs = RunOutputs(spec, is_saved=self._saved is not None)
        self._know_job(uuid.uuid4().hex)
        self._first_tables: dict[str, str] = {}
        self._references: list[Reference] = []
        self._outcome: RunOutcome | None = None

    def _know_job(self, job: str) -> None:
        self._job = job
        self._outputs.know_job(job)

    @property
    def resumable(self) -> str | None:
        """Where the checkpoints are from which another run can continue; None: nowhere."""
        return None if self._saved is None else self._saved.resumable

    def result(self) -> Result:
        """Check, run, clean up however it ends, and report. ConfigError if something was wrong before any task started,
        or a reference query is; JobCancelledError if a request ended the job."""
        self.check()
        try:
            with self._progress.program_end:
                self._through()
        except (ConfigError, JobCancelledError):
            raise
        except DpaError as error:
            _log.info("%s: failed: %s", self._spec.config.name, error)  # not louder: the caller receives it
            events = error.events if isinstance(error, JobFailedError) else {}
            return Result(self._report("failed", str(error)), events=events)
        is_other = any(result.compared.matches is False for result in self._outputs.results)
        return self._outputs.result(self._report("mismatch" if is_other else "ok"))

    def check(self) -> None:
        """ConfigError if something is wrong; looks at checkpoints, and reads no input."""
        if self._saved is not None and self._saved.resumes:
            self._know_job(self._saved.find().job)
            self._saved.require_known(self._outputs.all)
        self._spec.check()
        self._inputs.check()
        self._spec.check_executors()

    def _through(self) -> None:
        """All phases. Nothing can fail after the first result is published but publishing the next, so a job that
        failed has published none, or, of several, those whose directories could be replaced before one could not."""
        # Two stacks: Ray, Spark and the inputs end before results are published, and what was staged goes last of all.
        with ExitStack() as directories:
            self._claim(directories)
            with ExitStack() as stack:
                opened, tasks = self._load(stack)
                outcome = self._outcome = self._stream(opened, tasks())
                self._outputs.take(outcome)
                self._compare(outcome)
            self._publish(outcome)

    def _claim(self, stack: ExitStack) -> None:
        """Have the places of checkpoints, results and dead letters belong to this run while `stack` is open."""
        if self._saved is not None:
            saved = stack.enter_context(self._saved)
            self._know_job(saved.saved.job)
            self._progress.begin(saved.saved, resumes=saved.resumes)
        self._outputs.begin(stack)

    def _load(self, stack: ExitStack) -> tuple[Mapping[str, OpenedInput], Callable[[], Runner]]:
        """Open the inputs, and have Spark resolve references. Tasks are prepared at the latest when they are called."""
        is_placed = self._spec.config.is_allocated
        # Ray starts together with Spark. Where tasks are placed, their nodes depend on what the inputs cost, so it
        # cannot start before these are open.
        early = None if is_placed else self._tasks(stack)
        spark = lazy_session(self._spec.config, stack, first=early)
        self._progress.enter("load")
        kept = None if self._saved is None else self._saved.kept
        opened = self._inputs.open(stack, spark, kept=kept)
        self._chosen = chosen(self._spec, opened, None if self._saved is None else self._saved.sides)
        tasks = early or self._tasks(stack, Placing.of(self._chosen.spec, self._chosen.opened).placed)
        references = [Reference(self._spec, result.step, opened, spark) for result in self._outputs.results]
        if early is not None:
            early()  # Spark may start in another thread
        for reference in references:
            if reference.is_asked:
                reference.begin(stack, is_late=self._saved is None and self._outputs.are_last)
        self._references = references
        return opened, tasks

    def _tasks(self, stack: ExitStack, placer: Placer | None = None) -> Callable[[], Runner]:
        """A function that prepares tasks when it is first called, until `stack` closes. `placer`: where they start."""
        tasks = sum(step.tasks or 0 for step in self._spec.steps)
        block = self._backend.prepared(tasks, placer, self._spec.demand)
        return cache(lambda: stack.enter_context(block))

    def _stream(self, opened: Mapping[str, OpenedInput], tasks: Runner) -> RunOutcome:
        plan = self._plan(opened, tasks)
        progress, bear = self._progress, self._outputs.outages
        try:
            patience, wait = plan.limits.patience, progress.program_end.wait
            bear.begin(patience, lambda words: progress.warn(f"the job {words}"), wait, time.monotonic)
            hooks = RunHooks(self._update, progress.warn, self._restart, self._closes, self._outputs.commit, bear.bear)
            outcome = tasks.run(plan, hooks)
        finally:
            progress.leave_phase()
        progress.end(outcome)
        return outcome

    def _plan(self, opened: Mapping[str, OpenedInput], tasks: Runner) -> RunPlan:
        """What tasks are to run; inputs are sampled for as long as these start."""
        spec, read = self._chosen.spec, self._chosen.opened
        plan = spec.plan(
            {name: found.splits for name, found in read.items()},
            {name: found.schema for name, found in read.items()},
            {name: found.feed for name, found in read.items() if found.feed is not None},
        )
        graph, saved = plan.graph, self._saved
        self._progress.enter("startup")
        # A resumed job has the tables of its checkpoint.
        if self._backend.samples and not (saved and saved.resumes):
            plan = frozen(plan)  # the sample may change what user code holds
            graph, self._first_tables = with_first_tables(graph, spec, read, lambda: tasks.is_ready)
        return replace(
            plan,
            graph=self._outputs.known_to(graph),
            deliveries={name: self._outputs.delivery(name, to) for name, to in plan.deliveries.items()},
            log_level=chosen_level(),
            saved=None if saved is None else saved.know(opened, self._outputs.with_checkpoints, self._chosen.digests),
            epoch_log=self._epoch_log(),
        )

    def _epoch_log(self) -> EpochLogOptions | None:
        if self._log_path is None:
            return None
        name = self._spec.config.name
        job = f"{name}-{self._job}" if self._saved is None else self._saved.saved.job
        known = {"directory": str(self._directory), "job": self._spec.config.resolved()}
        return EpochLogOptions(f"{self._log_path.rstrip('/')}/{job}", job, as_yaml(known))

    def _update(self, snapshot: Snapshot) -> None:
        for reference in self._references:
            reference.require_right()
        self._progress.update(snapshot)

    def _closes(self) -> bool:
        if self._asks_to_close() and not self._is_closed:
            self._is_closed = True
            then = "" if self._saved is None else "; its checkpoints go then, and stay with `dpa control stop`"
            ends = "the job ends with what has come, and at once if asked again"
            self._progress.show(f"the inputs are closed; {ends}{then}")
        return self._is_closed

    def _restart(self, death: Death) -> None:
        if self._saved is not None:
            self._saved.lives += 1
        self._outputs.restart()
        self._progress.restart(death)

    def _compare(self, outcome: RunOutcome) -> None:
        if not any(reference.is_asked for reference in self._references):
            return
        self._progress.enter("reference")
        takes_time = any(reference.takes_time for reference in self._references)
        with self._unverified(self._outputs.result(self._report("unverified"))) if takes_time else nullcontext():
            for reference in self._references:  # one may take long before another is found to be wrong
                reference.require_right(waits=True)
            for result, reference in zip(self._outputs.results, self._references, strict=True):
                result.compared = reference.compare(result.read, outcome)
                result.spark_skew = reference.spark_skew(outcome)
        self._progress.leave_phase()

    def _publish(self, outcome: RunOutcome) -> None:
        for report in self._outputs.publish(outcome):
            _log.info("%s: published %d rows at %s", self._spec.config.name, report.rows, report.path)
        if self._saved is not None:
            self._saved.done()

    def _report(self, status: str, error: str | None = None) -> Report:
        results, config = {result.step.name: result for result in self._outputs.results}, self._spec.config
        stages = []
        for step in self._chosen.spec.steps:
            if step.is_stage and not step.is_source:
                first, grouping = self._first_tables.get(step.name), GroupingReport(step.grouping.kind)
                known = StageReport(step.name, "operator", grouping=grouping, first_table=first)
                stages.append(results[step.name].completed(known) if step.name in results else known)
        report = Report(
            status,
            config.name,
            self._backend.name,
            stages=tuple(stages),
            joins=self._chosen.joins,
            config=without_secrets(config.resolved()),
            versions=versions(),
            dead_letters=self._outputs.letters_place,
            error=error,
        )
        first_generation = None if self._saved is None else self._saved.saved.generation
        return self._progress.report(report, self._outcome, first_generation)


def _saved(spec: JobSpec, resume: str | None) -> SavedRun | None:
    """What the run has for its checkpoints; None: it makes none. ConfigError if it cannot resume."""
    if spec.config.checkpoint is not None:
        return SavedRun(spec, spec.config.checkpoint, resume)
    if resume is not None:
        raise spec.file.error("checkpoint", "a job that is resumed makes checkpoints too: give it a `path`")
    return None
