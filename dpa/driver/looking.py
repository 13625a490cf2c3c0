"""A step of a flow that is looked at while the flow is built: its first rows, their number, its columns, its plan.

The first rows of each input go through the graph of the steps that they pass, in this process (`_graph_walk`): neither
Ray nor Spark is started, nothing is written, and functions of the user's are called on these rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import pyarrow as pa

from dpa._util.inference import known
from dpa._util.words import plural
from dpa.config import JobConfig, JobFile, parse
from dpa.driver import FIRST_ROWS
from dpa.driver._graph_walk import Walk
from dpa.driver._joins import Chosen, chosen
from dpa.driver._steps import Objects
from dpa.driver.forecast import Forecast, forecast_of
from dpa.driver.inputs import Inputs, OpenedInput, blaming
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError
from dpa.logical.compilation import Compilation
from dpa.operators import RowKind, RowOperator
from dpa.sources.feed import Feed
from dpa.sources.files import FileTable
from dpa.sources.splits import MemorySplit, Split

_FIRST_BY_KEY = 10_000
"""Rows of each input that are looked at first where a step by key needs all rows: few keys would show with fewer."""

_PLANNED_ROWS = 1_000  # rows of each input that go through user code for a plan

_FASTER, _MAX_ROWS = 8, 65_536
"""Each time by how many times more rows are taken where those before gave too few, and how many at most."""


@dataclass(frozen=True)
class Looked:
    """Rows of a step.

    Attributes:
        rows: those that the looked-at rows of the inputs give.
        inputs: for each step that reads, how many of its rows were looked at, and whether these are all.
        by_key: the steps that make one row of many; their rows are not those of a run unless all were looked at.
        is_thinned: whether pairs of rows were left out, as a join has very many.
    """

    rows: pa.Table
    inputs: Mapping[str, tuple[int, bool]]
    by_key: tuple[str, ...]
    is_thinned: bool = False

    @property
    def is_whole(self) -> bool:
        return all(is_all for _, is_all in self.inputs.values())

    def says(self, shown: int) -> str:
        """What the first `shown` rows are, for a heading."""
        found = self.rows.num_rows
        if found >= shown and not self.by_key and not self.is_whole:
            return f"first {plural(shown, 'row')}"
        said = plural(found, "row") if found <= shown else f"first {shown:,} of {plural(found, 'row')}"
        if not self.is_whole:
            taken = (
                f"{'all' if is_all else 'the first'} {plural(rows, 'row')} of {name}"
                for name, (rows, is_all) in self.inputs.items()
            )
            said += f", made of {' and '.join(taken)}"
        return f"{said}, without some pairs of a join that has very many" if self.is_thinned else said


class Looking:
    """A step, with all those that it takes rows from.

    Attributes:
        stages: their sections, in the order of the flow.
    """

    def __init__(
        self,
        sections: Mapping[str, Any],
        stages: Mapping[str, Any],
        objects: Objects,
        step: str,
        file: JobFile | None = None,
    ) -> None:
        """`sections` and `stages` are those of the flow's document, `objects` as for a `JobSpec`; `file` is where the
        sections stand, if they were read. ConfigError if a section does not fit."""
        self._file = file
        self._step = step
        self._sections = sections
        self._objects = objects
        self.stages = _up_to(step, stages)

    @property
    def _end(self) -> str:
        """The name of a step that takes the rows, so that any step has a result."""
        return next(name for number in count() if (name := "rows" + "_" * number) not in self.stages)

    @cached_property
    def _written(self) -> JobSpec:
        """All steps on rows run in one task, one after the other, so that rows keep the order of the input."""
        stages = {name: _unwritten(given) for name, given in self.stages.items()}
        stages[self._end] = {"from": [self._step], "parallelism": 1}
        spec = self._spec_of(stages)
        if self._file is not None and not self._file.config.stages:  # the reducer has a mapper, which no step has
            reducer = JobSpec(self._file).steps[-1]
            spec.steps = tuple(reducer if step.name == reducer.name else step for step in spec.steps)
        fused = [step.name for step in spec.steps if step.feeds and not step.receiver.keeps_states]
        spec.steps = tuple(
            replace(step, tasks=None) if step.name in fused and step.name != self._end else step for step in spec.steps
        )
        return spec

    @property
    def job(self) -> JobSpec:
        """The job that has this step as its result; those that it needs write nothing."""
        stages = {name: given if name == self._step else _unwritten(given) for name, given in self.stages.items()}
        is_read = "read" in stages[self._step]
        return self._spec_of({**stages, self._end: {"from": [self._step]}} if is_read else stages)

    def _spec_of(self, stages: Mapping[str, Any]) -> JobSpec:
        file = self._file or JobFile(JobConfig(), f"Flow({self._sections.get('name')!r})")
        document = {**self._sections, "stages": stages}
        spec = JobSpec(parse(document, origin=file.origin, places=file.places), self._objects)
        spec.is_part = True
        return spec

    @cached_property
    def _opened(self) -> Mapping[str, OpenedInput]:
        with ExitStack() as stack:
            return Inputs(self._written).open(stack, spark=None)

    @cached_property
    def _chosen(self) -> Chosen:
        return chosen(self._written, self._opened)

    @property
    def _spec(self) -> JobSpec:
        return self._chosen.spec

    @cached_property
    def _compilation(self) -> Compilation:
        return self._spec.compilation({name: found.schema for name, found in self._chosen.opened.items()})

    @cached_property
    def _by_key(self) -> tuple[str, ...]:
        return tuple(step.name for step in self._spec.steps if step.receiver.keeps_states)

    def head(self, rows: int, first: int = FIRST_ROWS) -> Looked:
        """At least `rows` rows, if as many come of the first `first` rows of each input. Raises ConfigError if the
        steps are wrong, or an input cannot be read without Spark; ExecutorError if user code failed."""
        if rows < 0 or first < 0:
            raise ConfigError(f"rows are counted from 0 on, and these are {min(rows, first)}")
        inputs, walk = self._inputs(), self._walk()
        size = _FIRST_BY_KEY if self._by_key else rows
        parts: dict[str, list[pa.Table]] = {given.name: [] for given in inputs}
        while True:
            for given in inputs:
                parts[given.name].append(given.take(min(size, first - given.taken)))
                walk.sample(given.name, pa.concat_tables(parts[given.name]))
                if not self._by_key:
                    parts[given.name].clear()
            for stage in self._by_key:
                walk.operate(stage)
            found = self._records(walk)
            if found >= rows or all(given.is_all or given.taken >= first for given in inputs):
                break
            if self._by_key:
                walk = self._walk()  # a step by key ends once, so it begins again with all rows
            size = first if self._by_key else min(max(size, 1) * _FASTER, _MAX_ROWS)
        shown = walk.result(self._end) if found else self._compilation.columns.empty(self._end).empty_table()
        taken = {given.name: (given.taken, given.is_all) for given in inputs}
        return Looked(shown, taken, self._by_key, walk.is_thinned)

    def count(self, *, whole: bool = False) -> int:
        """How many rows a run would give; from what inputs know of themselves where each row gives one. Raises
        ConfigError if an input is open; or a step by key needs all rows, and `whole` does not say to process them."""
        self._require_an_end()
        if self._by_key and not whole:
            makes = f"the rows of {self._by_key[0]!r} are known when it has all of its input"
            costs = "reads and processes all of it in this process, with the states in memory"
            raise ConfigError(f"{makes}: `count(whole=True)` {costs}")
        if (known_rows := self._known_rows()) is not None:
            return known_rows
        walk = Walk(self._compilation.compiled({}), most_joined=None)
        for given in self._inputs():
            for split in given.splits():
                walk.read(given.name, split)
                for stage in (*self._by_key, self._end):
                    walk.pass_on(stage, [block for _, block in walk.reached(stage)])
        for stage in self._by_key:
            walk.operate(stage)
        return self._records(walk)

    def schema(self) -> pa.Schema:
        """The columns. ConfigError, with what would declare them, where only a run shows them."""
        found = self._compilation.columns.of(self._step)
        if found is None:
            hiding = next(self._compilation.columns.hiding(self._step))
            why = f"the columns of {self._step!r} are not known before its rows are made"
            what = "read" if hiding.is_source else hiding.word
            mend = f"declare them, `{what}(..., schema={{'column': 'int64'}})`; `head(5).schema` has those of the first"
            raise ConfigError(f"{why}, as {hiding.name!r} does not say what it makes: {mend}")
        return found

    def forecast(self) -> Forecast:
        """The plan of the job, from a few rows of each input."""
        samples = {}
        for given in self._inputs():
            sample = given.take(_PLANNED_ROWS)
            samples[given.name] = (given.taken if given.is_all else given.feed.known_rows(), sample)
        return forecast_of(self.job, self._opened, samples)

    def _walk(self) -> Walk:
        return Walk(self._compilation.compiled({}))

    def _records(self, walk: Walk) -> int:
        """How many rows have come to the end."""
        return sum(walk.records[number] for number, _ in walk.graph.into(self._end))

    def _inputs(self) -> list[_Input]:
        found = []
        for source in self._spec.sources:
            key, _, _ = self._spec.input_of(source)
            opened = self._opened[source.name]
            assert opened.source is not None
            found.append(_Input(self._spec, key, source.name, opened.source))
        return found

    def _require_an_end(self) -> None:
        for source in self._spec.sources:
            if self._opened[source.name].feed is not None:
                why = f"{source.name!r} has no last row, as its input is open"
                raise ConfigError(f"{why}: `head(n)` has the first ones")

    def _known_rows(self) -> int | None:
        """The number of rows where each row of an input gives one, and inputs know how many they have."""
        total = 0
        for given in () if self._by_key else self._inputs():
            rows = given.feed.known_rows()
            for fused, _, _ in self._compilation.edges(given.name):
                operators = [(step, each) for step in fused for each in step.receiver.operators]
                if rows is None or not all(_gives_each(each) and step.on_error == "fail" for step, each in operators):
                    return None
                total += rows
        return None if self._by_key else total


def _gives_each(operator: RowOperator) -> bool:
    if operator.query is None:
        return operator.kind is RowKind.MAP and not operator.on_batches
    return operator.kind not in (RowKind.FILTER, RowKind.EXPLODE, RowKind.JOIN)


class _Input:
    """The rows of an input, taken from the first on.

    Attributes:
        taken: how many were.
        is_all: whether there are no others.
    """

    def __init__(self, spec: JobSpec, key: str, name: str, feed: Feed) -> None:
        self.name, self.feed = name, feed
        self.taken, self.is_all = 0, False
        self._spec, self._key = spec, key
        self._batches = feed.rows_now(spec.config.limits.batch_records)
        self._left = pa.record_batch({})

    def take(self, rows: int) -> pa.Table:
        """Take further rows, as many as this if there are."""
        with blaming(self._spec.file, self._key):
            found = list(self._up_to(rows))
            self.taken += sum(batch.num_rows for batch in found)
            schema = self.feed.schema or pa.schema([])
            return known(pa.Table.from_batches(found) if found else schema.empty_table())

    def splits(self) -> Iterator[Split]:
        """All rows; of files, as the tasks of a run read them."""
        if isinstance(self.feed, FileTable):
            with blaming(self._spec.file, self._key):
                yield from self.feed.splits(self._spec.config.limits.split_rows)
            return
        while not self.is_all:
            yield MemorySplit(self.take(_MAX_ROWS))

    def _up_to(self, rows: int) -> Iterator[pa.RecordBatch]:
        while not self.is_all:
            if not self._left.num_rows:
                following = next(self._batches, None)
                self.is_all = following is None
                self._left = self._left if following is None else following
            elif not rows:
                return
            else:
                piece = self._left.slice(0, rows)
                self._left = self._left.slice(piece.num_rows)
                rows -= piece.num_rows
                yield piece


def _up_to(step: str, stages: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a step and of all steps that it takes rows from."""
    found = [step]
    for name in found:
        found += [other for other in taken_by(stages[name]) if other not in found]
    return {name: given for name, given in stages.items() if name in found}


def _unwritten(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in ("write", "reference")}


def taken_by(given: Mapping[str, Any]) -> list[str]:
    return [*given.get("from", ()), *given.get("join", {}).get("with", ())]
