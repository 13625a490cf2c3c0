"""The sections of a job file that belong to one stage: what it runs, and how its work is divided and kept even.

A job of one mapper and one reducer has them at its top, each stage of a graph its own."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields, is_dataclass
from functools import reduce
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ByteSize, Field

from dpa.aggregates import READY_MADE
from dpa.balance.elastic import ElasticOptions
from dpa.balance.options import BalanceOptions
from dpa.config._section import Columns, Faults, Schema, Section, in_json, text_for
from dpa.config._sinks import ReferenceConfig
from dpa.config.inputs import SampleConfig
from dpa.config.variants import BALANCE, GROUPING, Plain
from dpa.executors import FunctionExecutor, name_of
from dpa.protocol.flow_control import FlowControl
from dpa.protocol.graph import Consistency
from dpa.protocol.plan import SlowTasks
from dpa.protocol.wire.nodes import Resources
from dpa.routing import MOST_TASKS
from dpa.routing.groupings.options import GroupingOptions
from dpa.routing.keys import KeyName

Tasks: TypeAlias = Annotated[int, Field(ge=1, le=MOST_TASKS)]
"""How many tasks a stage has."""

Grouping: TypeAlias = Annotated[GroupingOptions, GROUPING]
Balance: TypeAlias = Annotated[BalanceOptions, BALANCE]


MADE_IN_PYTHON = "made in Python: "
"""How `use` begins where it stands for an object that no file can name."""


class ExecutorConfig(Section):
    """A mapper or reducer named in a job file."""

    use: str
    """`module:Name` of a class or function; in a `reduce` also the name of a ready-made reducer, such as `count`."""
    args: dict[str, Any] = {}
    """Keyword arguments of the class."""

    @classmethod
    def of(cls, given: object) -> ExecutorConfig:
        """The section from which a job file makes the same object again, or one that says that none can."""
        made = given.function if isinstance(given, FunctionExecutor) else given
        kind = made if isinstance(made, type) else type(made)
        for short, ready in READY_MADE.items():
            if kind is ready:
                names = () if made is kind else inspect.signature(kind).parameters
                return cls(use=short, args={name: getattr(made, name) for name in names})
        args: dict[str, Any] = {}
        if not isinstance(made, type) and not hasattr(made, "__qualname__"):
            # A constructor of the user's own may take anything: one that there is not, or that is generated, is known.
            of_data = fields(kind) if is_dataclass(kind) else ()
            args = {field.name: getattr(made, field.name) for field in of_data if field.init}
            has_none = all(getattr(kind, name) is getattr(object, name) for name in ("__init__", "__new__"))
            is_same = (
                (has_none or is_dataclass(kind))
                and getattr(made, "__dict__", args) == args
                and all(type(value) in (type(None), bool, int, float, str) for value in args.values())
            )
            made, args = (kind, args) if is_same else (made, {})
        module, name = getattr(made, "__module__", None), getattr(made, "__qualname__", "")
        if module != "__main__" and _found(str(module), name) is made:
            return cls(use=f"{module}:{name}", args=args)
        return cls(use=f"{MADE_IN_PYTHON}{name_of(given)}")


Aggregates: TypeAlias = Annotated[dict[str, str], Field(min_length=1)]
"""Expressions of aggregates, by the names of the columns that they make."""


class ReducerConfig(Section):
    """What a job of one mapper and one reducer makes of the values of a key."""

    use: str | None = None
    """`module:Name` of a class or function, or the name of a ready-made reducer, such as `count`; null: see `agg`."""
    args: dict[str, Any] = {}
    """Keyword arguments of the class."""
    agg: Aggregates | None = None
    """Instead of `use`: [aggregates](flows.md#aggregates) in SQL, by the names of the result columns."""

    def faults(self) -> Faults:
        yield (self.use is None) == (self.agg is None), "give `use` or `agg`, one of both"
        yield self.agg is not None and self.args, "`args` are of a class that `use` names: leave them out"

    @property
    def as_step(self) -> dict[str, Any]:
        if self.use is None:
            return {"agg": self.agg}
        return {"reduce": ExecutorConfig(use=self.use, args=self.args)}


def _as_reducer(value: Any) -> Any:
    return {"use": value.use, "args": value.args} if isinstance(value, ExecutorConfig) else value


def _found(module: str, name: str) -> object:
    return reduce(lambda found, part: getattr(found, part, None), name.split("."), sys.modules.get(module))


def as_key(value: Any) -> KeyName:
    """A key column's name, or the names of several: a list of one is that name; null means one key of all rows."""
    if value is None or value == ():
        return ()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"a key is the name of a column, or a list of names, not {in_json(value)}")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"the column {twice[0]!r} is named more than once")
    return names[0] if len(names) == 1 else tuple(names)


Executor: TypeAlias = Annotated[ExecutorConfig, text_for("use", ExecutorConfig)]
Reducing: TypeAlias = Annotated[ReducerConfig, BeforeValidator(_as_reducer), text_for("use", ReducerConfig)]
KeyColumns: TypeAlias = Annotated[KeyName, BeforeValidator(as_key, json_schema_input_type=str | list[str] | None)]


def _as_custom(value: Any) -> Any:
    taken = [name for name in ("CPU", "memory", "object_store_memory") if isinstance(value, dict) and name in value]
    if taken:
        raise ValueError(f"{taken[0]!r} is no resource of your own: use the keys `cpus` and `memory`")
    return value


class ResourcesConfig(Section):
    """What each task requests of its node on a cluster. A Ray that the job or `dpa up` has started is not asked."""

    cpus: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Processors; null: 1 on a cluster of node groups, which autoscalers make, and in a placement group; else 0, and
    tasks share the processors."""
    memory: Annotated[ByteSize, Field(ge=0)] = ByteSize(0)
    """Bytes, or a string such as `512MiB` or `4GiB`. Ray reserves memory, but does not enforce it."""
    custom: Annotated[
        dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]],
        BeforeValidator(_as_custom, json_schema_input_type=dict[str, float]),
    ] = {}
    """Amounts of other resources, by the names that Ray has for them, such as `GPU`."""

    @property
    def requested(self) -> Resources:
        return Resources(self.cpus, int(self.memory), self.custom)


class JobResourcesConfig(ResourcesConfig):
    """What each task of a job requests."""

    mappers: ResourcesConfig | None = None
    """What each mapper requests; null: as other tasks."""
    reducers: ResourcesConfig | None = None
    """What each reducer requests; null: as other tasks."""


StageLimits: TypeAlias = Annotated[FlowControl, Plain(FlowControl)]


Combiner: TypeAlias = Literal["auto"] | bool


class StageConfig(Section):
    """The keys that a job of one mapper and one reducer shares with a step."""

    sample: SampleConfig | None = None
    """Read only a sample of the input; null: all of it."""
    value: Columns | None = None
    """Without a mapper: the columns that are the value, in a join those of the left side; `[]`: none; null: all but the
    key."""
    schema_: Schema | None = Field(default=None, alias="schema")
    """Columns of the result, or of a step's rows, with Arrow types. Rows are checked, and an empty result has these
    columns; key columns may be left out. Null: the columns of the rows."""
    combiner: Combiner = "auto"
    """Whether senders fold equal keys of a batch before they send it; a `top_k` always does. Needs a reducer that can
    merge. `auto`: for reducers of columns with `partials`, such as `count`, while that leaves less than half of the
    records."""
    consistency: Consistency = "merge"
    """What to do with the state of a key that moves: leave it and merge in the end, or migrate it with the key."""
    elastic: Annotated[ElasticOptions, Plain(ElasticOptions)] | None = None
    """Let the number of tasks follow the load; null: it is fixed."""
    testing: Annotated[SlowTasks, Plain(SlowTasks)] = SlowTasks()
    """Tasks that are slow on purpose."""
    reference: Annotated[ReferenceConfig, text_for("sql", ReferenceConfig)] | None = None
    """What the result is checked against; a string is the `sql`; null: not checked."""
