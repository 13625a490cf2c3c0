"""Processes: a state a key, and rows that are emitted while records come."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from dpa._util.declared import Declared
from dpa.errors import ExecutorError, ProtocolError
from dpa.execution._object_table import ObjectTable
from dpa.execution.block import Block
from dpa.execution.calls import emitted, emitted_last, zero
from dpa.execution.keys import key_columns
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.known import Known
from dpa.execution.rows import batch_of
from dpa.execution.states import Reduced, States
from dpa.executors import Process, Record, name_of
from dpa.routing.keys import KeyName


class ProcessReceiver(Receiver):
    """A process. A key's state can move to another task, but it cannot be merged with one there."""

    executors = (Process,)
    noun = "a process"
    word = "process"
    takes_objects = True
    needs_order = True
    keeps_order = True
    gives_key = False
    may_lack_columns = True
    can_merge = False
    unmergeable = "is a process, which must get all records of a key on one task:"

    executor: Process[Any, Any]

    def columns(self, key: KeyName, blocks: Sequence[Block], *, is_complete: bool) -> Known:
        if self.declared is not None:
            return Known(self.declared.schema)
        return Known(pa.table(key_columns(blocks[0].keys, key)).schema, is_complete=False)

    def store(self) -> States:
        return ProcessStates(self.executor, self.declared)


class ProcessStates(ObjectTable, States):
    """The store."""

    def __init__(self, process: Process[Any, Any], declared: Declared | None = None) -> None:
        """`declared` are the columns that its rows are declared to have."""
        super().__init__(partial(zero, process))
        self._process = process
        self._declared = declared

    def reduce(self, block: Block) -> pa.RecordBatch | None:
        places = self.add_block(block)
        return self._rows(emitted(self._process, self.states, places, block.objects(), self.keys), "process")

    merge = ObjectTable.install  # there is nothing to merge

    def preview(self, key: KeyName) -> Reduced:
        """Refused: records that were emitted cannot be taken back."""
        raise ProtocolError(f"{name_of(self._process)} is a process, which has no partial results")

    def finish(self, key: KeyName) -> Reduced:
        """The rows emitted at the end; they have no key columns but those that the process gives them."""
        pairs = zip(self.keys, self.states, strict=True)
        made = [record for name, state in pairs for record in emitted_last(self._process, name, state)]
        rows = self._rows(made, "finish")
        table = pa.table({}) if rows is None else pa.Table.from_batches([rows])
        return Reduced(table, self.column, self.records, self.mapped)

    def _rows(self, records: list[Record], method: str) -> pa.RecordBatch | None:
        if not records:
            return None
        try:
            return batch_of(records, self._declared, f"{name_of(self._process)}.{method}")
        except pa.ArrowException as error:
            needs = "must emit records whose columns are each of one Arrow type"
            raise ExecutorError(f"{name_of(self._process)} {needs}: {error}") from None
