"""Where the rows of one run go: results and dead letters."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pyarrow as pa

from dpa._util.outages import Outages
from dpa.driver.outputs import DEAD_LETTERS, Publication, publish
from dpa.driver.spec import JobSpec
from dpa.logical.step import Step
from dpa.protocol.graph import Graph
from dpa.protocol.plan import RunOutcome
from dpa.protocol.task.delivery import Delivery
from dpa.protocol.wire.instructions import Commit
from dpa.result import OutputReport, ReferenceReport, Report, Result, SkewReport, StageReport, when_written
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.objects import ResultFiles


@dataclass
class StepOutputs:
    """Where the rows of a step go: the complete result to `main`, and to the other `outputs` as well. `table`: the
    result, if it stays in memory."""

    step: Step
    outputs: list[Publication]
    main: Publication
    table: pa.Table | None = None
    compared: ReferenceReport = field(default_factory=ReferenceReport)
    spark_skew: float | None = None

    def read(self) -> pa.Table:
        return self.main.sink.read(self.main.staged)

    def completed(self, known: StageReport) -> StageReport:
        more = tuple(output.report for output in self.outputs if output is not self.main)
        skew = None if self.spark_skew is None else SkewReport(spark=self.spark_skew)
        return replace(known, skew=skew, reference=self.compared, output=self.main.report, more_outputs=more)


class RunOutputs:
    """All sinks of a run.

    Attributes:
        results: the steps whose rows are results.
        all: where rows of steps go.
        outages: how all sinks bear outages of their places.
    """

    def __init__(self, spec: JobSpec, *, is_saved: bool) -> None:
        """`is_saved`: the job makes checkpoints."""
        self._is_saved = is_saved
        self._steps = {step.name: _outputs_of(step, spec) for step in spec.steps if step.outputs}
        self.results = [found for found in self._steps.values() if found.step.is_result]
        self.outages = Outages()
        self._letters = spec.outputs.get(DEAD_LETTERS)
        self.all = [output for found in self._steps.values() for output in found.outputs]
        for output in (*self.all, *filter(None, [self._letters])):
            output.outages = self.outages

    def know_job(self, job: str) -> None:
        for found in self._steps.values():
            for output in found.outputs:
                exact = self._is_saved and output.publishes_once and not output.sink.in_driver
                output.know(job, found.step.key, with_checkpoints=exact)
        if self._letters is not None:
            self._letters.know(job)

    @property
    def are_last(self) -> bool:
        """Whether nothing is published before the job ends."""
        return all(output.publishes is None for output in self.all)

    @property
    def letters_place(self) -> str | None:
        """Where dead letters are, or will be; None: nowhere."""
        return None if self._letters is None else self._letters.place

    @property
    def with_checkpoints(self) -> list[str]:
        """The key paths of outputs whose epochs are committed with checkpoints."""
        pairs = (zip(found.step.outputs, found.outputs, strict=True) for found in self._steps.values())
        return [key for each in pairs for key, output in each if output.sink.with_checkpoints]

    def begin(self, stack: ExitStack) -> None:
        """Begin all outputs and dead letters, and leave nothing uncommitted of them when `stack` ends."""
        for output in (*self.all, *filter(None, [self._letters])):
            stack.enter_context(output)

    def restart(self) -> None:
        """Drop what a dead generation has staged."""
        for output in self.all:
            output.restart()

    def known_to(self, graph: Graph) -> Graph:
        """The graph whose stages know how their rows come to readers."""
        stages = []
        for stage in graph.stages:
            how = zip(stage.publishing, self._of(stage.name), strict=False)
            exact = ((each, output, output.sink.with_checkpoints) for each, output in how)
            known = [replace(each, with_checkpoints=is_, once=to.publishes_once and not is_) for each, to, is_ in exact]
            stages.append(replace(stage, publishing=tuple(known)) if known else stage)
        return replace(graph, stages=tuple(stages))

    def delivery(self, step: str, delivery: Delivery) -> Delivery:
        sinks, publishes = [output.sink for output in self._of(step)], [output.publishes for output in self._of(step)]
        return replace(delivery, sinks=tuple(sinks), publishes=tuple(publishes))

    def commit(self, commit: Commit) -> None:
        self._of(commit.stage)[commit.output].commit(commit.staged, commit.at, commit.epoch, is_last=False)

    def take(self, outcome: RunOutcome) -> None:
        """Take the results, which are complete and not yet published."""
        for name, found in self._steps.items():
            shares, published = outcome.outputs[name], outcome.snapshot[name].aggregation
            rows = sum(part.rows for part in shares)
            first = next((output.publishes for output in found.outputs if output.publishes is not None), None)
            if published is not None and first == "final":  # the shares are what is left
                rows += published.rows
            for number, output in enumerate(found.outputs):
                of_shares = (part.staged[number] for part in shares if number in part.staged)
                output.staged = [*outcome.staged.get((name, number), ()), *of_shares]
                output.report = replace(output.report, rows=rows)
            found.table = found.read() if found.main.place is None else None

    def publish(self, outcome: RunOutcome) -> Iterator[OutputReport]:
        """Publish dead letters, and then one step after another; yields where that is."""
        if self._letters is not None:
            publish(self._letters, outcome.letters)
        seconds = outcome.times.merged - outcome.times.stream_started
        for output in self.all:
            files = output.commit(output.staged, seconds, outcome.epoch)
            output.report = OutputReport(output.place, output.report.rows, files)
            if output.place is not None:
                yield output.report

    def result(self, report: Report) -> Result:
        of = {found.step.name: found for found in self.results}
        tables = {name: result.table for name, result in of.items() if result.table is not None}
        written = {name: when_written(result.main.report) for name, result in of.items()}
        keys = {name: result.step.at("write.path") for name, result in of.items()}
        mains = {name: result.main.sink for name, result in of.items()}
        sinks = {name: sink for name, sink in mains.items() if isinstance(sink, ResultDirectory | ResultFiles)}
        return Result(report, tables, written, _keys=keys, _sinks=sinks)

    def _of(self, step: str) -> list[Publication]:
        return self._steps[step].outputs if step in self._steps else []


def _outputs_of(step: Step, spec: JobSpec) -> StepOutputs:
    outputs = [
        Publication.of(spec.file, output, step.name) if output.is_memory else spec.outputs[key]
        for key, output in step.outputs.items()
    ]
    return StepOutputs(step, outputs, outputs[[*step.outputs].index(step.main) if step.is_result else 0])
