"""Processes: a state for each key, and rows that are emitted while records come."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa

from dpa._util.declared import Declared
from dpa.errors import ExecutorError, ProtocolError
from dpa.execution._object_table import NEVER, ObjectTable
from dpa.execution._tolerant_calls import Tolerant
from dpa.execution.block import Block
from dpa.execution.calls import emitted, emitted_last, emitted_on_time, timer, zero
from dpa.execution.keys import key_columns
from dpa.execution.receivers.base import Extent, Known, Receiver
from dpa.execution.rows import batch_of
from dpa.execution.states import ObjectPart, Reduced, States
from dpa.executors import Process, Record, columns_read, name_of
from dpa.routing.keys import KeyName, in_words
from dpa.tolerance import Tolerance
from dpa.windows.times import since_1970

MOST_AT_ONCE = 1_000_000
"""Most calls of one key's timer at the end of an epoch, or of the job."""


class ProcessReceiver(Receiver):
    """A process. A key's state can move to another task, but cannot be merged."""

    executors = (Process,)
    noun = "a process"
    word = "process"
    takes_objects = True
    needs_order = True
    keeps_order = True
    emits_when_closed = False
    gives_key = False
    may_lack_columns = True
    can_merge = False
    unmergeable = "is a process, which must get all records of a key on one task:"

    executor: Process[Any, Any]

    @property
    def reads(self) -> tuple[str, ...]:
        return columns_read(self.executor)

    def columns(self, key: KeyName, blocks: Sequence[Block], extent: Extent) -> Known:
        keys = pa.table(key_columns(blocks[0].keys, key)).schema
        if self.declared is None:
            return Known(keys, Extent.SOME)
        return Known(pa.schema([*([] if self.windowing is None else list(keys)[-2:]), *self.declared.schema]))

    def own_store(self) -> States[Any]:
        return ProcessStates(self.executor, self.declared, self.tolerance, to_end=self.windowing is None)

    @property
    def has_timers(self) -> bool:
        return type(self.executor).timer is not Process.timer


class ProcessStates(ObjectTable, States[ObjectPart]):
    """Timers follow from states, so they are computed after each block, and when states come."""

    def __init__(
        self,
        process: Process[Any, Any],
        declared: Declared | None = None,
        tolerance: Tolerance | None = None,
        *,
        to_end: bool = True,
    ) -> None:
        """`to_end`: whether timers that are still pending are called at the end."""
        super().__init__(partial(zero, process))
        self._process = process
        self._declared = declared
        self._to_end = to_end
        self._has_timers = type(process).timer is not Process.timer
        self._tolerant = None if tolerance is None else Tolerant(self, process, self._emitted, tolerance)

    def reduce(self, block: Block) -> pa.RecordBatch | None:
        if self._tolerant is not None:
            made = self._tolerant.process(block)
        else:
            made = self._emitted(self.add_block(block), block.objects())
        self._set_timers(block.keys)
        return self._rows(made, "process")

    def _emitted(self, places: list[int], values: list[Any]) -> list[Record]:
        return emitted(self._process, self.states, places, values, self.keys)

    def install(self, part: ObjectPart) -> None:
        super().install(part)
        self._set_timers(part.keys)

    merge = install  # there is nothing to merge

    @property
    def first_open(self) -> int | None:
        first = int(self.due[: self.size].min(initial=NEVER))
        return None if first == NEVER else first + 1

    def close(self, until: int, key: KeyName) -> Reduced | None:
        """Call `on_time` for timers due before `until`, in order of time. Rows at `until` may still come, and a timer
        is called after the rows of its own time."""
        places = np.flatnonzero(self.due[: self.size] < until).tolist()
        if not places:
            return None
        rows = self._rows(self._on_time([(int(self.due[place]), place) for place in places], until), "on_time")
        table = pa.table({}) if rows is None else pa.Table.from_batches([rows])
        none = np.zeros(0, dtype=np.int64)
        return Reduced(table, self.column.slice(0, 0), none, none)

    def _on_time(self, due: list[tuple[int, int]], until: int) -> list[Record]:
        heapify(due)
        made: list[Record] = []
        fired, forgotten = Counter[int](), []
        while due:
            _, place = heappop(due)
            name, fired[place] = self.keys[place], fired[place] + 1
            self.touch_place(place)
            time = timer(self._process, name, self.states[place])
            assert time is not None
            self.states[place], rows = emitted_on_time(self._process, name, self.states[place], time)
            made += rows
            if self.states[place] is None:
                forgotten.append(place)
                continue
            self._set(place)
            if fired[place] == MOST_AT_ONCE:
                why = f"{MOST_AT_ONCE:,} times at once, and its timer is still due"
                mend = "have `on_time` move it forward, and set it again only if records have come since"
                raise ExecutorError(
                    f"{name_of(self._process)}.on_time was called for key {in_words(name)} {why}: {mend}"
                )
            if self.due[place] < until:
                heappush(due, (int(self.due[place]), place))
        self.forget(forgotten)
        return made

    def _set_timers(self, keys: pa.Array) -> None:
        if self._has_timers:
            for place in self.places(keys):
                self._set(place)

    def _set(self, place: int) -> None:
        time = timer(self._process, self.keys[place], self.states[place])
        self.due[place] = NEVER if time is None else since_1970(time)

    def preview(self, key: KeyName) -> Reduced:
        """Refused: emitted records cannot be taken back."""
        raise ProtocolError(f"{name_of(self._process)} is a process, which has no partial results")

    def finish(self, key: KeyName) -> Reduced:
        """Rows emitted at the end have only the key columns that the process gives."""
        self.take_all()
        timed = np.flatnonzero(self.due[: self.size] < NEVER).tolist() if self._to_end else []
        made = self._on_time([(int(self.due[place]), place) for place in timed], NEVER)
        pairs = zip(self.keys, self.states, strict=True)
        made += [record for name, state in pairs for record in emitted_last(self._process, name, state)]
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
