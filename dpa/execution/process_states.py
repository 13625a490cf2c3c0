"""Stores of stages that emit rows while they run: a process, with a state a key, and a stage that keeps no state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dpa._util.declared import Declared
from dpa.errors import ExecutorError, ProtocolError
from dpa.execution.block import Block
from dpa.execution.calls import emitted, emitted_last, zero
from dpa.execution.object_table import ObjectTable
from dpa.execution.row_operators import Chunk, Limits, apply
from dpa.execution.rows import batch_of, concatenated
from dpa.execution.states import Reduced, StatePart
from dpa.executors import Process, Record, name_of
from dpa.operators import RowOperator
from dpa.routing.hashing import ALL_HASHES, Interval
from dpa.routing.keys import KeyName
from dpa.routing.table import RoutingTable

_ONE_QUANTUM = Limits(rows=2**31 - 1, seconds=math.inf, clock=lambda: 0.0)
"""A block is a quantum of records, which is small enough to be handed over as a whole."""


class ProcessStates:
    """The store of a process. A key's state can move to another task, but it cannot be merged with one there."""

    def __init__(self, process: Process[Any, Any], declared: Declared | None = None) -> None:
        """`declared` are the columns that its rows are declared to have."""
        self._process = process
        self._declared = declared
        self._table = ObjectTable(partial(zero, process))

    @property
    def size(self) -> int:
        """How many keys it holds."""
        return self._table.size

    def reduce(self, block: Block) -> pa.RecordBatch | None:
        """Process the block's values, in order. Returns the emitted rows."""
        places = self._table.add_block(block)
        made = emitted(self._process, self._table.states, places, block.objects(), self._table.keys)
        return self._rows(made, "process")

    def install(self, part: StatePart) -> None:
        """Take in states that came from another task, of keys that it has none of."""
        self._table.install(part)

    def merge(self, part: StatePart) -> None:
        """The same: there is nothing to merge.

        Raises:
            ProtocolError: there is a state of such a key already.
        """
        self._table.install(part)

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """The keys that the table does not give to task `keep`, in pieces of about `most`, the hottest first."""
        return self._table.pieces(table, keep, most)

    def pack(self, table: RoutingTable, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        """Take out the states of all keys in an interval of hashes that the table does not give to task `keep`, by
        their owner."""
        return self._table.pack(table, keep, interval)

    def preview(self, key: KeyName) -> Reduced:
        """Refused: records that were emitted cannot be taken back."""
        raise ProtocolError(f"{name_of(self._process)} is a process, which has no partial results")

    def finish(self, key: KeyName) -> Reduced:
        """The rows emitted at the end; they have no key columns but those that the process gives them."""
        held = self._table
        pairs = zip(held.keys, held.states, strict=True)
        made = [record for name, state in pairs for record in emitted_last(self._process, name, state)]
        rows = self._rows(made, "finish")
        table = pa.table({}) if rows is None else pa.Table.from_batches([rows])
        return Reduced(table, held.column, held.records, held.mapped)

    def _rows(self, records: list[Record], method: str) -> pa.RecordBatch | None:
        if not records:
            return None
        try:
            return batch_of(records, self._declared, f"{name_of(self._process)}.{method}")
        except pa.ArrowException as error:
            needs = "must emit records whose columns are each of one Arrow type"
            raise ExecutorError(f"{name_of(self._process)} {needs}: {error}") from None


class NoStates:
    """The store of a stage that keeps no state: its rows are those that it receives, after its operators."""

    size = 0

    def __init__(self, operators: Sequence[RowOperator] = ()) -> None:
        """`operators` change the rows, in order."""
        self._operators = operators

    def reduce(self, block: Block) -> pa.RecordBatch | None:
        """The block's rows after the operators."""
        if not self._operators:
            return block.columns
        chunks = apply(self._operators, iter([Chunk(block.columns, block.rows)]), _ONE_QUANTUM)
        made = [(chunk.batch, chunk.batch.num_rows) for chunk in chunks if chunk.batch.num_rows]
        return pa.table(concatenated(made)).combine_chunks().to_batches()[0] if made else None

    def install(self, part: StatePart) -> None:
        """Refused: there are no states."""
        self.merge(part)

    def merge(self, part: StatePart) -> None:
        """Refused: there are no states."""
        raise ProtocolError("a stage without state received states")

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """One piece: nothing."""
        return [ALL_HASHES]

    def pack(self, table: RoutingTable, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        """Nothing."""
        return {}

    def preview(self, key: KeyName) -> Reduced:
        """Nothing."""
        return self.finish(key)

    def finish(self, key: KeyName) -> Reduced:
        """No rows: all have been emitted."""
        nobody = np.zeros(0, dtype=np.int64)
        return Reduced(pa.table({}), pa.nulls(0), nobody, nobody)
