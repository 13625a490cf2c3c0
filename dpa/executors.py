"""What users subclass: mappers and reducers, one record at a time or on Arrow columns.

A job may also name plain functions, which are wrapped (`dpa._given`). Executors are pickled once to every task, so
their attributes must be picklable; each task has its own copy. Ready-made reducers are in `dpa.aggregates`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpa.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

S = TypeVar("S")
V = TypeVar("V")
Record = dict[str, Any]


class Mapper(ABC):
    """Maps each record to (key, value) pairs, one record at a time."""

    @abstractmethod
    def map(self, record: Record) -> Iterable[tuple[Any, Any]]:
        """Return or yield any number of (key, value) pairs for one input row, given as a dict by column name.

        All keys of a job have one type of those in docs/executors.md, or are tuples of them if the job's `key` names
        several columns; values are any picklable objects."""


class BatchMapper(ABC):
    """Maps Arrow batches to records, a batch at a time."""

    @abstractmethod
    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """Return the records of `batch`: the job's key column or columns, and any other columns as the value."""


class Reducer(ABC, Generic[S, V]):
    """Folds the values of each key, one at a time, in the vocabulary of Spark's `Aggregator`.

    The runtime owns the states: one for each key, made by `zero`. A reducer without `merge` cannot be balanced in merge
    mode, where a key may have states on several reducers.

    Attributes:
        reads: the columns that it needs. Each value is then a dict of these columns, even of a single one. If it names
            none, a value of one column is given as it is, and only several columns as a dict.
    """

    reads: Sequence[str] = ()

    @abstractmethod
    def zero(self) -> S:
        """Return a new state for a key without values; if states are mutable, a new object at each call."""

    @abstractmethod
    def reduce(self, state: S, value: V) -> S:
        """Return the state with one more value: of one column as it is, of several a dict. It may change `state` and
        return it."""

    def merge(self, left: S, right: S) -> S:
        """Merge two states of one key. Must be associative and commutative, with `zero()` as identity."""
        raise NotImplementedError(f"{type(self).__name__} has no merge")

    def finish(self, state: S) -> Any:
        """Return the result of a key: a value, for the column `value`, or a dict of columns. By default the state."""
        return state


@dataclass(frozen=True)
class Groups:
    """Rows grouped by key, as a batch reducer sees them.

    Attributes:
        keys: the distinct keys, shape (groups,); structs if the job's `key` names several columns.
        ids: for each row the position of its key in `keys`, shape (rows,); every group has a row.
        values: the rows' columns, shape (rows,) each.
    """

    keys: pa.Array
    ids: npt.NDArray[np.int32]
    values: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of rows of each group, shape (groups,)."""
        return self._sizes.copy()

    @cached_property
    def _sizes(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.ids, minlength=len(self.keys))

    def _column(self, name: str) -> pa.Array:
        """Decoded: Arrow does not aggregate dictionaries."""
        values = self.values.column(name)
        return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values

    def sum(self, column: str) -> pa.Array:
        """The sum of a column in each group, shape (groups,); nulls are ignored, and a group of nulls only is null.

        Sums of integers have 64 bits, those of decimals 38 digits; both are exact. The sum of a column of type null has
        type null.

        Raises:
            OverflowError: a sum of integers does not fit in 64 bits, or one of decimals not in 38 digits.
        """
        values = self._column(column)
        if pa.types.is_null(values.type):  # Arrow's own sum has an integer type, whatever the type in other batches
            return pa.nulls(len(self.keys))
        if pa.types.is_decimal(values.type) and not pa.types.is_decimal256(values.type):
            kind = values.type  # Arrow's own sum of decimals wraps around, too
            return self._exact_sum(column, pa.decimal256(kind.precision, kind.scale), pa.decimal128(38, kind.scale))
        if pa.types.is_integer(values.type) and values.null_count == 0 and len(values):
            numbers = values.to_numpy(zero_copy_only=False)
            if float(np.abs(numbers, dtype=np.float64).sum()) < 2**53:  # a float sum is exact, and much faster
                return pa.array(np.bincount(self.ids, numbers, len(self.keys)).astype(np.int64))
        if pa.types.is_integer(values.type):  # Arrow's own sum of integers wraps around
            return self._exact_sum(column, pa.decimal128(20), pa.int64())
        return self.aggregate(column, "sum")

    def _exact_sum(self, column: str, wide: pa.DataType, kind: pa.DataType) -> pa.Array:
        values = pa.record_batch({column: self._column(column).cast(wide)})
        return exact(replace(self, values=values).aggregate(column, "sum"), kind, f"a sum of {column!r}")

    def min(self, column: str) -> pa.Array:
        """The least value of a column in each group, shape (groups,), without nulls. NaN is the greatest number, as in
        Spark."""
        return self.aggregate(column, "min")

    def max(self, column: str) -> pa.Array:
        """The greatest value of a column in each group, shape (groups,), without nulls. NaN is the greatest number, as
        in Spark."""
        greatest, values = self.aggregate(column, "max"), self._column(column)
        if not pa.types.is_floating(values.type):
            return greatest
        rows = pc.is_nan(values).fill_null(False).to_numpy(zero_copy_only=False)
        if not rows.any():
            return greatest
        has_nan = np.zeros(len(self.keys), dtype=bool)
        has_nan[self.ids[rows]] = True
        return pc.if_else(pa.array(has_nan), pa.scalar(math.nan, values.type), greatest)

    def aggregate(self, column: str, function: str) -> pa.Array:
        """Any of Arrow's grouped aggregations (`mean`, `first`, `stddev` ...) of a column, shape (groups,).

        Arrow's own `min` and `max` ignore NaN, and its sums of integers and decimals wrap around."""
        table = pa.table({"id": self.ids, "value": self._column(column)})
        grouped = table.group_by("id", use_threads=False).aggregate([("value", function)])
        order = np.empty(len(self.keys), dtype=np.int64)
        order[grouped["id"].to_numpy()] = np.arange(len(self.keys))
        return grouped[f"value_{function}"].combine_chunks().take(pa.array(order))


def exact(numbers: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """Cast numbers to a type that holds them exactly.

    Raises:
        OverflowError: one does not fit; `what` names the numbers in the message.
    """
    try:
        return numbers.cast(kind)
    except pa.ArrowInvalid:
        raise OverflowError(f"overflow: {what} does not fit in {kind}") from None


def quotient(total: pa.Array, count: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """Sums of decimals divided by counts, rounded half up to `kind`. Arrow truncates a quotient at 20 digits beyond the
    dividend's scale, of 76 in all. Raises OverflowError where one does not fit."""
    found = pc.divide(total.cast(pa.decimal256(56, total.type.scale)), count.cast(pa.decimal256(19)))
    return exact(pc.round(found, kind.scale, "half_towards_infinity"), kind, what)


class BatchReducer(ABC):
    """Folds the values of many keys at once, on grouped Arrow columns. The runtime owns keys and states.

    States are columns: a batch with one row a group, in the order of `Groups.keys`. Their names and types are the
    reducer's own and must be the same in every batch."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the value columns that it needs, if it can say; None by default. Where no row has shown its
        columns, these are given with type null."""
        return ()

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the result columns, if they do not depend on the values; by default none."""
        return ()

    def check_values(self, values: pa.Schema) -> None:  # noqa: B027  (optional)
        """Check the columns of the values, before a job without a mapper starts; nothing by default.

        Raises:
            ConfigError: the reducer cannot work on such values. The message continues the reducer's name.
        """

    def partials(self, values: pl.Schema) -> Sequence[pl.Expr]:
        """Polars expressions over rows with these columns, one for each column of a state, that compute what `reduce`
        does for a group. A task that reads files then reduces in the query that reads them. None by default."""
        return ()

    @abstractmethod
    def reduce(self, groups: Groups) -> pa.RecordBatch:
        """Return the state of each group's values, one row a group."""

    @abstractmethod
    def merge(self, groups: Groups) -> pa.RecordBatch:
        """Merge the states of each group, which are the rows of `groups`. Must be associative and commutative."""

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        """Return the result columns, a row for each state in the same order. By default the states."""
        return states


class RowsReducer(BatchReducer):
    """A batch reducer whose result may have any number of rows for a key. A state is still one row."""

    @abstractmethod
    def finish_rows(self, states: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Return the result's rows, and for each of them the position of its state in `states`, shape (rows,)."""


class Process(ABC, Generic[S, V]):
    """Processes the values of each key, one at a time, and emits records while it does so.

    The runtime owns the state: it keeps one for each key, made by `zero`. Two states of a key cannot be merged, so all
    records of a key go to one task, in the order in which each upstream task has emitted them. It may say what it
    `reads`, as a `Reducer` may.
    """

    reads: Sequence[str] = ()

    @abstractmethod
    def zero(self) -> S:
        """Return a new state for a key without values; if states are mutable, a new object at each call."""

    @abstractmethod
    def process(self, key: Any, state: S, value: V) -> tuple[S, Iterable[Record]]:
        """Return the state with one more value, and the records to emit, as dicts by column name; may change
        `state`."""

    def timer(self, key: Any, state: S) -> datetime | None:
        """Return when to call `on_time` for a key, in event time (UTC if without a zone), or None. It must follow from
        the state alone, since it moves and is saved with the state."""
        return None

    def on_time(self, key: Any, state: S, time: datetime) -> tuple[S | None, Iterable[Record]]:
        """Called when event time has passed a key's timer, which was `time`. Return the new state, whose timer is later
        or None, and the records to emit. A state of None forgets the key."""
        raise NotImplementedError

    def finish(self, key: Any, state: S) -> Iterable[Record]:
        """Return the records to emit for a key when no more values come; none by default."""
        return ()


class SelfNamed:
    """An executor whose text is its name in messages, with all that it does; `step` is the name of the job's step."""

    step: str = ""


AnyMapper = Mapper | BatchMapper
AnyReducer = Reducer[Any, Any] | BatchReducer


class FunctionExecutor:
    """An executor made of a user's function, whose name messages give."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class FunctionMapper(FunctionExecutor, Mapper):
    """A generator function `record -> (key, value) pairs` as a mapper."""

    def map(self, record: Record) -> Iterable[tuple[Any, Any]]:
        return self.function(record)  # type: ignore[no-any-return]


class FunctionBatchMapper(FunctionExecutor, BatchMapper):
    """A function `batch -> batch` as a batch mapper."""

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        return self.function(batch)


class _Nothing(Enum):
    """The state of a key without values, for functions, which have no `zero`."""

    NOTHING = ()


NOTHING = _Nothing.NOTHING


class FunctionReducer(FunctionExecutor, Reducer[Any, Any]):
    """An associative, commutative function `(value, value) -> value` as a reducer, as in Spark's `reduceByKey`."""

    def zero(self) -> Any:
        return NOTHING

    def reduce(self, state: Any, value: Any) -> Any:
        return value if state is NOTHING else self.function(state, value)

    def merge(self, left: Any, right: Any) -> Any:
        return left if right is NOTHING else self.reduce(left, right)


F = TypeVar("F", bound=Callable[..., Any])


def batch_mapper(function: F) -> F:
    """Mark a function as a batch mapper: it receives an Arrow record batch and returns one."""
    function.dpa_batch_mapper = True  # type: ignore[attr-defined]
    return function


def columns_read(executor: Reducer[Any, Any] | Process[Any, Any]) -> tuple[str, ...]:
    """The columns that it `reads`; ConfigError if these are no names."""
    reads: Any = (executor.reads,) if isinstance(executor.reads, str) else executor.reads
    if not isinstance(reads, list | tuple) or not all(isinstance(name, str) for name in reads):
        raise ConfigError(f"{name_of(executor)}.reads names columns, such as ('cents', 'day'), and is {reads!r}")
    return tuple(dict.fromkeys(reads))


def name_of(executor: object) -> str:
    """`module.Name` of a function, a class, an executor, or the function that it wraps, for messages."""
    inner: Any = executor.function if isinstance(executor, FunctionExecutor) else executor
    if isinstance(inner, SelfNamed):
        return str(inner)
    inner = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', repr(inner))}"


def called(executor: object, method: str) -> str:
    """How messages name the call of a method."""
    inner = executor.function if isinstance(executor, FunctionExecutor) else executor
    if isinstance(inner, SelfNamed):
        return f"{inner.step}: {inner}" if inner.step else str(inner)
    return f"{name_of(executor)}.{method}"
