"""Ready-made reducers. A job file names them by the short names in `READY_MADE`; all of them can merge states.

As in SQL, nulls count as no value, except for `count`, which counts records. As in Spark, sums and means of decimals
are decimals, and NaN is one value, greater than any other number."""

from __future__ import annotations

import difflib
import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpa._util.inference import no_rows
from dpa._util.words import converted
from dpa.errors import ConfigError
from dpa.executors import AnyReducer, BatchReducer, Groups, Reducer, RowsReducer, exact, quotient

if TYPE_CHECKING:
    import polars as pl


class Count(BatchReducer):
    """The number of records of each key, as the column `count`."""

    def partials(self, values: pl.Schema) -> Sequence[pl.Expr]:
        import polars as pl

        return (pl.len().cast(pl.Int64).alias("count"),)

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"count": pa.array(groups.sizes(), pa.int64())})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"count": groups.sum("count")})


class _OfOneColumn(BatchReducer):
    """An aggregate of one column; the result column has the same name."""

    def __init__(self, column: str = "value") -> None:
        self.column = column

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def check_values(self, values: pa.Schema) -> None:
        names = values.names
        if self.column not in names:
            found = f"the columns of the values are {', '.join(names)}" if names else "there are no values"
            likely = difflib.get_close_matches(self.column, names, n=1) or names
            name = likely[0] if len(likely) == 1 else "NAME"
            mend = f"set `args: {{column: {name}}}`, in Python {type(self).__name__}({name!r})"
            raise ConfigError(f"reads the column {self.column!r}, and {found}; {mend}")
        nobody = no_rows(values)
        try:
            self.reduce(Groups(pa.nulls(0), np.empty(0, dtype=np.int32), nobody))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            found = values.field(self.column).type
            cast = converted(f"double({self.column}) AS {self.column}", f'float(row["{self.column}"])')
            raise ConfigError(
                f"cannot work on the column {self.column!r}, which is {found}; make numbers of it: {cast}"
            ) from None


class Min(_OfOneColumn):
    """The least value of a column, under the same name."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({self.column: groups.min(self.column)})

    merge = reduce


class Max(_OfOneColumn):
    """The greatest value of a column, under the same name."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({self.column: groups.max(self.column)})

    merge = reduce


_MAX_DIGITS = 38  # the most digits of a decimal in Spark
_HEADROOM = 38  # digits of the state of a sum of decimals beyond those of its values: enough for 10**38 values


class Sum(_OfOneColumn):
    """The sum of a column, under the same name. Decimals of p digits have a sum of p + 10, at most 38.

    A state of integers that does not fit in 64 bits is a decimal, as the sums of other states may bring it back."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        values = _widened(groups.values.column(self.column))
        return self.merge(replace(groups, values=pa.record_batch({self.column: values})))

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({self.column: _sum(groups, self.column)})

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        total = states.column(self.column)
        if pa.types.is_decimal(total.type):
            is_whole = not pa.types.is_decimal256(total.type)
            kind = pa.int64() if is_whole else _decimal(total.type, more_digits=10, more_scale=0)
            total = exact(total, kind, f"a sum of {self.column!r}")
        return pa.record_batch({self.column: total})


class Mean(_OfOneColumn):
    """The arithmetic mean of a column, under the same name; null for a key whose values are all null.

    The mean of decimals of p digits, s of them after the point, has p + 4 and s + 4 digits, at most 38 each, rounded
    half up."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        values = groups.values.column(self.column)
        as_they_are = pa.types.is_decimal(values.type) or pa.types.is_null(values.type)
        numbers = _widened(values) if as_they_are else values.cast(pa.float64(), safe=False)
        parts = pa.record_batch({"sum": numbers, "count": values.is_valid().cast(pa.int64())})
        return self.merge(replace(groups, values=parts))

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"sum": _sum(groups, "sum"), "count": groups.sum("count")})

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        total, count = states.column("sum"), states.column("count")
        if pa.types.is_null(total.type):
            mean = total
        elif pa.types.is_decimal(total.type):
            kind = _decimal(total.type, more_digits=4, more_scale=4)
            mean = quotient(total, count, kind, f"a mean of {self.column!r}")
        else:
            mean = pc.divide(total.cast(pa.float64()), count.cast(pa.float64(), safe=False))
        return pa.record_batch({self.column: mean})


def _widened(values: pa.Array) -> pa.Array:
    """Decimals in the type in which they are summed up; any other values unchanged."""
    kind = values.type
    if not pa.types.is_decimal(kind):
        return values
    return values.cast(pa.decimal256(min(kind.precision + _HEADROOM, 76), kind.scale))


def _sum(groups: Groups, column: str) -> pa.Array:
    """The sum of decimals has the type of the column, that of integers the one in which it fits."""
    values = groups.values.column(column)
    try:
        total = groups.sum(column)
    except OverflowError:
        if pa.types.is_decimal(values.type):
            raise
        wide = pa.record_batch({column: values.cast(pa.decimal128(38))})
        return replace(groups, values=wide).sum(column)
    return total.cast(values.type) if pa.types.is_decimal(values.type) else total


def _decimal(summed: pa.DataType, *, more_digits: int, more_scale: int) -> pa.DataType:
    """The type of a result with more digits than the values, whose sums have the type `summed`."""
    digits = summed.precision - _HEADROOM + more_digits
    return pa.decimal128(min(digits, _MAX_DIGITS), min(summed.scale + more_scale, _MAX_DIGITS))


class _NaN:
    """Not a number, as in Spark: one value, and greater than any other."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __reduce__(self) -> str:
        return "NAN"


NAN = _NaN()
"""Replaces NaN in states, where all NaN are one value: a float NaN is not equal to itself and has no order."""


def _comparable(value: Any) -> Any:
    return NAN if value != value else value  # noqa: PLR0124


class TopK(Reducer[list[Any], Any]):
    """The `k` greatest values of each key, in descending order, as the list column `top`."""

    def __init__(self, k: int = 10) -> None:
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        self.k = k

    def zero(self) -> list[Any]:
        return []

    def reduce(self, state: list[Any], value: Any) -> list[Any]:
        if value is None:
            return state
        value = _comparable(value)
        if len(state) < self.k:
            heapq.heappush(state, value)
        else:
            heapq.heappushpop(state, value)
        return state

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        merged = heapq.nlargest(self.k, left + right)
        heapq.heapify(merged)
        return merged

    def finish(self, state: list[Any]) -> dict[str, Any]:
        return {"top": [math.nan if value is NAN else value for value in sorted(state, reverse=True)]}


class TopRows(RowsReducer):
    """The `k` rows with the greatest values of a column, or the least ones, as rows with their `rank`, from 1 on.

    Keyed by None (one key over all rows) it ranks a whole table. Rows without a value are passed over, NaN is the
    greatest number, and rows with equal values are ranked by their other columns, ascending, lists and structs last, so
    that no two runs differ. A state is the list of a key's rows so far."""

    def __init__(self, k: int = 10, by: str = "value", *, descending: bool = True) -> None:
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        self.k = k
        self.by = by
        self.descending = descending

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.by,)

    def check_values(self, values: pa.Schema) -> None:
        if self.by not in values.names:
            raise ConfigError(f"ranks by the column {self.by!r}, and the columns are {', '.join(values.names)}")
        if pa.types.is_nested(values.field(self.by).type):
            raise ConfigError(f"cannot rank by the column {self.by!r}, which is {values.field(self.by).type}")
        if "rank" in values.names:
            raise ConfigError("gives a column 'rank', which the rows have already: rename that one")

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        self.check_values(groups.values.schema)  # the columns of functions of records are known only now
        return self._top(groups.values, groups.ids, len(groups))

    def merge(self, groups: Groups) -> pa.RecordBatch:
        rows, places = self._rows(groups.values)
        return self._top(rows, groups.ids[places], len(groups))

    def finish_rows(self, states: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        rows, places = self._rows(states)
        first = np.searchsorted(places, np.arange(states.num_rows))
        rank = np.arange(len(places)) - first[places] + 1
        names = ["rank", *rows.schema.names]
        return pa.RecordBatch.from_arrays([pa.array(rank, pa.int64()), *rows.columns], names), places

    def _top(self, rows: pa.RecordBatch, ids: npt.NDArray[np.integer[Any]], groups: int) -> pa.RecordBatch:
        valid = rows.column(self.by).is_valid().to_numpy(zero_copy_only=False)
        order = self._order(rows, ids)
        order = order[valid[order]]
        of_row = ids[order]
        rank = np.arange(len(order)) - np.searchsorted(of_row, of_row)
        best = order[rank < self.k]
        ends = np.searchsorted(ids[best], np.arange(groups + 1))
        structs = pa.StructArray.from_arrays(rows.take(pa.array(best)).columns, names=rows.schema.names)
        return pa.record_batch({"rows": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)})

    def _order(self, rows: pa.RecordBatch, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """The positions of rows by group, then by rank."""
        by, direction = _plain(rows.column(self.by)), "descending" if self.descending else "ascending"
        keys = [("0", "ascending"), ("1", direction), ("2", direction)]
        table = pa.table({"0": pa.array(ids), "1": _nan_of(by), "2": by})
        others = [column for name, column in zip(rows.schema.names, rows.columns, strict=True) if name != self.by]
        nested = [column for column in others if pa.types.is_nested(column.type)]
        for column in others:
            if not (pa.types.is_nested(column.type) or pa.types.is_null(column.type)):
                keys.append((str(len(keys)), "ascending"))
                table = table.append_column(keys[-1][0], _plain(column))
        order = pc.sort_indices(table, sort_keys=keys).to_numpy()
        if nested and len(order):  # both sorts are stable: rows that tie are reversed, but for the middle one of three
            differ = order != len(order) - 1 - pc.sort_indices(table[::-1], sort_keys=keys).to_numpy()
            tied = order[differ | np.roll(differ, 1) | np.roll(differ, -1)]
            found = zip(*(column.take(pa.array(tied)).to_pylist() for column in nested), strict=True)
            ranks = np.zeros(len(order), dtype=np.int64)
            values = [_ordered(value) for value in found]
            places = {value: place for place, value in enumerate(sorted(set(values)))}
            ranks[tied] = [places[value] for value in values]
            table = table.append_column("nested", pa.array(ranks))
            order = pc.sort_indices(table, sort_keys=[*keys, ("nested", "ascending")]).to_numpy()
        return order  # type: ignore[no-any-return]

    @staticmethod
    def _rows(states: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """The rows of states, and the position of the state of each."""
        lists = states.column("rows")
        rows = pa.RecordBatch.from_struct_array(lists.flatten())
        return rows, pc.list_parent_indices(lists).to_numpy().astype(np.int64, copy=False)


def _nan_of(column: pa.Array) -> pa.Array:
    """Whether each value is NaN, which Arrow sorts beside null whatever the direction."""
    is_float = pa.types.is_floating(column.type)
    return pc.is_nan(column).fill_null(False) if is_float else pa.array(np.zeros(len(column), dtype=bool))


def _ordered(value: Any) -> tuple[Any, ...]:
    """A value, also a list or a struct, as one that has an order: NaN is the greatest but for null."""
    if isinstance(value, list | tuple | dict):
        return (0, *map(_ordered, value.values() if isinstance(value, dict) else value))
    return (2,) if value is None else (1,) if value != value else (0, value)  # noqa: PLR0124


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


class Distinct(Reducer[set[Any], Any]):
    """The number of distinct values of each key, as the column `distinct`. The state holds all of them."""

    def zero(self) -> set[Any]:
        return set()

    def reduce(self, state: set[Any], value: Any) -> set[Any]:
        if value is not None:
            state.add(_comparable(value))
        return state

    def merge(self, left: set[Any], right: set[Any]) -> set[Any]:
        return left | right

    def finish(self, state: set[Any]) -> dict[str, Any]:
        return {"distinct": len(state)}


READY_MADE: dict[str, type[AnyReducer]] = {
    "count": Count,
    "sum": Sum,
    "min": Min,
    "max": Max,
    "mean": Mean,
    "top_k": TopK,
    "top_rows": TopRows,
    "distinct": Distinct,
}
"""The ready-made reducers by the short name that a job file may use."""
