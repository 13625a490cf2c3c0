"""Where the rows of one run go: results and dead letters."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from dpa._util.outages import Outages
from dpa.driver.outputs import DEAD_LETTERS, StepOutputs, publish
from dpa.driver.spec import JobSpec
from dpa.protocol.graph import Graph
from dpa.protocol.plan import RunOutcome
from dpa.protocol.task.delivery import Delivery
from dpa.protocol.wire.instructions import Commit
from dpa.result import OutputReport, Report, Result, when_written
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.objects import ResultFiles


class RunOutputs:
    """All sinks of a run.

    Attributes:
        results: the steps whose rows are results.
        all: where rows of steps go.
        outages: how all sinks bear outages of their places.
    """

    def __init__(self, spec: JobSpec, *, is_saved: bool) -> None:
        """`is_saved`: the job makes checkpoints."""
        self._steps = {
            step.name: StepOutputs(spec.file, step, spec.outputs, is_saved=is_saved)
            for step in spec.steps
            if step.outputs
        }
        self.results = [found for found in self._steps.values() if found.step.is_result]
        self.outages = Outages()
        self._letters = spec.outputs.get(DEAD_LETTERS)
        self.all = [output for found in self._steps.values() for output in found.outputs]
        for output in (*self.all, *filter(None, [self._letters])):
            output.outages = self.outages

    def know_job(self, job: str) -> None:
        for found in self._steps.values():
            found.know(job)
        if self._letters is not None:
            self._letters.know(job)

    @property
    def letters_place(self) -> str | None:
        """Where dead letters are, or will be; None: nowhere."""
        return None if self._letters is None else self._letters.place

    @property
    def with_checkpoints(self) -> list[str]:
        """The key paths of outputs whose epochs are committed with checkpoints."""
        return [key for found in self._steps.values() for key in found.with_checkpoints]

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
        of = self._steps
        stages = tuple(of[stage.name].published(stage) if stage.name in of else stage for stage in graph.stages)
        return replace(graph, stages=stages)

    def delivery(self, step: str, delivery: Delivery) -> Delivery:
        found = self._steps[step].outputs if step in self._steps else ()
        sinks, publishes = [output.sink for output in found], [output.publishes for output in found]
        return replace(delivery, sinks=tuple(sinks), publishes=tuple(publishes))

    def commit(self, commit: Commit) -> None:
        output = self._steps[commit.stage].outputs[commit.output]
        output.commit(commit.staged, commit.at, commit.epoch, is_last=False)

    def take(self, outcome: RunOutcome) -> None:
        """Take the results, which are complete and not yet published."""
        for found in self._steps.values():
            found.take(outcome)

    def publish(self, outcome: RunOutcome) -> Iterator[OutputReport]:
        """Publish dead letters, and then one step after another; yields where that is."""
        if self._letters is not None:
            publish(self._letters, outcome.letters)
        for found in self._steps.values():
            found.publish(outcome)
            yield from (report for report in found.reports if report.path is not None)

    def result(self, report: Report) -> Result:
        of = {found.name: found for found in self.results}
        tables = {name: result.table for name, result in of.items() if result.table is not None}
        written = {name: when_written(result.report) for name, result in of.items()}
        keys = {name: result.step.at("write.path") for name, result in of.items()}
        mains = {name: result.outputs[result.main].sink for name, result in of.items()}
        sinks = {name: sink for name, sink in mains.items() if isinstance(sink, ResultDirectory | ResultFiles)}
        return Result(report, tables, written, _keys=keys, _sinks=sinks)
