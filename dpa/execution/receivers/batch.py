"""Batch reducers, whose states are columns: each reduced block leaves a small table of them, and the reducer's `merge`
folds these tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpa.aggregates import READY_MADE, TopRows
from dpa.errors import DpaError, ExecutorError
from dpa.execution._parts import FoldedStates, hashes_of
from dpa.execution.block import Block, Values, copied
from dpa.execution.calls import columns, rows
from dpa.execution.failures import USER_ERRORS, UserCodeError, bisected, shown, tolerated
from dpa.execution.keys import cast, encode_hashed, hashes_by, key_columns
from dpa.execution.receivers.base import Extent, Known, Receiver, as_declared
from dpa.execution.rows import one_batch
from dpa.execution.states import ColumnPart, Reduced, States, Sweep, result_table
from dpa.executors import BatchReducer, Groups, RowsReducer, name_of
from dpa.routing.keys import KeyName, in_words, names_of, one_type

if TYPE_CHECKING:
    import polars as pl

_KERNEL_SECONDS = 1e-6  # a record of a ready-made batch reducer takes about this long at most


class BatchReceiver(Receiver):
    """A batch reducer."""

    executors = (BatchReducer,)
    has_row_a_key = True

    executor: BatchReducer

    @property
    def reads(self) -> tuple[str, ...]:
        return self.executor.reads

    @property
    def expected_seconds(self) -> float | None:
        return _KERNEL_SECONDS if type(self.executor) in READY_MADE.values() else None

    def does(self, by: str) -> str:
        if not self.executor.results:
            return super().does(by)
        return f"agg {', '.join(self.executor.results)} {f'by {by}' if by else 'of all records'}"

    def check_values(self, values: pa.Schema) -> None:
        self.executor.check_values(values)

    def columns(self, key: KeyName, blocks: Sequence[Block], extent: Extent) -> Known:
        block = blocks[0]  # rows of one union have the same columns
        try:
            states = columns(self.executor, "reduce", block.groups, 0)
            states = columns(self.executor, "merge", Groups(block.keys, block.codes, states), 0)  # as any state is
            found, _ = self.finished(states, block.keys)
        except (DpaError, *USER_ERRORS):
            found, extent = pa.record_batch({}), Extent.SOME
        is_own = type(self.executor) not in READY_MADE.values()
        if self.executor.results and extent is not Extent.ALL:
            found, extent = pa.record_batch({name: pa.nulls(0) for name in self.executor.results}), Extent.NAMES
        elif is_own and extent is Extent.NAMES:  # its types go by others that are not known
            found = pa.record_batch({name: pa.nulls(0) for name in found.schema.names})
        elif not is_own and self.has_row_a_key:  # its columns do not go by others
            extent = max(extent, Extent.NAMES)
        results = dict(zip(found.schema.names, found.columns, strict=True))
        known = Known(result_table(self.executor, key, block.keys, results).schema, extent)
        return as_declared(known, self.declared, f"{name_of(self.executor)}.finish", names_of(key))

    def own_store(self) -> States[Any]:
        return BatchStates(self)

    @property
    def has_partials(self) -> bool:
        for kind in type(self.executor).__mro__:
            if "partials" in vars(kind):
                return kind is not BatchReducer
            if "reduce" in vars(kind):  # of a class whose base has partials, which give something else
                return False
        return False

    def partials(self, values: pl.Schema) -> Sequence[pl.Expr]:
        return self.executor.partials(values)

    def merged(self, groups: Groups) -> pa.RecordBatch:
        return columns(self.executor, "merge", groups, len(groups))

    def combined(self, block: Block) -> Values:
        return columns(self.executor, "reduce", block.groups, len(block.keys))

    def finished(self, states: pa.RecordBatch, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """The result of states, and the key of each of its rows; `keys` are those of the states. Raises ExecutorError
        where the reducer raises, or does not return rows."""
        return columns(self.executor, "finish", states, len(keys)), keys


class RowsReceiver(BatchReceiver):
    """A batch reducer whose result may have several rows for a key, or none."""

    executors = (RowsReducer,)
    has_row_a_key = False

    executor: RowsReducer

    def does(self, by: str) -> str:
        match self.executor:
            case TopRows(k=k, by=column, descending=descending):
                return f"{'top' if descending else 'least'} {k} by {column} of {f'each {by}' if by else 'all records'}"
        return super().does(by)

    def finished(self, states: pa.RecordBatch, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        found, places = rows(self.executor, states)
        return found, keys.take(pa.array(places))


class BatchStates(FoldedStates[ColumnPart]):
    """The store. Parts are aligned arrays: key, states, records, mapped."""

    def __init__(self, receiver: BatchReceiver) -> None:
        super().__init__()
        self._receiver = receiver
        self._reducer = receiver.executor
        self._unswept: Iterator[ColumnPart] = iter(())
        self._keep: Callable[[ColumnPart], None] | None = None

    @property
    def size(self) -> int:
        """Keys, once the partial states are folded."""
        whole = self.snapshot()
        return 0 if whole is None else len(whole.keys)

    def reduce(self, block: Block) -> None:
        tolerance = self._receiver.tolerance
        if tolerance is None or block.combined:
            self.merge(self._part(block))
            return

        self.dead = dead = list[int]()

        def dies(row: int, error: UserCodeError) -> None:
            dead.append(row)
            key, value = block.shown(row, as_object=False)
            on = f"key {in_words(key)} and value {shown(value)}"
            tolerated(tolerance, self._reducer, error.method, on, error.error, value, key)

        for *_, part in bisected(lambda start, stop: self._part(block.slice(start, stop)), block.rows, dies):
            self.merge(part)

    def _part(self, block: Block) -> ColumnPart:
        states = block.columns if block.combined else self._receiver.combined(block)
        mapped = block.mapped()  # the same array as `records` without a combiner: `_folded` sums these once
        records = mapped if block.weights is None else block.counts()
        # copies: views would keep the whole block in memory, as long as they live
        return ColumnPart(copied(block.keys), copied(states), records, mapped, block.hashes.copy())

    def begin_sweep(self, sweep: Sweep, *, only_changed: bool = False) -> bool:
        """Parts are never changed, and to fold them is left to who begins with them."""
        self._unswept, self._keep = iter(tuple(self._parts)), sweep.keep
        return True

    def sweep(self, most: int) -> bool:
        taken, keep = 0, self._keep
        while keep is not None and taken < most and (part := next(self._unswept, None)) is not None:
            keep(part)
            taken += len(part.keys)
        return taken >= most

    def end_sweep(self) -> None:
        self._unswept, self._keep = iter(()), None

    def preview(self, key: KeyName) -> Reduced:
        """States are Arrow columns, which numpy, pandas and polars cannot write through, so they need no copy."""
        return self.finish(key)

    def finish(self, key: KeyName) -> Reduced:
        whole = self.snapshot()
        if whole is None:
            return Reduced.of_nobody(pa.table(key_columns(pa.nulls(0), key)))
        found, keys = self._receiver.finished(whole.states, whole.keys)
        results = dict(zip(found.schema.names, found.columns, strict=True))
        table = result_table(self._reducer, key, keys, results, self._receiver.declared)
        return Reduced(table, whole.keys, whole.records, whole.mapped)

    def _folded(self, parts: Sequence[ColumnPart]) -> ColumnPart:
        """In which every key comes once."""
        kind = one_type(part.keys.type for part in parts)
        hashes = hashes_of(parts)
        keys, codes = encode_hashed(pa.chunked_array([cast(part.keys, kind) for part in parts]), hashes)
        groups = Groups(keys, codes, stacked(self._reducer, [part.states for part in parts]))
        states = columns(self._reducer, "merge", groups, len(groups))
        counts = [[part.records for part in parts], [part.mapped for part in parts]]
        if all(part.records is part.mapped for part in parts):
            counts.pop()
        sums = [np.bincount(codes, np.concatenate(each), len(keys)).astype(np.int64) for each in counts]
        own = None if hashes is None else hashes_by(codes, hashes, len(keys))
        return ColumnPart(keys, states, sums[0], sums[-1], own)


def stacked(reducer: BatchReducer, states: Sequence[Any]) -> pa.RecordBatch:
    """All states of a reducer as one batch; a column of nulls takes the type that it has elsewhere. Raises
    ExecutorError where batches of states have different columns."""
    names = {", ".join(part.schema.names) for part in states}
    try:
        if len(names) > 1:
            raise pa.ArrowInvalid(" or ".join(sorted(names)))
        return one_batch([(part, part.num_rows) for part in states])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        wanted = "must return states with the same columns for every batch"
        raise ExecutorError(f"{name_of(reducer)}.reduce {wanted}: {error}") from None
