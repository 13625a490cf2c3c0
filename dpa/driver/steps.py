"""The steps of a job file, with their executors: of `stages`, or of its one mapper and one reducer."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dpa.aggregates import TopRows
from dpa.balance.options import AdaptiveOptions, BalanceOptions, NoBalancingOptions
from dpa.config import ExecutorConfig, JobFile, StepConfig
from dpa.driver.loading import loaded, mapper_of, reducer_of
from dpa.errors import ConfigError
from dpa.execution.mapping import Receiver
from dpa.executors import as_process, as_reducer, is_mergeable
from dpa.logical.step import Feed, Keying, Sink, Step, in_order
from dpa.operators import JoinOptions, RowKind, RowOperator, as_row_operator
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.routing.groupings.options import GroupingOptions, RingOptions, ShuffleOptions
from dpa.routing.keys import names_of

Objects = Mapping[str, Any]
"""Executors and tables that a job built in Python was given, by the key path at which a job file would name them."""

T = TypeVar("T")

_READERS, _BY_KEY, _ONE_KEY = 2, 4, 1
"""Tasks of a step that does not say: one that reads or changes rows, one by key, one for one key of all records."""

_FUNCTION_KEY = "key"
"""The result's key column where a function gives the key."""


def steps_of(file: JobFile, objects: Objects) -> tuple[Step, ...]:
    """The steps of a job, each after all whose rows it takes.

    Raises:
        ConfigError: an executor cannot be found or does not fit its place, or a step names none that there is.
    """
    if not file.config.stages:
        return _map_reduce(file, objects)
    _check_names(file)
    steps = [_Builder(file, objects, name, config).step() for name, config in file.config.stages.items()]
    try:
        return in_order(steps)
    except ConfigError as error:
        raise file.error("stages", str(error)) from None


def _map_reduce(file: JobFile, objects: Objects) -> tuple[Step, ...]:
    """The job of one mapper and one reducer."""
    config = file.config
    mapper = objects["mapper"] if "mapper" in objects else mapper_of(file)
    values = None if config.value is None else tuple(config.value)
    reducer = Step(
        REDUCER,
        feeds=(Feed(MAPPER, Keying(config.key, values, mapper=mapper)),),
        receiver=objects["reducer"] if "reducer" in objects else reducer_of(file),
        combine=config.combiner,
        tasks=config.parallelism.reducers,
        grouping=config.grouping,
        balance=config.balance,
        limits=config.limits,
        aggregation=config.aggregation,
        testing=config.testing,
        sink=Sink("output", config.reference),
    )
    return Step(MAPPER, tasks=config.parallelism.mappers), reducer


def _check_names(file: JobFile) -> None:
    """Check that the steps that steps name exist, and that somebody takes what is read."""
    stages = file.config.stages
    taken = _taken(file)
    for name, config in stages.items():
        for key, named in (("from", config.from_ or []), ("join.with", config.join.with_ if config.join else [])):
            for other in named:
                if other not in stages:
                    close = difflib.get_close_matches(other, stages, n=1)
                    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(stages)}"
                    raise file.error(f"stages.{name}.{key}", f"there is no step {other!r}; {hint}")
        if config.read is not None and name not in taken:
            raise file.error(f"stages.{name}", "no step takes the rows that it reads: name it in another step's `from`")
    if not any(config.read is not None for config in stages.values()):
        raise file.error("stages", "no step reads an input: give one of them `read`")


def _taken(file: JobFile) -> set[str]:
    """The names of the steps whose rows others take."""
    stages = file.config.stages.values()
    right = [name for config in stages if config.join for name in config.join.with_]
    return {name for config in stages for name in config.from_ or []} | set(right)


class _Builder:
    """One step in the making."""

    def __init__(self, file: JobFile, objects: Objects, name: str, config: StepConfig) -> None:
        self._file = file
        self._objects = objects
        self._name = name
        self._config = config
        self._place = f"stages.{name}"

    def step(self) -> Step:
        """The step.

        Raises:
            ConfigError: an executor cannot be found, or does not fit.
        """
        config = self._config
        if config.read is not None:
            return Step(self._name, tasks=config.parallelism or _READERS, place=self._place)
        operation = config.operation
        receiver = self._receiver(operation)
        by_key = receiver is not None
        feeds = self._feeds(receiver)
        sink, tasks = self._sink(), config.parallelism
        if tasks is None and by_key:
            tasks = _BY_KEY if feeds[0].keying.key or feeds[0].keying.function else _ONE_KEY
        elif tasks is None and sink is not None:
            tasks = _READERS
        self._check_testing(tasks)
        grouping = config.grouping or (RingOptions() if by_key else ShuffleOptions())
        return Step(
            self._name,
            feeds=feeds,
            operator=self._operator(operation),
            receiver=receiver,
            combine=config.combiner or config.top_k is not None,  # a few rows stand for all of a block
            tasks=tasks,
            grouping=grouping,
            balance=config.balance or _default_balance(receiver, grouping),
            limits=config.limits or self._file.config.limits,
            aggregation=config.aggregation,
            testing=config.testing,
            sink=sink,
            place=self._place,
        )

    def _operator(self, operation: str | None) -> RowOperator | None:
        section = {"map": self._config.map, "flat_map": self._config.flat_map, "filter": self._config.filter}.get(
            operation or ""
        )
        if operation is None or section is None:
            return None
        return self._fitting(operation, section, lambda made: as_row_operator(RowKind(operation), made))

    def _receiver(self, operation: str | None) -> Receiver:
        config = self._config
        if config.reduce is not None:
            return self._fitting("reduce", config.reduce, as_reducer)
        if config.process is not None:
            return self._fitting("process", config.process, as_process)
        if config.top_k is not None:
            return TopRows(config.top_k.k, config.top_k.by, descending=config.top_k.descending)
        if config.join is None:
            return None
        if isinstance(config.key_by, ExecutorConfig):
            raise self._file.error(f"{self._place}.key_by", "a join is by columns: make one with `map` and name it")
        left = names_of(config.key_by)
        right = left if config.join.key_by is None else names_of(config.join.key_by)
        try:
            return JoinOptions(config.join.how, (left, right))
        except ConfigError as error:
            raise self._file.error(f"{self._place}.join", str(error)) from None

    def _feeds(self, receiver: Receiver) -> tuple[Feed, ...]:
        config = self._config
        keying = Keying()
        if isinstance(config.key_by, ExecutorConfig):
            function = self._fitting("key_by", config.key_by, lambda made: as_row_operator(RowKind.KEY, made))
            keying = Keying(_FUNCTION_KEY, _values(config.value), function)
        elif receiver is not None:
            keying = Keying(config.key_by, _values(config.value))
        feeds = [Feed(name, keying) for name in config.from_ or []]
        if config.join is not None and isinstance(receiver, JoinOptions):
            on = receiver.on[1]
            right = Keying(on[0] if len(on) == 1 else on, _values(config.join.value))
            feeds += [Feed(name, right, side=1) for name in config.join.with_]
        return tuple(feeds)

    def _sink(self) -> Sink | None:
        """What becomes of the step's rows, if they are a result: where it says so, or no other step takes them."""
        config = self._config
        if config.write is None and config.reference is None and self._name in _taken(self._file):
            return None
        return Sink(f"{self._place}.write", config.reference)

    def _fitting(self, key: str, section: ExecutorConfig, kind: Callable[[Any], T]) -> T:
        """The executor of a key, made what the key needs by `kind`."""
        path = f"{self._place}.{key}"
        made = self._objects[path] if path in self._objects else loaded(self._file, path, section)
        try:
            return kind(made)
        except ConfigError as error:
            raise self._file.error(path, str(error)) from None

    def _check_testing(self, tasks: int | None) -> None:
        try:
            self._config.testing.require_tasks(tasks or 0)
        except ValueError as error:
            raise self._file.error(f"{self._place}.testing", str(error)) from None


def _values(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if columns is None else tuple(columns)


def _default_balance(receiver: Receiver, grouping: GroupingOptions) -> BalanceOptions:
    balanced = receiver is not None and grouping.is_ring and is_mergeable(receiver)
    return AdaptiveOptions() if balanced else NoBalancingOptions()
