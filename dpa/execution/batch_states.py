"""States of batch reducers, kept as columns.

Each reduced block leaves a small table of partial states. When the partial ones outgrow the folded ones, all are
folded by the reducer's `merge`: every state is folded a logarithmic number of times, and memory stays within a small
multiple of the number of distinct keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util import inference
from dpa._util.declared import Declared
from dpa.errors import ExecutorError
from dpa.execution.block import Block, copied
from dpa.execution.calls import columns, rows
from dpa.execution.keys import cast, encode, key_columns
from dpa.execution.pieces import of_columns, owners_within
from dpa.execution.states import Reduced, StatePart, result_table
from dpa.executors import BatchReducer, Groups, RowsReducer, name_of
from dpa.routing.hashing import ALL_HASHES, Interval, hash_column
from dpa.routing.keys import KeyName, one_type
from dpa.routing.table import RoutingTable

_FOLD_FROM = 131_072
"""Partial states are not folded before there are so many."""


class BatchStates:
    """The store. Parts are aligned arrays: key, states, records, mapped."""

    def __init__(self, reducer: BatchReducer, declared: Declared | None = None) -> None:
        """`declared` are the columns that the result is declared to have."""
        self._reducer = reducer
        self._declared = declared
        self._parts: list[StatePart] = []
        self._partial = 0
        self._folded = 0

    @property
    def size(self) -> int:
        """How many keys it holds; folds the partial states."""
        whole = self._fold()
        return 0 if whole is None else len(whole.keys)

    def reduce(self, block: Block) -> None:
        """Reduce a block's groups to partial states."""
        groups = Groups(block.keys, block.codes, block.columns)
        states = groups.values if block.combined else columns(self._reducer, "reduce", groups, len(groups))
        records = np.ones(len(block.codes), dtype=np.int64) if block.combined else block.counts()
        # copies: views would keep the whole block in memory, as long as they live
        self.merge(StatePart(copied(block.keys), copied(states), records, block.mapped()))

    def merge(self, part: StatePart) -> None:
        """Keep a part for the next folding."""
        if len(part.keys) == 0:
            return
        self._parts.append(part)
        self._partial += len(part.keys)
        if self._partial > max(self._folded, _FOLD_FROM):
            self._fold()

    def install(self, part: StatePart) -> None:
        """Take in states that came from another reducer, of keys that it has none of."""
        self.merge(part)

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """The keys that the table does not give to reducer `keep`, in pieces of `most` or more, the hottest first."""
        whole = self._fold()
        if whole is None:
            return [ALL_HASHES]
        return of_columns(hash_column(whole.keys, table.seed), whole.records, table, keep, most)

    def pack(self, table: RoutingTable, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        """Take out the states of all keys in an interval of hashes that the table does not give to reducer `keep`, by
        their owner."""
        whole = self._fold()
        if whole is None:
            return {}
        owners = owners_within(table, hash_column(whole.keys, table.seed), keep, interval)
        if np.all(owners == keep):
            return {}
        parts = {int(owner): _select(whole, np.flatnonzero(owners == owner)) for owner in np.unique(owners)}
        kept = parts.pop(keep, None)
        self._parts = [] if kept is None else [kept]
        self._folded = 0 if kept is None else len(kept.keys)
        return parts

    def preview(self, key: KeyName) -> Reduced:
        """What `finish` would give now. States are Arrow columns, which nothing that the reducer makes of them (numpy,
        pandas, polars) can be written through, so they need no copy."""
        return self.finish(key)

    def finish(self, key: KeyName) -> Reduced:
        """The result, with the key column named `key`, or the columns of a composite key."""
        whole = self._fold()
        if whole is None:
            nobody = np.zeros(0, np.int64)
            return Reduced(pa.table(key_columns(pa.nulls(0), key)), pa.nulls(0), nobody, nobody)
        found, keys = finished(self._reducer, whole.states, whole.keys)
        results = dict(zip(found.schema.names, found.columns, strict=True))
        table = result_table(self._reducer, key, keys, results, self._declared)
        return Reduced(table, whole.keys, whole.records, whole.mapped)

    def _fold(self) -> StatePart | None:
        """Fold all parts into one, in which every key comes once."""
        if not self._parts:
            return None
        if self._partial:
            kind = one_type(part.keys.type for part in self._parts)
            keys, codes = encode(pa.chunked_array([cast(part.keys, kind) for part in self._parts]))
            groups = Groups(keys, codes, stacked(self._reducer, [part.states for part in self._parts]))
            states = columns(self._reducer, "merge", groups, len(groups))
            records, mapped = (
                np.bincount(codes, np.concatenate(counts), len(keys)).astype(np.int64)
                for counts in ([part.records for part in self._parts], [part.mapped for part in self._parts])
            )
            self._parts = [StatePart(keys, states, records, mapped)]
        whole = self._parts[0]
        self._partial, self._folded = 0, len(whole.keys)
        return whole


def finished(reducer: BatchReducer, states: pa.RecordBatch, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
    """The result of states, and the key of each of its rows; `keys` are those of the states.

    Raises:
        ExecutorError: the reducer raised, or returned something else than rows.
    """
    if not isinstance(reducer, RowsReducer):
        return columns(reducer, "finish", states, len(keys)), keys
    found, places = rows(reducer, states)
    return found, keys.take(pa.array(places))


def stacked(reducer: BatchReducer, states: Sequence[Any]) -> pa.RecordBatch:
    """All states of a reducer as one batch; a column of nulls takes the type that it has elsewhere.

    Raises:
        ExecutorError: batches of states have different columns.
    """
    tables = [pa.Table.from_batches([part]) for part in states]
    try:
        if len({tuple(table.column_names) for table in tables}) > 1:
            raise pa.ArrowInvalid(" or ".join(sorted({", ".join(table.column_names) for table in tables})))
        names = tables[0].column_names
        kinds = {name: inference.one_type(table.schema.field(name).type for table in tables) for name in names}
        whole = pa.concat_tables(
            [pa.table({name: inference.as_type(table[name], kind) for name, kind in kinds.items()}) for table in tables]
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        wanted = "must return states with the same columns for every batch"
        raise ExecutorError(f"{name_of(reducer)}.reduce {wanted}: {error}") from None
    return whole.combine_chunks().to_batches()[0]


def _select(part: StatePart, rows: npt.NDArray[np.intp]) -> StatePart:
    assert isinstance(part.states, pa.RecordBatch)
    index = pa.array(rows)
    return StatePart(part.keys.take(index), part.states.take(index), part.records[rows], part.mapped[rows])
