"""Makes stages, edges and the work of tasks out of steps: what runs in which tasks, and in what form rows travel.

A step that has no tasks of its own is fused into the tasks of each stage before it. What several edges of a stage have
in common runs once: the emission of a stage is the tree of the steps after it, up to the stages that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dpa.errors import ConfigError, DpaError, ExecutorError, KeyTypeError
from dpa.execution.emission import Emission
from dpa.execution.empty import empty_join, result_columns
from dpa.execution.failures import USER_ERRORS
from dpa.execution.mapping import MapTask, Receiver, check_columns
from dpa.execution.reduce_task import ReduceStage
from dpa.execution.row_operators import schema_after
from dpa.executors import BatchReducer, name_of
from dpa.logical.step import Feed, Step, in_order
from dpa.operators import JoinOptions, RowOperator
from dpa.protocol.graph import Edge, Graph, Stage
from dpa.protocol.user_code import StageTask
from dpa.routing.keys import key_type, names_of, one_type
from dpa.sources.splits import Split

_STEP_SECONDS = 0.25
"""Seconds after which functions of a record hand over the records that they have made."""


@dataclass(frozen=True)
class Compiled:
    """The graph of a job, and what the tasks of each stage do."""

    graph: Graph
    tasks: Mapping[str, StageTask]


class Compilation:
    """The steps of a job on their way to a graph."""

    def __init__(self, steps: Sequence[Step], columns: Mapping[str, pa.Schema | None]) -> None:
        """`columns` are those of each source's input, or None where they are not known.

        Raises:
            ConfigError: the steps form a cycle, or a result column has the name of its key column.
        """
        self.steps = in_order(steps)
        self._takers: dict[str, list[tuple[Step, Feed]]] = {step.name: [] for step in self.steps}
        for step in self.steps:
            for feed in step.feeds:
                self._takers[feed.step].append((step, feed))
        self._columns = dict(columns)
        for step in self.steps:
            if not step.is_source:
                self._columns[step.name] = self._columns_after(step)

    def columns(self, step: str) -> pa.Schema | None:
        """The columns of a step's rows, as far as they are known before it has any: None where functions of a record
        make the rows."""
        return self._columns[step]

    def check(self) -> None:
        """Check that the columns that steps name are there, where it is known which columns there are.

        Raises:
            ConfigError: one is missing, or cannot be what it should be. The message begins with the key's path.
        """
        for step in self.steps:
            for feed in step.feeds if step.is_stage else ():
                known = self._columns[feed.step]
                if known is not None:
                    self._check_feed(step, feed, known)
            self._check_key_types(step)

    def compiled(self, splits: Mapping[str, tuple[Split, ...]]) -> Compiled:
        """The graph, whose sources have these splits."""
        stages, edges, tasks = [], [], {}
        for step in self.steps:
            if not step.is_stage:
                continue
            assert step.tasks is not None
            emission = self._emission(step)
            tasks[step.name] = self._task(step, emission)
            edges += [Edge(step.name, taker.name) for _, taker, _ in self.edges(step.name)]
            aggregation = step.aggregation
            stages.append(
                Stage(
                    step.name,
                    step.tasks,
                    splits=splits.get(step.name, ()),
                    grouping=step.grouping,
                    balance=step.balance,
                    in_flight_records=step.limits.in_flight_records,
                    quantum_records=step.limits.quantum_records,
                    quantum_seconds=step.limits.quantum_seconds,
                    aggregate_seconds=None if aggregation is None else aggregation.seconds,
                )
            )
        return Compiled(Graph(tuple(stages), tuple(edges)), tasks)

    def edges(self, source: str, fused: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Step, Feed]]:
        """The edges out of a stage, in order: the steps that are fused on each, after `fused`, the stage that it
        enters, and how its rows become records there."""
        for taker, feed in self._takers[source]:
            if taker.is_stage:
                yield fused, taker, feed
            else:
                yield from self.edges(taker.name, (*fused, taker))

    def operators_from(self, source: str) -> list[tuple[str, ...]]:
        """For each edge out of a stage, in order, what is done to each row on it, each in a few words."""
        found = []
        for fused, taker, feed in self.edges(source):
            words = [*(step.does for step in fused if step.operator is not None), feed.keying.does]
            found.append((*filter(None, words), *(("combine",) if taker.combine else ())))
        return found

    def _task(self, step: Step, emission: Emission | None) -> StageTask:
        if step.is_source:
            assert emission is not None
            return emission
        key, is_result = step.feeds[0].keying.key, step.sink is not None
        return ReduceStage(self._receiver(step), key, emission, keeps_rows=is_result, operators=_operators(step))

    def _emission(self, step: Step) -> Emission | None:
        outputs = tuple(self._output(taker, feed) for taker, feed in self._takers[step.name])
        if len(outputs) == 1 and isinstance(outputs[0], Emission):
            return outputs[0]
        return Emission(outputs) if outputs else None

    def _output(self, taker: Step, feed: Feed) -> Emission | MapTask:
        """What a step's rows become for one that takes them."""
        if taker.is_stage:
            return self.map_task(taker, feed)
        after = self._emission(taker)
        assert after is not None
        return replace(after, operators=(*_operators(taker), *after.operators))

    def map_task(self, step: Step, feed: Feed) -> MapTask:
        """How rows become the records of a stage."""
        keying = feed.keying
        return MapTask(
            mapper=keying.mapper,
            key=keying.key,
            values=keying.values,
            reducer=self._receiver(step),
            combine=step.combine,
            seed=step.balance.hash_seed,
            batch_records=step.limits.batch_records,
            step_seconds=_STEP_SECONDS,
            key_function=keying.function,
            side=feed.side,
        )

    def _receiver(self, step: Step) -> Receiver:
        """What takes the records of a stage; a join with the columns that are known of its sides."""
        receiver = step.receiver
        return replace(receiver, columns=self._value_columns(step)) if isinstance(receiver, JoinOptions) else receiver

    def _value_columns(self, join: Step) -> tuple[pa.Schema | None, pa.Schema | None]:
        """The value columns of the sides of a join, where they are known."""
        found: list[pa.Schema | None] = [None, None]
        for feed in join.feeds:
            known, keying = self._columns[feed.step], feed.keying
            if known is not None:
                wanted = [field for field in known if field.name not in names_of(keying.key)]
                if keying.values is not None:
                    wanted = [field for field in known if field.name in keying.values]
                found[feed.side] = pa.schema(wanted)
        return found[0], found[1]

    def _columns_after(self, step: Step) -> pa.Schema | None:
        """The columns of a step's rows, of what is known of those that it takes."""
        known = [(feed, self._columns[feed.step]) for feed in step.feeds]
        schemas = [schema for _, schema in known if schema is not None]
        if len(schemas) < len(known):
            return None
        try:
            if step.receiver is None:
                merged = pa.unify_schemas(schemas, promote_options="permissive")
                return schema_after(_operators(step), merged)
            tasks = (replace(self.map_task(step, feed), combine=False) for feed in step.feeds)
            sides = list(zip(tasks, schemas, strict=True))
            if isinstance(step.receiver, JoinOptions):
                return empty_join(sides).schema
        except (DpaError, pa.ArrowException, *USER_ERRORS):
            return None  # what is wrong is named where it is checked, or when there are rows
        if not isinstance(step.receiver, BatchReducer):
            return None
        try:
            return result_columns(*sides[0])
        except ExecutorError as error:  # a result column is named as the key
            raise ConfigError(f"{step.at(_written_as('key', step, step.feeds[0]))}: {error}") from None

    def _check_feed(self, step: Step, feed: Feed, known: pa.Schema) -> None:
        rows = f"the step {feed.step!r}" if step.place else "the input"
        try:
            check_columns(self.map_task(step, feed), known, rows)
        except ConfigError as error:
            key, _, message = str(error).partition(": ")
            if step.word == "top_k":
                message = message.removeprefix(f"{name_of(step.receiver)} ")  # which the job does not name
            raise ConfigError(f"{step.at(_written_as(key, step, feed))}: {message}") from None

    def _check_key_types(self, step: Step) -> None:
        """Check that the keys of all rows that a stage takes, of both sides of a join, are of one type."""
        types = []
        for feed in step.feeds if step.is_stage else ():
            known, keying = self._columns[feed.step], feed.keying
            if known is not None and keying.mapper is None and keying.function is None:
                columns = enumerate(names_of(keying.key))
                types.append(pa.struct([(str(place), key_type(known.field(name).type)) for place, name in columns]))
        try:
            one_type(types)
        except KeyTypeError as error:
            raise ConfigError(f"{step.at(_written_as('key', step, step.feeds[-1]))}: {error}") from None


def _written_as(key: str, step: Step, feed: Feed) -> str:
    """What a step calls a key of the job of one mapper and one reducer."""
    if key == "reducer" or not step.place:
        return step.word if key == "reducer" else key
    name = {"key": "key_by"}.get(key, key)
    return f"join.{name}" if feed.side else name


def _operators(step: Step) -> tuple[RowOperator, ...]:
    return () if step.operator is None else (step.operator,)


def columns_read(steps: Sequence[Step], source: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The columns of an input that a job needs, None for all of them, and those of them that are keys as they are."""
    feeds = [(step, feed.keying) for step in steps for feed in step.feeds if feed.step == source]
    direct = [keying for step, keying in feeds if step.is_stage and keying.mapper is None and keying.function is None]
    keys = tuple(dict.fromkeys(name for keying in direct for name in names_of(keying.key)))
    if len(direct) < len(feeds) or any(keying.values is None for keying in direct):
        return None, keys
    values = (name for keying in direct for name in keying.values or ())
    return tuple(dict.fromkeys((*keys, *values))), keys
