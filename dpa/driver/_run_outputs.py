"""Where the rows of one run go: results, partial results and dead letters."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from dpa._util.outages import Outages
from dpa.driver.outputs import DEAD_LETTERS, ResultSink, publish
from dpa.driver.spec import JobSpec
from dpa.protocol.graph import Graph
from dpa.protocol.plan import RunOutcome
from dpa.protocol.task.delivery import Delivery
from dpa.protocol.wire.instructions import Commit
from dpa.result import Report, Result, when_written
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.objects import ResultFiles


class RunOutputs:
    """All sinks of a run.

    Attributes:
        results: the steps whose rows are results, each with its sink.
        outages: how all sinks bear outages of their places.
    """

    def __init__(self, spec: JobSpec, *, is_saved: bool) -> None:
        """`is_saved`: the job makes checkpoints."""
        self.results = [
            ResultSink(spec.file, step, spec.outputs.get(step.at("write")), is_saved=is_saved) for step in spec.results
        ]
        self._by_name = {result.name: result for result in self.results}
        self.outages = Outages()
        self._letters = spec.outputs.get(DEAD_LETTERS)
        self._partial = {
            step.name: spec.outputs[step.at("aggregation")]
            for step in spec.steps
            if step.config.aggregation is not None and step.config.aggregation.path is not None
        }
        self._whole = [result.output for result in self.results] + ([] if self._letters is None else [self._letters])
        for output in (*self._whole, *self._partial.values()):
            output.outages = self.outages

    def know_job(self, job: str) -> None:
        for result in self.results:
            result.know(job)
        if self._letters is not None:
            self._letters.know(job)

    @property
    def letters_place(self) -> str | None:
        """Where dead letters are, or will be; None: nowhere."""
        return None if self._letters is None else self._letters.place

    @property
    def with_checkpoints(self) -> list[str]:
        """The key paths of results whose epochs are committed with checkpoints."""
        return [result.step.at("write") for result in self.results if result.with_checkpoints]

    def begin(self, stack: ExitStack) -> None:
        """Begin results and dead letters, and leave nothing uncommitted of them when `stack` ends."""
        for output in self._whole:
            stack.enter_context(output)

    def begin_partial(self, stack: ExitStack) -> None:
        for partial in self._partial.values():
            stack.enter_context(partial)

    def clear_partial(self) -> None:
        """Have readers see no partial results of an older run."""
        for partial in self._partial.values():
            partial.clear()

    def restart(self) -> None:
        """Drop what a dead generation has staged."""
        for output in (*(result.output for result in self.results), *self._partial.values()):
            output.restart()

    def known_to(self, graph: Graph) -> Graph:
        """The graph whose stages know how their rows come to readers."""
        of = self._by_name
        stages = tuple(of[stage.name].published(stage) if stage.name in of else stage for stage in graph.stages)
        return replace(graph, stages=stages)

    def delivery(self, step: str, delivery: Delivery) -> Delivery:
        result, partial = self._by_name.get(step), self._partial.get(step)
        sink = None if result is None else result.output.sink
        if result is not None and result.output.publishes is not None:
            return replace(delivery, sink=sink, partial=sink)
        return replace(delivery, sink=sink, partial=None if partial is None else partial.sink)

    def commit(self, commit: Commit) -> None:
        """Commit an epoch to a sink of this process."""
        self._by_name[commit.stage].output.commit(commit.staged, commit.at, commit.epoch, is_last=False)

    def take(self, outcome: RunOutcome) -> None:
        """Take the results, which are complete and not yet published."""
        for result in self.results:
            result.take(outcome)

    def publish_letters(self, outcome: RunOutcome) -> None:
        if self._letters is not None:
            publish(self._letters, outcome.letters)

    def result(self, report: Report) -> Result:
        """What a job that has not failed returns."""
        of = self._by_name
        tables = {name: result.table for name, result in of.items() if result.table is not None}
        written = {name: when_written(result.report) for name, result in of.items()}
        keys = {name: result.step.at("write.path") for name, result in of.items()}
        files = (ResultDirectory, ResultFiles)
        sinks = {name: sink for name, result in of.items() if isinstance(sink := result.output.sink, files)}
        return Result(report, tables, written, _keys=keys, _sinks=sinks)
