"""Ready-made reducers. A job file names them by the short names in `READY_MADE`; all of them can merge.

As in SQL, nulls count as no value, except for `count`, which counts records.
"""

from __future__ import annotations

import difflib
import heapq
from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa.errors import ConfigError
from dpa.executors import AnyReducer, BatchReducer, Groups, Reducer


class Count(BatchReducer):
    """The number of records of each key, as the column `count`."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"count": pa.array(groups.sizes(), pa.int64())})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"count": groups.sum("count")})


class _OfOneColumn(BatchReducer):
    """An aggregate of one column; the result has its name."""

    def __init__(self, column: str = "value") -> None:
        self.column = column

    def check_values(self, values: pa.Schema) -> None:
        names = values.names
        if self.column not in names:
            found = f"the columns of the values are {', '.join(names)}" if names else "there are no values"
            likely = difflib.get_close_matches(self.column, names, n=1) or names
            name = likely[0] if len(likely) == 1 else "NAME"
            raise ConfigError(f"reads the column {self.column!r}, and {found}; set `args: {{column: {name}}}`")
        nobody = pa.RecordBatch.from_pylist([], schema=values)
        try:
            self.reduce(Groups(pa.nulls(0), np.empty(0, dtype=np.int32), nobody))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            found = values.field(self.column).type
            cast = f"`double({self.column}) AS {self.column}` in `input.select`"
            raise ConfigError(
                f"cannot work on the column {self.column!r}, which is {found}; {cast} makes numbers of it"
            ) from None


class _FoldsItself(_OfOneColumn):
    """An aggregate whose states merge as values reduce, such as a sum of sums."""

    @abstractmethod
    def fold(self, groups: Groups) -> pa.Array:
        """The aggregate of the column in each group."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({self.column: self.fold(groups)})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return self.reduce(groups)


class Sum(_FoldsItself):
    """The sum of a column, under the same name."""

    def fold(self, groups: Groups) -> pa.Array:
        return groups.sum(self.column)


class Min(_FoldsItself):
    """The least value of a column, under the same name."""

    def fold(self, groups: Groups) -> pa.Array:
        return groups.min(self.column)


class Max(_FoldsItself):
    """The greatest value of a column, under the same name."""

    def fold(self, groups: Groups) -> pa.Array:
        return groups.max(self.column)


class Mean(_OfOneColumn):
    """The arithmetic mean of a column, under the same name; null for a key whose values are all null."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        values = groups.values.column(self.column)
        numbers = pa.record_batch(
            {"sum": values.cast(pa.float64(), safe=False), "count": values.is_valid().cast(pa.int64())}
        )
        return self.merge(Groups(groups.keys, groups.ids, numbers))

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"sum": groups.sum("sum"), "count": groups.sum("count")})

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        total, count = (states.column(name).cast(pa.float64(), safe=False) for name in ("sum", "count"))
        return pa.record_batch({self.column: pc.divide(total, count)})


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
        return {"top": sorted(state, reverse=True)}


class Distinct(Reducer[set[Any], Any]):
    """The number of distinct values of each key, as the column `distinct`. The state holds them all."""

    def zero(self) -> set[Any]:
        return set()

    def reduce(self, state: set[Any], value: Any) -> set[Any]:
        if value is not None:
            state.add(value)
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
    "distinct": Distinct,
}
"""The ready-made reducers by the short name that a job file may use."""
