"""The steps of a job file: their names, and the executors that they name, each made what its key needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dpa._given import as_mapper, as_process, as_reducer
from dpa._util.declared import Declared, schema_named, type_names
from dpa._util.words import suggestion
from dpa.aggregates import TopRows
from dpa.balance.options import AdaptiveOptions, BalanceOptions, NoBalancingOptions
from dpa.config import MADE_IN_PYTHON, Combiner, ExecutorConfig, JobFile, StepConfig
from dpa.config.stages import JoinConfig, TopConfig
from dpa.driver._loading import loaded, require_in_file
from dpa.driver._windows import in_windows
from dpa.errors import ConfigError
from dpa.execution.receivers import KINDS, receiver_of
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.executors import AnyMapper, AnyReducer, BatchMapper, Mapper, SelfNamed, name_of
from dpa.logical.step import Keying, Step, StepInput, in_order
from dpa.operators import ON_COLUMNS, JoinOptions, RowKind, RowOperator, as_row_operator
from dpa.protocol.graph import Consistency
from dpa.protocol.wire.addresses import RESERVED
from dpa.routing.groupings.options import GroupingOptions, RingOptions, ShuffleOptions
from dpa.routing.keys import names_of

READERS, _BY_KEY, _ONE_KEY = 2, 4, 1
"""Tasks of a step that does not say: one that reads or changes rows, one by key, one for one key of all records."""

_EXECUTOR = re.compile(rf"{MADE_IN_PYTHON}|\s*[\w.]+:[\w.]+\s*$")
"""What names a function; any other text of a filter is a condition."""

_OF_TASKS = ("grouping", "balance", "limits", "resources", "testing")  # keys of a step that say something of its tasks
_FUNCTION_KEY = "key"  # the result's key column where a function gives the key


def steps_of(file: JobFile, objects: Objects) -> tuple[Step, ...]:
    """The steps of a job, each after all whose rows it takes. ConfigError if an executor cannot be found or does not
    fit, or a step names none that there is."""
    check_names(file)
    steps = [_Builder(file, objects, name, config).step() for name, config in file.stages.items()]
    try:
        ordered = in_order(steps)
    except ConfigError as error:
        raise file.placed(error) from None
    return in_windows(ordered, file)


class _Builder:
    def __init__(self, file: JobFile, objects: Objects, name: str, config: StepConfig) -> None:
        self._file = file
        self._objects = objects
        self._name = name
        self._config = config
        self._at = partial(file.at, name)

    def step(self) -> Step:
        config = self._config
        if config.read is not None:
            columns = declared(None, config.schema_, self._at, "read")
            readers = config.parallelism or READERS
            on_error = config.on_error or self._file.config.on_error
            return Step(
                self._name, config, declared=columns, tasks=readers, on_error=on_error, written_as=self._file.at
            )
        operation = config.operation
        receiver = self._receiver(operation)
        by_key = receiver.keeps_states
        feeds = self._feeds(receiver)
        is_result, tasks = self._is_result(), config.parallelism
        if tasks is None and by_key:
            tasks = _BY_KEY if feeds[0].keying.key or feeds[0].keying.function else _ONE_KEY
        elif tasks is None and is_result:
            tasks = READERS
        self._check_tasks(tasks, by_key)
        grouping = config.grouping or (RingOptions() if by_key else ShuffleOptions())
        return Step(
            self._name,
            config,
            feeds=feeds,
            receiver=receiver,
            word=operation or "from",
            combine=config.does.combines or self._combiner(receiver),
            tasks=tasks,
            grouping=grouping,
            balance=config.balance or _default_balance(receiver, grouping, config.consistency),
            flow=config.limits or self._file.config.limits,
            on_error=config.on_error or self._file.config.on_error,
            is_result=is_result,
            written_as=self._file.at,
        )

    def _on_columns(self, kind: RowKind, path: str, section: Any) -> RowOperator:
        found = self._objects.get(path)
        if found is None:
            given = [section.use] if isinstance(section, ExecutorConfig) else section
            named = given if isinstance(given, dict) else {}
            for text in (*given, *named.values()):
                if text.startswith(MADE_IN_PYTHON):
                    loaded(self._file, path, ExecutorConfig(use=text))
            from dpa.columns.verbs import query_of  # polars, which no driver of other jobs needs

            with self._file.blaming(path, ConfigError):
                found = query_of(kind.value, () if named else given, named)
        return RowOperator(kind, replace(found, step=self._name), on_batches=True)

    def _is_condition(self, path: str, section: ExecutorConfig) -> bool:
        if path in self._objects:
            return isinstance(self._objects[path], SelfNamed)
        return not section.args and _EXECUTOR.match(section.use) is None

    def _row_operator(self, word: str, section: Any) -> RowOperator:
        path, kind = self._at(word), RowKind(word)
        if kind in ON_COLUMNS or (kind is RowKind.FILTER and self._is_condition(path, section)):
            return self._on_columns(kind, path, section)
        makes_rows = kind in (RowKind.MAP, RowKind.FLAT_MAP)

        def operator(made: Any) -> RowOperator:
            columns = declared(made, self._config.schema_, self._at, word) if makes_rows else None
            return replace(as_row_operator(kind, made), declared=columns)

        return fitting(self._file, self._objects, path, section, operator)

    def _receiver(self, operation: str | None) -> Receiver:
        config = self._config
        if operation is None or operation == "window":
            return StatelessReceiver()
        if not config.does.is_by_key:
            return StatelessReceiver(self._row_operator(operation, config.section))
        made = _MAKERS[operation](self, config.section)
        with self._file.blaming(self._at(operation), ConfigError):
            return receiver_of(made, declared(made, config.schema_, self._at, operation))

    def _reduce(self, section: ExecutorConfig) -> Any:
        return fitting(self._file, self._objects, self._at("reduce"), section, as_reducer)

    def _agg(self, section: Mapping[str, str]) -> AnyReducer:
        from dpa.columns.aggregation import Aggregation, aggregation_of

        key = self._config.key_by
        for name in section.keys() & ([] if isinstance(key, ExecutorConfig) else names_of(key)):
            raise self._error(f"agg.{name}", "the key has this name too: give the aggregate another one")
        if self._at("agg") in self._objects:
            made: Aggregation = self._objects[self._at("agg")]
            made.step = self._name
            return made
        for name, text in section.items():
            with self._file.blaming(self._at(f"agg.{name}"), ConfigError):
                require_in_file(text)
        try:
            return aggregation_of((), section, self._name)
        except ConfigError as error:
            raise self._error(f"agg.{error.key}" if error.key else "agg", error.message) from None

    def _process(self, section: ExecutorConfig) -> Any:
        return fitting(self._file, self._objects, self._at("process"), section, as_process)

    def _top(self, top: TopConfig) -> TopRows:
        key = self._config.key_by
        if not isinstance(key, ExecutorConfig) and top.by in names_of(key):
            why = "is what rows are grouped by, and the same in all rows of a key: name another column"
            raise self._error("top_k.by", f"{top.by!r} {why}")
        return TopRows(top.k, top.by, descending=top.descending)

    def _mapper(self) -> AnyMapper | None:
        """The mapper of a job of one mapper and one reducer, whose only keyed step that is."""
        section = self._file.config.mapper
        return None if section is None else fitting(self._file, self._objects, "mapper", section, as_mapper)

    def _join(self, join: JoinConfig) -> JoinOptions:
        key = self._config.key_by
        if isinstance(key, ExecutorConfig) or not key:
            made = "make one with `map` and name it" if key else "name one, or several"
            raise self._error("key_by", f"a join is by columns: {made}")
        left = names_of(key)
        right = left if join.key_by is None else names_of(join.key_by)
        if len(left) != len(right):
            sides = f"{', '.join(left)} on the left side, and {', '.join(right) or 'none'} on the right one"
            raise self._error("join.key_by", f"a join needs as many columns of either side; these are {sides}")
        return JoinOptions(join.how, (left, right))

    def _feeds(self, receiver: Receiver) -> tuple[StepInput, ...]:
        config = self._config
        keying, values, mapper = Keying(), config.value, self._mapper()
        reads = list(receiver.reads) if mapper is None else []
        if (
            receiver.takes_objects
            and values is not None
            and (missing := [name for name in reads if name not in values])
        ):
            why = f"{name_of(receiver.executor)} reads {missing[0]!r}, which `value` does not name"
            raise self._error("value", f"{why}: add it, or leave `value` out")
        if (reads and receiver.takes_objects) or (values is None and config.agg is not None and mapper is None):
            values = reads
        if isinstance(config.key_by, ExecutorConfig):
            keying = Keying(_FUNCTION_KEY, _values(values), self._row_operator("key_by", config.key_by))
        elif receiver.keeps_states:
            own = names_of(config.key_by) if receiver.has_sides else ()  # which a join's rows have anyway
            values = None if values is None else [name for name in values if name not in own]
            keying = Keying(config.key_by, _values(values), mapper=mapper)
        feeds = [StepInput(name, keying) for name in config.from_ or []]
        if config.join is not None:
            on = receiver.executor.on[1]
            right = Keying(on[0] if len(on) == 1 else on, _values(config.join.value))
            feeds += [StepInput(name, right, side=1) for name in config.join.with_]
        return tuple(feeds)

    def _is_result(self) -> bool:
        """Whether its rows are a result: the step says so, or no other step takes them."""
        config = self._config
        return config.write is not None or config.reference is not None or self._name not in taken(self._file)

    def _combiner(self, receiver: Receiver) -> Combiner:
        given = self._config.combiner
        if given != "auto":
            return given
        # a task that is slow on purpose is so for each record: it shall get them
        return (
            "auto" if receiver.has_partials and receiver.can_merge and not self._config.testing.slow_factor else False
        )

    def _check_tasks(self, tasks: int | None, by_key: bool) -> None:
        config = self._config
        if tasks is None:
            for key in _OF_TASKS:
                if key in config.model_fields_set:
                    why = f"the step runs in the tasks before it: give it `parallelism`, or leave `{key}` out"
                    raise self._error(key, why)
            return
        if not by_key and config.grouping is not None and not config.grouping.splits_keys:
            why = f"`{config.grouping.kind}` is by key, and rows have none here: leave it out, or use `shuffle`"
            raise self._error("grouping", why)
        if not by_key and config.balance is not None and config.balance.moves_keys:
            raise self._error("balance", "moves keys, and rows have none here: leave it out")
        with self._file.blaming(self._at("testing"), ValueError):
            config.testing.require_tasks(tasks)

    def _error(self, key: str, message: str) -> ConfigError:
        return self._file.error(self._at(key), message)


_MAKERS: dict[str, Callable[[_Builder, Any], Any]] = {  # what makes the executor of an operation by key of its section
    "reduce": _Builder._reduce,
    "agg": _Builder._agg,
    "process": _Builder._process,
    "join": _Builder._join,
    "top_k": _Builder._top,
}


def _values(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if columns is None else tuple(columns)


def _default_balance(receiver: Receiver, grouping: GroupingOptions, consistency: Consistency) -> BalanceOptions:
    may_move = receiver.keeps_states and (consistency == "migrate" or receiver.can_merge)
    return AdaptiveOptions() if may_move and grouping.is_ring else NoBalancingOptions()


def check_names(file: JobFile) -> None:
    """ConfigError if a step names an unknown one, or no step takes an input."""
    stages = file.stages
    for name in stages:
        if name in RESERVED:
            raise file.error(f"stages.{name}", f"tasks of dpa itself are named {name!r}: give the step another name")
        for key, other in _named_by(file, name):
            if other not in stages:
                hint = suggestion(other, file.config.stages, f"there are {', '.join(file.config.stages)}")
                raise file.error(file.at(name, key), f"there is no step {other!r}; {hint}")
    read = [name for name, config in stages.items() if config.read is not None]
    if not read:
        raise file.error("stages", "no step reads an input: give one of them `read`")
    used = taken(file)
    for name in read:
        if name not in used:
            mend = "let a step change, reduce, join or rank them (`key_by` alone makes no step), or do not read them"
            raise file.error(f"stages.{name}", f"no step takes the rows that it reads: {mend}")


def taken(file: JobFile) -> set[str]:
    return {other for name in file.stages for _, other in _named_by(file, name)}


def _named_by(file: JobFile, step: str) -> Iterator[tuple[str, str]]:
    """The steps that a step names, each with the key that names it."""
    config = file.stages[step]
    yield from (("from", other) for other in config.from_ or [])
    yield from (("join.with", other) for other in (config.join.with_ if config.join else []))


Objects = Mapping[str, Any]
"""Executors and tables that a job built in Python was given, by the key path at which a job file would name them."""

T = TypeVar("T")

_OPERATIONS: tuple[tuple[tuple[type, ...], str, tuple[str, ...]], ...] = (
    *((kind.executors, kind.noun, (kind.word,)) for kind in KINDS),
    ((Mapper,), "a mapper of keys and values, which steps do not take", ("flat_map",)),
    ((BatchMapper,), "a batch mapper", ("map", "flat_map")),
)
"""What executors that are objects are called, and the operations that they are for."""


def fitting(file: JobFile, objects: Objects, path: str, section: ExecutorConfig, kind: Callable[[Any], T]) -> T:
    """The executor whose section stands at a key path, as `kind` makes it; ConfigError if it cannot be made, or is for
    another key."""
    made = objects[path] if path in objects else loaded(file, path, section)
    try:
        return kind(made)
    except ConfigError as error:
        _, dot, word = path.rpartition(".")
        raise file.error(path, (dot and _of_another(made, word)) or str(error)) from None


def declared(executor: Any, schema: Mapping[str, str] | None, at: Callable[[str], str], word: str) -> Declared | None:
    """The columns that a step's rows are declared to have, by its `schema`, or else by that of its executor, which
    stands at the key `word`; `at` returns the path of a key. ConfigError if the executor's is no schema."""
    if schema is not None:
        return Declared(at("schema"), schema_named(schema))
    own = getattr(executor, "schema", None)
    if own is None:
        return None
    try:
        return Declared(at(word), schema_named(type_names(own)))
    except ValueError as error:
        raise ConfigError(f"{name_of(executor)}.schema: {error}") from None


def _of_another(made: Any, word: str) -> str | None:
    """What to use an executor for, if it is for another operation than `word`."""
    of = made if isinstance(made, type) else type(made)
    for kinds, what, operations in _OPERATIONS:
        if issubclass(of, kinds) and word not in operations:
            return f"{name_of(made)} is {what}: use {_alternatives(operations)} for it"
    marked = {"batch_filter": ("filter",), "batch_mapper": ("map", "flat_map")}
    for mark, operations in marked.items():
        if getattr(made, f"dpa_{mark}", False) and word not in operations:
            return f"{name_of(made)} is marked `{mark}`, which is for {_alternatives(operations)}, not for `{word}`"
    return None


def _alternatives(operations: tuple[str, ...]) -> str:
    return " or ".join(f"`{word}`" for word in operations)
