"""A step whose rows are a result, from its first task to its publishing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from dpa.config import JobFile, OutputConfig
from dpa.driver._stage_summary import StageOutcome
from dpa.driver.outputs import Publication
from dpa.logical.step import Step
from dpa.protocol.graph import Stage
from dpa.protocol.plan import RunOutcome
from dpa.result import OutputReport, ReferenceReport


class ResultSink:
    """A step whose rows are a result, and what is known of that result.

    Attributes:
        step: the step.
        output: its sink.
        table: the result, where it stays in memory and is complete.
        report: where it is. Before it is published, that is where it would have been.
        compared: the comparison with its reference.
        spark_skew: the skew of Spark's hash partitioning of its records, where that is known.
    """

    def __init__(self, file: JobFile, step: Step, output: Publication | None, *, is_saved: bool) -> None:
        """Of `step`, published by `output`, or kept in memory if None; `is_saved`: the job makes checkpoints."""
        self.step = step
        self.output = output or Publication.of(file, OutputConfig(), step.name)
        sink = self.output.sink
        sink.key = step.key
        sink.with_checkpoints = is_saved and self._publishes_once and not sink.in_driver
        self.table: pa.Table | None = None
        self.compared = ReferenceReport()
        self.spark_skew: float | None = None
        self.report = OutputReport(unpublished=self.output.place)
        self._staged: list[Any] = []

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.step.name

    @property
    def _publishes_once(self) -> bool:
        """Whether no row of an epoch is published again in a later one."""
        return self.output.sink.publishes in ("final", "changes")

    def published(self, stage: Stage) -> Stage:
        """The step's stage, which knows how its rows come to readers."""
        exact = self.output.sink.with_checkpoints
        return replace(stage, commits_with_checkpoints=exact, publishes_once=self._publishes_once and not exact)

    def take(self, outcome: RunOutcome) -> None:
        """Take the complete result, not yet published."""
        shares, place = outcome.outputs[self.name], self.output.place
        self._staged = [*outcome.staged.get(self.name, ()), *(staged for part in shares for staged in part.staged)]
        rows, published = sum(part.rows for part in shares), outcome.snapshot[self.name].aggregation
        if published is not None and self.output.sink.publishes == "final":  # the shares are what is left
            rows += published.rows
        self.report = OutputReport(rows=rows, unpublished=place)
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
