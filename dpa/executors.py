"""What users subclass: mappers and reducers, one record at a time or on Arrow columns.

A job may also name plain functions: see `as_mapper` and `as_reducer`. Executors are pickled once to every task, so what
they hold must be picklable; each task has a copy of its own. Ready-made reducers are in `dpa.aggregates`.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpa.errors import ConfigError

S = TypeVar("S")
V = TypeVar("V")
T = TypeVar("T")
Record = dict[str, Any]


class Mapper(ABC):
    """Makes (key, value) pairs of records, one record at a time."""

    @abstractmethod
    def map(self, record: Record) -> Iterable[tuple[Any, Any]]:
        """Return or yield any number of (key, value) pairs for one input row, given as a dict by column name.

        Keys are of one type in a job, any that docs/executors.md lists, or tuples of them for a job whose `key` names
        several columns; values are anything picklable.
        """


class BatchMapper(ABC):
    """Makes records of Arrow batches, a batch at a time."""

    @abstractmethod
    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """Return the records made of `batch`: the job's key column, or columns, and any others as the value."""


class Reducer(ABC, Generic[S, V]):
    """Folds the values of each key, one at a time, in the vocabulary of Spark's `Aggregator`.

    The runtime owns the state: it keeps one for each key, made by `zero`. A reducer that does not override `merge`
    cannot be balanced in merge mode, since a key's values may then meet on several reducers.
    """

    @abstractmethod
    def zero(self) -> S:
        """A new state for a key that has no values yet; never an object that was returned before if states are
        mutable."""

    @abstractmethod
    def reduce(self, state: S, value: V) -> S:
        """The state with one more value in it; may change `state` and return it."""

    def merge(self, left: S, right: S) -> S:
        """Two states of one key as one. Must be associative and commutative, with `zero()` as identity."""
        raise NotImplementedError(f"{type(self).__name__} has no merge")

    def finish(self, state: S) -> Any:
        """What the result holds for a key: a value, for the column `value`, or a dict of columns. The state itself by
        default."""
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
        """The number of groups."""
        return len(self.keys)

    def sizes(self) -> npt.NDArray[np.int64]:
        """How many rows each group has, shape (groups,)."""
        return np.bincount(self.ids, minlength=len(self.keys))

    def sum(self, column: str) -> pa.Array:
        """The sum of a column in each group, shape (groups,); nulls count as nothing, a group of nulls is null.

        Sums of integers are of 64 bits, those of decimals of 38 digits; both are exact. That of nulls of no type is of
        none either.

        Raises:
            OverflowError: a sum of integers does not fit in 64 bits, or one of decimals not in 38 digits.
        """
        values = self.values.column(column)
        if pa.types.is_null(values.type):  # Arrow's own sum of these is of integers, whatever other batches hold
            return pa.nulls(len(self.keys))
        if pa.types.is_decimal(values.type) and not pa.types.is_decimal256(values.type):
            kind = values.type  # Arrow's own sum of these wraps around too
            return self._exact_sum(column, pa.decimal256(kind.precision, kind.scale), pa.decimal128(38, kind.scale))
        if pa.types.is_integer(values.type) and values.null_count == 0 and len(values):
            numbers = values.to_numpy(zero_copy_only=False)
            if float(np.abs(numbers, dtype=np.float64).sum()) < 2**53:  # a float sum is exact, and much faster
                return pa.array(np.bincount(self.ids, numbers, len(self.keys)).astype(np.int64))
        if pa.types.is_integer(values.type):  # Arrow's own sum of integers wraps around
            return self._exact_sum(column, pa.decimal128(20), pa.int64())
        return self.aggregate(column, "sum")

    def _exact_sum(self, column: str, wide: pa.DataType, kind: pa.DataType) -> pa.Array:
        """The sum of a column, added up in a wide type and brought into another."""
        values = pa.record_batch({column: self.values.column(column).cast(wide)})
        return exact(replace(self, values=values).aggregate(column, "sum"), kind, f"a sum of {column!r}")

    def min(self, column: str) -> pa.Array:
        """The least value of a column in each group, shape (groups,); nulls are passed over. NaN is the greatest
        number, as in Spark."""
        return self.aggregate(column, "min")

    def max(self, column: str) -> pa.Array:
        """The greatest value of a column in each group, shape (groups,); nulls are passed over. NaN is the greatest
        number, as in Spark."""
        greatest, values = self.aggregate(column, "max"), self.values.column(column)
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

        Arrow's own `min` and `max` pass NaN over, and its sums of integers and decimals wrap around.
        """
        table = pa.table({"id": self.ids, "value": self.values.column(column)})
        grouped = table.group_by("id", use_threads=False).aggregate([("value", function)])
        order = np.empty(len(self.keys), dtype=np.int64)
        order[grouped["id"].to_numpy()] = np.arange(len(self.keys))
        return grouped[f"value_{function}"].combine_chunks().take(pa.array(order))


def exact(numbers: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """Numbers in another type that holds them exactly.

    Raises:
        OverflowError: one does not fit; `what` says in the message what they are.
    """
    try:
        return numbers.cast(kind)
    except pa.ArrowInvalid:
        raise OverflowError(f"overflow: {what} does not fit in {kind}") from None


class BatchReducer(ABC):
    """Folds the values of many keys at once, on grouped Arrow columns. The runtime owns keys and states.

    States are columns: a batch with one row a group, in the order of `Groups.keys`. Their names and types are the
    reducer's own and must be the same in every batch.
    """

    def check_values(self, values: pa.Schema) -> None:  # noqa: B027  (nothing to check is no mistake)
        """Check the columns of the values, before a job without a mapper starts; nothing by default.

        Raises:
            ConfigError: the reducer cannot work on such values. The message goes on after the reducer's name.
        """

    @abstractmethod
    def reduce(self, groups: Groups) -> pa.RecordBatch:
        """The state of each group after the values in `groups`, one row a group."""

    @abstractmethod
    def merge(self, groups: Groups) -> pa.RecordBatch:
        """The rows of `groups` are states: fold those of each group into one. Associative and commutative."""

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        """The result columns, a row for each state and in their order; the states themselves by default."""
        return states


AnyMapper = Mapper | BatchMapper
AnyReducer = Reducer[Any, Any] | BatchReducer


class FunctionMapper(Mapper):
    """A generator function `record -> (key, value) pairs` as a mapper."""

    def __init__(self, function: Callable[[Record], Iterable[tuple[Any, Any]]]) -> None:
        self.function = function

    def map(self, record: Record) -> Iterable[tuple[Any, Any]]:
        return self.function(record)


class FunctionBatchMapper(BatchMapper):
    """A function `batch -> batch` as a batch mapper."""

    def __init__(self, function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]) -> None:
        self.function = function

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        return self.function(batch)


class _Nothing:
    """The state of a key without values, for functions that have no zero of their own."""

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING = _Nothing()


class FunctionReducer(Reducer[Any, Any]):
    """An associative, commutative function `(value, value) -> value` as a reducer, as in Spark's `reduceByKey`."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def zero(self) -> Any:
        return NOTHING

    def reduce(self, state: Any, value: Any) -> Any:
        return value if state is NOTHING else self.function(state, value)

    def merge(self, left: Any, right: Any) -> Any:
        return left if right is NOTHING else self.reduce(left, right)


F = TypeVar("F", bound=Callable[..., Any])


def batch_mapper(function: F) -> F:
    """Mark a function as a batch mapper: it gets an Arrow record batch and returns one."""
    function.dpa_batch_mapper = True  # type: ignore[attr-defined]
    return function


def as_mapper(given: Any) -> AnyMapper:
    """A mapper made of an instance, a class without required arguments, or a function (of a record, or marked
    `batch_mapper`).

    Raises:
        ConfigError: it is none of these, or cannot be called as a mapper is.
    """
    made: AnyMapper
    if inspect.isclass(given) and issubclass(given, Mapper | BatchMapper):
        made = _made(given)
    elif isinstance(given, Mapper | BatchMapper):
        made = given
    elif callable(given) and not inspect.isclass(given):
        made = FunctionBatchMapper(given) if getattr(given, "dpa_batch_mapper", False) else FunctionMapper(given)
    else:
        raise ConfigError(f"{given!r} is no mapper: give a dpa.Mapper, a dpa.BatchMapper or a function of a record")
    _check_calls(made)
    return made


def as_reducer(given: Any) -> AnyReducer:
    """A reducer made of an instance, a class without required arguments, or a function of two values.

    Raises:
        ConfigError: it is none of these, or cannot be called as a reducer is.
    """
    made: AnyReducer
    if inspect.isclass(given) and issubclass(given, Reducer | BatchReducer):
        made = _made(given)
    elif isinstance(given, Reducer | BatchReducer):
        made = given
    elif callable(given) and not inspect.isclass(given):
        made = FunctionReducer(given)
    else:
        raise ConfigError(
            f"{given!r} is no reducer: give a dpa.Reducer, a dpa.BatchReducer or a function of two values"
        )
    _check_calls(made)
    return made


def _made(given: type[T]) -> T:
    try:
        return given()
    except TypeError as error:
        raise ConfigError(f"{given.__qualname__} cannot be made without arguments: {error}; give an instance") from None


_CALLS: dict[type, dict[str, tuple[str, ...]]] = {
    Mapper: {"map": ("record",)},
    BatchMapper: {"map_batch": ("batch",)},
    Reducer: {"zero": (), "reduce": ("state", "value"), "merge": ("left", "right"), "finish": ("state",)},
    BatchReducer: {"reduce": ("groups",), "merge": ("groups",), "finish": ("states",)},
}
"""The methods of each kind of executor, and what they are called with."""


def _check_calls(executor: AnyMapper | AnyReducer) -> None:
    """Check that an executor's methods, or the function that it wraps, can be called as they will be.

    Raises:
        ConfigError: names the first that cannot.
    """
    calls = next(calls for kind, calls in _CALLS.items() if isinstance(executor, kind))
    for method, arguments in calls.items():
        _require_arguments(f"{name_of(executor)}.{method}", getattr(executor, method), arguments)
    if isinstance(executor, FunctionMapper | FunctionBatchMapper):
        _require_arguments(name_of(executor), executor.function, *calls.values())
    if isinstance(executor, FunctionReducer):
        _require_arguments(name_of(executor), executor.function, calls["merge"])


def _require_arguments(name: str, function: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none that can be seen
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        called = f"({', '.join(arguments)})"
        raise ConfigError(f"{name} is called with {called}, and its parameters are {signature}") from None


def is_mergeable(reducer: AnyReducer) -> bool:
    """Whether two states of one key can be folded into one: always so for batch reducers."""
    return isinstance(reducer, BatchReducer) or type(reducer).merge is not Reducer.merge


def name_of(executor: AnyMapper | AnyReducer) -> str:
    """`module.Name` of an executor or of the function it wraps, for messages."""
    inner: Any = type(executor)
    if isinstance(executor, FunctionMapper | FunctionBatchMapper | FunctionReducer):
        inner = executor.function
    return f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', repr(inner))}"
