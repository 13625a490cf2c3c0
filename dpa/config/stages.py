"""`stages:` of a job file: a graph of steps, in the words of `dpa.Flow`.

Every step has a name, and reads, changes rows, reduces, processes, joins or ranks. One that does several things stands
for as many steps. Which executors fit, and whether the steps that a step names exist, is checked where the graph is
made (`dpa.driver._steps`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, model_validator

from dpa.config._section import Columns, Faults, Section, in_json
from dpa.config._sinks import OutputConfig, Outputs
from dpa.config._stage import (
    Aggregates,
    Balance,
    Executor,
    ExecutorConfig,
    Grouping,
    KeyColumns,
    ResourcesConfig,
    StageConfig,
    StageLimits,
    Tasks,
    as_key,
)
from dpa.config.inputs import Input
from dpa.config.variants import BALANCE, VARIANTS, Plain, with_strategy
from dpa.routing.keys import KeyName
from dpa.tolerance import OnError
from dpa.windows.options import Windows

INSTEAD = {
    "key_by(...).agg(...)": "group_by groupby groupBy agg aggregate",
    "key_by(...)": "on",
    "key_by(...).top_k(1, by=...)": "unique distinct drop_duplicates dropDuplicates",
    "top_k(...)": "sort sort_by order_by orderBy",
    "filter(...)": "where",
    "with_columns(...)": "with_column withColumn assign",
    "window(...)": "group_by_dynamic rolling",
    "union(...)": "concat vstack unionAll unionByName",
    "write(...)": "sink_parquet sink_csv write_parquet write_csv to_parquet to_csv",
    "run().table()": "collect toPandas to_pandas",
    "head(...)": "limit",
}
"""What says here what words of polars, pandas and Spark say there."""


@dataclass(frozen=True)
class Operation:
    """What a step may do to rows.

    Attributes:
        uses: the keys of a step that it has a use for, of those that not every operation has.
        needs_key: whether `key_by` must be given.
        combines: whether a few rows stand for all of a block, so that it always combines before it sends.
        publishes: how its rows may be published while the job runs; `final` of rows in windows is allowed anyway.
    """

    uses: frozenset[str] = frozenset()
    needs_key: bool = False
    combines: bool = False
    publishes: frozenset[str] = frozenset({"final"})

    @property
    def is_by_key(self) -> bool:
        return "key_by" in self.uses


_BY_KEY = frozenset({"key_by", "value", "consistency"})

OPERATIONS = {
    "read": Operation(frozenset({"schema", "sample", "on_error"})),
    **dict.fromkeys(("map", "flat_map"), Operation(frozenset({"schema", "on_error"}))),
    **dict.fromkeys(
        ("filter", "with_columns", "select", "drop", "rename", "explode", "unnest", "window"),
        Operation(frozenset({"on_error"})),
    ),
    **dict.fromkeys(
        ("reduce", "agg"),
        Operation(
            _BY_KEY | {"schema", "combiner", "on_error"}, needs_key=True, publishes=frozenset({"table", "changes"})
        ),
    ),
    "process": Operation(_BY_KEY | {"schema", "on_error"}, needs_key=True),
    "join": Operation(_BY_KEY, needs_key=True, publishes=frozenset()),
    "top_k": Operation(_BY_KEY | {"schema", "on_error"}, combines=True, publishes=frozenset({"table"})),
}
"""What a step does: one of these, or nothing, which passes on the rows of all that it is `from`."""

_OF_RECEIVERS = ("grouping", "balance", "consistency", "limits", "testing", "write", "reference")
"""Keys of steps that take the rows of others."""

_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""Names of steps are those of views in queries and of files, too, so they have no other letters."""


def _as_name(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(_NAME, value) or len(value) > 64:
        what = "up to 64 ASCII letters (A to Z, a to z), digits and `_`, and does not begin with a digit"
        raise ValueError(f"the name of a step has {what}")
    return value


def _as_names(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise ValueError(f"name a step, or a list of steps, not {in_json(value)}")
    return names


StepName: TypeAlias = Annotated[str, Field(pattern=_NAME, max_length=64), BeforeValidator(_as_name)]
"""The name of a step, also of its view in reference queries."""


def _as_key_by(value: Any) -> Any:
    """A function of a record is written as an executor is, as a mapping with `use`; all else names columns."""
    if isinstance(value, dict) and not {"use"} <= set(value) <= {"use", "args"}:
        raise ValueError("a function of a record is written as `{use: package.module:name}`")
    return value if isinstance(value, dict | ExecutorConfig) else as_key(value)


Names: TypeAlias = Annotated[
    list[StepName], Field(min_length=1), BeforeValidator(_as_names, json_schema_input_type=str | list[str])
]
KeyBy: TypeAlias = Annotated[
    ExecutorConfig | KeyName,
    BeforeValidator(_as_key_by, json_schema_input_type=str | list[str] | ExecutorConfig | None),
]
"""The columns of a key, or a function of a record that gives it; null: all records have one key."""


SomeColumns: TypeAlias = Annotated[Columns, Field(min_length=1)]
Expressions: TypeAlias = Annotated[Columns | dict[str, str], Field(min_length=1)]
"""SQL expressions: one, several, or expressions by the name of the column that each makes."""

OTHER_HOWS = {
    **dict.fromkeys(("outer", "full_outer", "fullouter"), "full"),
    **dict.fromkeys(("left_outer", "leftouter"), "left"),
    **dict.fromkeys(("right_outer", "rightouter"), "right"),
    **dict.fromkeys(("left_semi", "leftsemi"), "semi"),
    **dict.fromkeys(("left_anti", "leftanti"), "anti"),
}
"""What pandas, polars and Spark call the joins that have another name here."""


def _as_how(value: Any) -> Any:
    return OTHER_HOWS.get(value, value) if isinstance(value, str) else value


class JoinConfig(Section):
    """The other side of a join, the right one."""

    with_: Names = Field(alias="with")
    """The step, or several, whose rows are the right side."""
    how: Annotated[Literal["inner", "left", "right", "full", "semi", "anti"], BeforeValidator(_as_how)] = "inner"
    """Which rows are kept without a match; `full` or `outer`: all. `semi` keeps the rows of the left side that have a
    match, `anti` the others."""
    key_by: KeyColumns | None = None
    """Key columns of the right side, as many as the step's `key_by` has for the left; null: the same names."""
    value: Columns | None = None
    """Columns of the right side to keep in the result; null: all but the key."""
    broadcast_mb: float = Field(default=32.0, ge=0)
    """Most MiB of a side for a [join without a shuffle](flows.md#joins-without-a-shuffle); 0: always shuffle."""


class TopConfig(Section):
    """The first rows in the order of a column."""

    k: int = Field(ge=1)
    """Rows to keep for each key; without `key_by`, of all rows."""
    by: str
    """Column to rank by; the other columns break ties."""
    descending: bool = True
    """Whether the greatest values come first."""


NO_WINDOW = "none"
"""What ends windows."""

Window: TypeAlias = Literal["none"] | Annotated[Windows, Plain(Windows, short="size")]


class _Operation(Section):
    """What a step does to which rows."""

    from_: Names | None = Field(default=None, alias="from")
    """The step, or several with the same columns and types, whose rows it takes; required unless the step reads."""
    allow_missing_columns: bool = False
    """With several steps in `from`: whether one may lack columns that another has; these are null."""
    read: Input | None = None
    """Read an input, with the keys of the job's `input`; a string is the path, a list several."""
    map: Executor | None = None
    """Make a row of each row, by a function of a record or a `batch_mapper`."""
    flat_map: Executor | None = None
    """Make any number of rows of each row, as `map` does."""
    filter: Executor | None = None
    """Keep the rows for which a SQL condition such as `cents > 0`, a function of a record or a `batch_filter` is true.
    """
    with_columns: Expressions | None = None
    """Add or change columns: SQL expressions by column name, or a list such as `[cents / 100 AS euros]`."""
    select: Expressions | None = None
    """Keep only these columns; written as `with_columns`."""
    drop: SomeColumns | None = None
    """Leave out one or more columns."""
    rename: Annotated[dict[str, str], Field(min_length=1)] | None = None
    """Rename columns: new names by old ones."""
    explode: SomeColumns | None = None
    """Make a row of each element of a list column, or of several whose lists have equal lengths."""
    unnest: SomeColumns | None = None
    """Make columns of the fields of one or more struct columns."""
    window: Window | None = None
    """Put each row into windows of its time, which are part of every later key. A string such as `1m` is the `size`;
    `none` ends windows."""
    key_by: KeyBy = Field(default=(), json_schema_extra={"default": None})
    """What `reduce`, `agg`, `process`, `join` and `top_k` group records by: one or more columns, or a function of a
    record as `{use: "module:name"}`; null: all records have one key."""
    reduce: Executor | None = None
    """Fold the values of each key by a reducer."""
    agg: Aggregates | None = None
    """Aggregates of each key in SQL, by the names of the result columns: `{n: "count(*)", total: "sum(euros)"}`."""
    process: Executor | None = None
    """Keep a state for each key and emit rows, with a `dpa.Process`."""
    join: JoinConfig | None = None
    """Join with the rows of another step, by key."""
    top_k: TopConfig | None = None
    """Keep the first rows of each key, with their rank."""


class StepConfig(StageConfig, _Operation):
    """A step: what it does to which rows, and how its work is divided and kept even."""

    parallelism: Tasks | None = None
    """Tasks of the step; null: 2 to read, 4 by key, 1 if all records have one key. Changes of rows run in the tasks
    before them, unless this gives them their own."""
    grouping: Grouping | None = None
    """How senders choose the task of a record; null: `ring`, or `shuffle` if rows have no key."""
    balance: Balance | None = None
    """When and how keys are redistributed; null: `adaptive` if states can be merged or migrate and the grouping is
    `ring`, else `none`."""
    resources: ResourcesConfig | None = None
    """What each of its tasks requests of its node on a cluster; null: the job's."""
    limits: StageLimits | None = None
    """Bounds on the records that wait for the step; null: the job's. A missing key has its default, not the job's
    value."""
    on_error: OnError | None = None
    """What to do with a record on which the step's user code raises, or which it cannot read; null: as the job's
    `on_error` says."""
    write: Outputs | None = None
    """Where its rows are written; a string is the path, a list several places."""

    _words: tuple[str, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _in_order(cls, document: Any, handler: ModelWrapValidatorHandler[StepConfig]) -> StepConfig:
        if isinstance(document, dict) and BALANCE.section in document:
            document = with_strategy(document)
        made = handler(document)
        # The model itself does not know in which order its keys were written.
        names = document if isinstance(document, dict) else document._words
        made._words = tuple(name for name in names if name in OPERATIONS and getattr(made, name) is not None)
        for is_wrong, why in made._misfits():
            if is_wrong:
                raise ValueError(why)
        return made

    def parts(self, name: str) -> dict[str, StepConfig]:
        """A step for each operation, in order; the last one has the name, and keys that are not of one operation."""
        found: dict[str, StepConfig] = {}
        takes: dict[str, Any] = {"from": self.from_, "allow_missing_columns": self.allow_missing_columns}
        for word in self._words[:-1]:
            own: dict[str, Any] = {"schema": self.schema_} if "schema" in OPERATIONS[word].uses else {}
            own |= {word: getattr(self, word), "on_error": self.on_error}
            part = StepConfig.model_construct(**takes, **own)
            part._words = (word,)
            found[f"{name}.{word}"] = part
            takes = {"from": [f"{name}.{word}"]}
        rest = {"from_": takes["from"], **dict.fromkeys(self._words[:-1])}  # what a part does, the last one does not
        return {**found, name: self.model_copy(update=rest) if found else self}

    @property
    def operation(self) -> str | None:
        """What the step does last, one of `OPERATIONS`; None: it passes rows on."""
        return self._words[-1] if self._words else None

    @property
    def does(self) -> Operation:
        return Operation() if self.operation is None else OPERATIONS[self.operation]

    @property
    def section(self) -> Any:
        return None if self.operation is None else getattr(self, self.operation)

    @property
    def names_key(self) -> bool:
        """Whether `key_by` is given, even as null."""
        return "key_by" in self.model_fields_set

    @property
    def outputs(self) -> Mapping[str, OutputConfig]:
        """Where its rows are written, by the key that says so."""
        written = self.write or []
        return {f"write.{number}" if len(written) > 1 else "write": each for number, each in enumerate(written)}

    def resolved(self) -> dict[str, Any]:
        """The step as a document: what differs from the defaults, a key that is null, and the names of the strategy
        and grouping that the other keys are options of."""
        document = self.model_dump(by_alias=True, exclude_defaults=True)
        for section, variants in VARIANTS.items():
            if section in document:
                document[section] = {variants.by: getattr(getattr(self, section), variants.by), **document[section]}
        document |= {word: document.pop(word) for word in self._words}
        return {**document, "key_by": document.get("key_by")} if self.names_key else document

    def _misfits(self) -> Faults:
        """As `faults`, once it is known what the step does."""
        done = self._words
        *before, last = done or ("",)
        yield before and "read" in done, "`read` does nothing else in its step: make another one of the rest"
        once = [word for word in before if OPERATIONS[word].is_by_key]
        yield once, f"`{once and once[0]}` does not stand before `{last}` in one step: make a step of each"
        of_columns = [word for word in done if "schema" in OPERATIONS[word].uses]
        both = f"`schema` could belong to {' or '.join(of_columns)}: give each its own step"
        yield self.schema_ is not None and len(of_columns) > 1, both
        needs = f"`{done[0]}` needs rows: name a step in `from`" if done else f"give one of {', '.join(OPERATIONS)}"
        yield self.read is None and self.from_ is None, needs
        yield self.read is not None and self.from_ is not None, "`read` takes no rows of other steps: leave `from` out"
        shown = f"`{last}`" if done else "a step without an operation"
        every = "" if self.join is not None else "; null takes all records as of one key"
        no_key = f"{shown} needs `key_by`, the column that records are grouped by{every}"
        yield self.does.needs_key and not self.names_key, no_key
        given = {
            "key_by": self.names_key,
            "value": self.value is not None,
            "schema": self.schema_ is not None,
            "combiner": self.combiner is True,
            "consistency": self.consistency == "migrate",
            "sample": self.sample is not None,
            "on_error": self.on_error is not None,
        }
        used = frozenset().union(*(OPERATIONS[word].uses for word in done))
        unused = {name: is_given and name not in used for name, is_given in given.items()}
        if self.read is not None:
            alone = "a record can be left out of topics of Kafka, and of lines that are watched, alone"
            yield self.on_error is not None and not self.read.has_records, alone
            unused |= {name: name in self.model_fields_set for name in _OF_RECEIVERS}
            own = f"`{self.read.format or 'path'}` has columns of its own: leave it out"
            own = "files that are read in place have `read.columns`" if self.read.in_place else own
            is_typed = self.schema_ is not None and not self.read.is_in_memory
            yield is_typed, f"`schema` is for tables and records in memory, and {own}"
        for name, is_unused in unused.items():
            yield is_unused, f"{shown} has no use for `{name}`"
        nowhere = self.write is not None and len(self.write) == 1 and self.write[0].is_memory
        yield nowhere, "`write` needs a `path`, or `use`; the rows of a result without `write` stay in memory"
        sides = (self.from_ or [], self.join.with_ if self.join else [])
        one = "`allow_missing_columns` is for the rows of several steps, and this one takes those of one"
        yield self.allow_missing_columns and max(map(len, sides)) < 2, one


OF_KEYED = {
    field.alias or name
    for name, field in StepConfig.model_fields.items()
    if name not in {*_Operation.model_fields, "value"}
}
"""The keys that a step by key may have, beside those that say what it does to which rows."""
