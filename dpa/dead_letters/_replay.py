"""Sends dead letters through mended executors: the steps from those that had failed on, run in this process on the dead
records alone, and what they make is merged with the result of the job.

Rows without a key are added to the result. A reducer's rows are merged with it as states, which they are if it has a
`merge` and no `finish` of its own. All else would need states that are gone: it is refused before anything runs.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.aggregates import Sum
from dpa.config import OutputConfig, StepConfig
from dpa.dead_letters._letters import FoundLetters
from dpa.driver.outputs import in_memory
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError, TableError
from dpa.execution.keys import key_column
from dpa.execution.receivers import store_of
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.execution.states import ColumnPart, KeyedPart, ObjectPart
from dpa.executors import BatchReducer, Mapper, Reducer, name_of
from dpa.local.backend import LocalBackend
from dpa.logical.step import Keying, Step, StepInput
from dpa.operators import MAKING, RowKind, RowOperator
from dpa.protocol.graph import Tolerated
from dpa.protocol.plan import RunHooks, RunOutcome
from dpa.routing.hashing import hash_column
from dpa.routing.keys import names_of
from dpa.sinks.formats import FORMATS, Target
from dpa.sinks.reading import published, result_at
from dpa.sinks.sink import Sink
from dpa.sources.splits import MemorySplit
from dpa.tolerance import READING, Letter

_ON_ROWS = (*(kind.value for kind in (*MAKING, RowKind.FILTER, RowKind.KEY)), "map_batch")
"""Methods whose letters have the row that they were given; those of others have a key and a value."""


def record_of(row: dict[str, Any]) -> Any:
    return pickle.loads(row["data"])[1]


class PairOf(Mapper):
    """The key and the value of a dead letter."""

    def map(self, record: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        yield pickle.loads(record["data"])


@dataclass(frozen=True)
class SentAgain:
    """What became of dead letters: how many were sent; the `rows` that came of them, by result; how many failed
    `again`, by step and type of error; and how many are `left` in the table, with those that could not be sent."""

    sent: int
    rows: Mapping[str, int]
    again: Mapping[tuple[str, str], int]
    left: int


def replay(spec: JobSpec, letters: FoundLetters) -> SentAgain:
    """Replay the letters that have their records, then write results and the letters that are left. Raises ConfigError
    if a step cannot be replayed, or its result cannot be merged, before anything is written; ExecutorError if user code
    fails, and the job does not tolerate it."""
    by_name = {step.name: step for step in spec.steps}
    groups: dict[tuple[str, bool], list[Letter]] = {}
    left = [letter for letter in letters.letters if letter.data is None]
    again: Counter[tuple[str, str]] = Counter()
    for letter in letters.letters:
        if letter.step not in by_name:
            raise ConfigError(f"there are dead letters of the step {letter.step!r}, and the job has none of that name")
        if letter.data is None:
            continue
        step = by_name[letter.step]
        sent = _read_again(letter, step) if letter.method == READING else letter
        if sent is None:
            left.append(letter)
            again[letter.step, letter.error] += 1
        else:
            is_row = sent.method in _ON_ROWS or step.is_source or not step.receiver.keeps_states
            groups.setdefault((letter.step, is_row), []).append(sent)
    behind = {group: _steps_behind(spec, by_name[group[0]], is_row=group[1]) for group in groups}
    wanted = {step.name: step for steps in behind.values() for step in steps if step.is_result}
    results = [_Result.of(spec, by_name[name], letters.digest) for name in wanted]
    unread = again.total()
    for group, steps in behind.items():
        outcome = _run(spec, steps, groups[group])
        for result in results:
            result.take(outcome)
        left += outcome.letters
        again.update((letter.step, letter.error) for letter in outcome.letters)
    for result in results:
        result.prepare()
    for result in results:
        result.write()
    letters.rewrite(left)
    rows = {result.step.name: sum(table.num_rows for table in result.new) for result in results}
    return SentAgain(sum(map(len, groups.values())) + unread, rows, again, len(left))


def _read_again(letter: Letter, step: Step) -> Letter | None:
    """The letter of a record that could not be read, with the row that the input reads now; None if it still reads
    none. Raises ConfigError if the step reads no such records any more."""
    read = step.config.read
    if read is None or not read.has_records:
        raise ConfigError(f"there are records that {step.name!r} could not read, and its input has no such records now")
    about, data = pickle.loads(letter.data or b"")
    try:
        row = read.record(data, about)
    except ValueError:
        return None
    return replace(letter, method="map", data=pickle.dumps((None, row)))


def _steps_behind(spec: JobSpec, failed: Step, *, is_row: bool) -> list[Step]:
    """The step that had failed, fed by its dead records, and all steps that follow it. Raises ConfigError if one of
    them needs states that are gone."""
    made = _feeding(failed, is_row=is_row)
    if failed.is_source:
        made.append(replace(made.pop(), name=failed.name))
    for step in spec.steps:
        kept = {each.name for each in made}
        feeds = [feed for feed in step.feeds if feed.step in kept]
        if step is failed and not failed.is_source:
            feeds.append(_fed(step, is_row=is_row))
        if feeds:
            _require_replayable(spec, step)
            made.append(replace(step, feeds=tuple(feeds)))
    return made


def _name(step: Step, *, is_row: bool) -> str:
    return f"dead_{'rows' if is_row else 'values'}_of_{step.name.replace('.', '_')}"


def _feeding(step: Step, *, is_row: bool) -> list[Step]:
    """A step that reads dead records, and, where they are rows, one that unpickles them."""
    name = _name(step, is_row=is_row)
    source = Step(name, StepConfig.model_validate({"read": {"format": "given"}}), tasks=1)
    if not is_row:
        return [source]
    config, unpickle = StepConfig.model_validate({"from": [name]}), RowOperator(RowKind.MAP, record_of)
    return [source, Step(f"{name}_read", config, (StepInput(name),), StatelessReceiver(unpickle), word="map")]


def _fed(step: Step, *, is_row: bool) -> StepInput:
    name = _name(step, is_row=is_row)
    keying = step.feeds[0].keying if step.feeds else Keying()
    return StepInput(f"{name}_read", keying) if is_row else StepInput(name, Keying(keying.key, mapper=PairOf()))


def _require_replayable(spec: JobSpec, step: Step) -> None:
    """Raises ConfigError unless rows of a part of the records can be merged with rows of the others."""
    if not step.receiver.keeps_states:
        return
    executor, but = step.receiver.executor, "run the job again with the mended executors"
    if not step.is_result or any(feed.step == step.name for other in spec.steps for feed in other.feeds):
        raise ConfigError(f"{step.at(step.word)}: other steps work on its results, which a replay changes; {but}")
    plain = {Reducer.finish, BatchReducer.finish, Sum.finish}
    is_state = isinstance(executor, Reducer | BatchReducer) and type(executor).finish in plain
    if not (is_state and step.receiver.can_merge):
        needs = "its rows are no states that could be merged: that takes a reducer with `merge` and no own `finish`"
        raise ConfigError(f"{step.at(step.word)}: {name_of(executor)}: {needs}; {but}")


def _run(spec: JobSpec, steps: Sequence[Step], letters: Sequence[Letter]) -> RunOutcome:
    table = pa.table({"data": pa.array([letter.data for letter in letters], pa.binary())})
    job = copy(spec)
    job.__dict__["steps"] = tuple(steps)
    plan = job.plan({steps[0].name: (MemorySplit(table),)}, {steps[0].name: table.schema})
    plan = replace(plan, graph=replace(plan.graph, tolerated=Tolerated()))  # what fails again stays a dead letter
    return LocalBackend(redistributes=False).run(plan, RunHooks())


@dataclass
class _Result:
    """A result that a replay changes, and in `new` the rows that dead records make of it, step by step."""

    step: Step
    path: Path
    output: OutputConfig
    digest: str
    new: list[pa.Table] = field(default_factory=list)
    _sink: Sink | None = None
    _staged: tuple[Any, ...] = ()

    @classmethod
    def of(cls, spec: JobSpec, step: Step, digest: str) -> _Result:
        """Raises ConfigError if the result is no directory of files."""
        key, output = step.main, step.outputs[step.main]
        if output.path is None or FORMATS[output.format].encoding is None:
            raise ConfigError(f"{key}: a replay changes results that are files in a directory, and this is none")
        path = Path(output.path)
        if not (path / "_job.yaml").exists():
            mend = "; a replay adds to no result that is published by epoch" if output.publish else ""
            raise ConfigError(f"{key}.path: {path} holds no result of a job{mend}")
        return cls(step, path, output, digest)

    @property
    def _note(self) -> str:
        return f"# with dead letters {self.digest}\n"

    def take(self, outcome: RunOutcome) -> None:
        if self.step.name in outcome.outputs:
            self.new.append(in_memory(outcome, self.step.name))

    def prepare(self) -> None:
        """Stage the changed result, unless nothing changes it or an interrupted replay has published it already."""
        mark, new = result_at(str(self.path))[1].config, [table for table in self.new if table.num_rows]
        if self._note in mark or not new:
            return
        rows = published(self.path)
        try:
            tables = [table.select(rows.column_names) for table in new]
            if rows.num_rows:  # else their types are not known
                tables = [rows, *(table.cast(rows.schema) for table in tables)]
            whole = self._merged(tables) if self.step.receiver.keeps_states else pa.concat_tables(tables)
        except (pa.ArrowException, KeyError) as error:
            raise TableError(f"{self.path}: the new rows do not fit those that are there: {error}") from None
        to = Target(str(self.path), "overwrite", mark=lambda: mark + self._note, files=self.output.files)
        self._sink = FORMATS[self.output.format].sink(to)
        self._sink.begin()
        self._staged = (self._sink.stage(whole, 0, 1),)

    def write(self) -> None:
        if self._sink is not None:
            self._sink.commit(self._staged, 1, 0.0, is_last=True)
            self._sink.abort()

    def _merged(self, tables: Sequence[pa.Table]) -> pa.Table:
        key, receiver, columns = self.step.key, replace(self.step.receiver, tolerance=None), tables[0].schema
        store = store_of(receiver)
        for table in tables:
            for batch in table.combine_chunks().to_batches():
                store.merge(_states_of(batch, key, receiver, self.step.balance.hash_seed))
        return store.finish(key).table.select(columns.names).cast(columns)


def _states_of(rows: pa.RecordBatch, key: Any, receiver: Receiver, seed: int) -> KeyedPart:
    keys = key_column(rows, key)
    values = rows.select([name for name in rows.schema.names if name not in names_of(key)])
    ones = np.ones(rows.num_rows, dtype=np.int64)
    if not receiver.takes_objects:
        return ColumnPart(keys, values, ones, ones)
    has_dicts = isinstance(receiver.executor.zero(), dict) or values.num_columns != 1
    states = values.to_pylist() if has_dicts else values.column(0).to_pylist()
    return ObjectPart(keys, states, ones, ones, hash_column(keys, seed))
