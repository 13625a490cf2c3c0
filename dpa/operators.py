"""Operators between the stages of a graph, as plain data: stateless ones on rows, and joins. A flow makes them; users
write the functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from dpa._given import require_arguments
from dpa._util.declared import Declared
from dpa.errors import ConfigError
from dpa.executors import BatchMapper, FunctionExecutor, name_of
from dpa.tolerance import Tolerance

if TYPE_CHECKING:
    from dpa.columns.query import Query

F = TypeVar("F", bound=Callable[..., Any])


class RowKind(Enum):
    """What a row operator makes of a row; the value is the method that messages name."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    WITH_COLUMNS = "with_columns"
    SELECT = "select"
    DROP = "drop"
    RENAME = "rename"
    EXPLODE = "explode"
    UNNEST = "unnest"
    WINDOW = "window"
    KEY = "key_by"
    JOIN = "join"


ON_COLUMNS = tuple(RowKind)[3:9]
"""What is said in expressions and names of columns alone."""

MAKING = (RowKind.MAP, RowKind.FLAT_MAP, RowKind.JOIN, *ON_COLUMNS)  # rows of other columns


@dataclass(frozen=True)
class RowOperator(FunctionExecutor):
    """A stateless operator on rows.

    Attributes:
        kind: `MAP` makes a row of each row, `FLAT_MAP` any number, `FILTER` keeps some, `WINDOW` puts
            each into windows, `KEY` returns a row's key, `JOIN` joins each with rows that every task has; the others
            are as in polars.
        function: called with each row, a dict by column name, and returns a dict, an iterable of dicts, whether to keep
            the row, or its key. With `on_batches` it is called with Arrow record batches and returns a batch or table,
            or, of a filter, an array of booleans.
        on_batches: whether the function takes batches.
        declared: the columns that the rows it makes are declared to have, or None.
        tolerance: how errors of the function are tolerated; None: they fail the job.
    """

    kind: RowKind
    function: Callable[..., Any]
    on_batches: bool = False
    declared: Declared | None = None
    tolerance: Tolerance | None = None

    @property
    def query(self) -> Query | None:
        """The function, if it is verbs on columns."""
        function: Any = self.function
        return function if hasattr(function, "verbs") else None


def batch_filter(function: F) -> F:
    """Mark a function as a batch filter: it gets an Arrow record batch and returns an array of booleans, one a row."""
    function.dpa_batch_filter = True  # type: ignore[attr-defined]
    return function


def as_row_operator(kind: RowKind, given: Any) -> RowOperator:
    """A row operator made of a function of a record, one marked `batch_mapper` or `batch_filter`, or a `BatchMapper`.

    Raises:
        ConfigError: it is none of these, is for another kind of operator, or cannot be called with a record or a batch.
    """
    if isinstance(given, BatchMapper) and kind in MAKING:
        require_arguments(f"{name_of(given)}.map_batch", given.map_batch, ("batch",))
        return RowOperator(kind, given.map_batch, on_batches=True)
    if not callable(given) or isinstance(given, type):
        raise ConfigError(f"{given!r} is no function of a record, which `{kind.value}` needs")
    marks = {mark for mark in ("batch_mapper", "batch_filter") if getattr(given, f"dpa_{mark}", False)}
    fitting = {RowKind.MAP: "batch_mapper", RowKind.FLAT_MAP: "batch_mapper", RowKind.FILTER: "batch_filter"}
    if marks - {fitting.get(kind)}:
        raise ConfigError(f"{name_of(given)} is marked `{marks.pop()}`, which `{kind.value}` cannot call")
    require_arguments(name_of(given), given, ("batch",) if marks else ("record",))
    return RowOperator(kind, given, bool(marks))


JOINS = ("inner", "left", "right", "full", "semi", "anti")
"""How two sides may be joined: as Spark's `inner`, `left`, `right`, `full`, `left_semi` and `left_anti`."""


@dataclass(frozen=True)
class JoinOptions:
    """An equality join of two sides, left and right.

    Attributes:
        how: one of `JOINS`.
        on: the key columns of the left side and those of the right, in the same order.
        columns: the value columns of the left side and of the right that the result has: they decide its names before
            any row comes. None: those of the rows, where no name depends on them.
    """

    how: str
    on: tuple[tuple[str, ...], tuple[str, ...]]
    columns: tuple[pa.Schema | None, pa.Schema | None] = (None, None)

    def __post_init__(self) -> None:
        if self.how not in JOINS:
            raise ConfigError(f"how: {self.how!r} is no join; there are {', '.join(JOINS)}")
        left, right = self.on
        if not left or len(left) != len(right):
            raise ConfigError(f"on: a join needs as many columns of one side as of the other, not {left} and {right}")

    @property
    def names_sides(self) -> bool:
        """Whether the result has columns of both sides, whose names depend on each other."""
        return self.how not in ("semi", "anti")

    @property
    def right_names(self) -> dict[str, str]:
        """The names that the right side's value columns have in the result: one that is there already ends with
        `_right`."""
        left, right = ([] if columns is None else columns.names for columns in self.columns)
        taken, found = {*self.on[0], *left}, dict[str, str]()
        for name in right:
            found[name] = name
            while found[name] in taken:
                found[name] += "_right"
            taken.add(found[name])
        return found

    @property
    def key(self) -> str | tuple[str, ...]:
        """The result's key: the left side's key columns."""
        left = self.on[0]
        return left[0] if len(left) == 1 else left
