"""What a record costs a stage: processing time, spent by waiting or at work, and bytes. For experiments with placement
and balancing."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from dpa import BatchMapper, BatchReducer, Groups, Reducer
from dpa.sources.generated import padded
from jobs.paced import Work


class Cost(BatchMapper):
    """Passes records on after `micros` microseconds for each, with `padding` bytes each in the column `padding`.

    As an operator it sets what the stage that it is fused into costs, and how much that stage sends. A padding of 0
    drops the column; None leaves it as it is.
    """

    def __init__(self, micros: float = 0.0, padding: int | None = None) -> None:
        self.micros = micros
        self.padding = padding
        self._work = Work()

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._work.spend(batch.num_rows * self.micros / 1e6)
        if self.padding is None:
            return batch
        kept = [name for name in batch.schema.names if name != "padding"]
        return padded(batch.select(kept), self.padding)


class Costly(BatchReducer):
    """Another batch reducer, which takes `micros` microseconds more for each record; merging states costs nothing."""

    def __init__(self, reducer: BatchReducer, micros: float) -> None:
        self.reducer = reducer
        self.micros = micros
        self._work = Work()

    def check_values(self, values: pa.Schema) -> None:
        self.reducer.check_values(values)

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        self._work.spend(len(groups.ids) * self.micros / 1e6)
        return self.reducer.reduce(groups)

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return self.reducer.merge(groups)

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        return self.reducer.finish(states)


class BusyCount(Reducer[int, Any]):
    """Counts one by one, and keeps a processor busy for `micros` microseconds for each record: of its own time, so that
    sharing the processor with others takes longer."""

    def __init__(self, micros: float) -> None:
        self.micros = micros

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: Any) -> int:
        until = time.thread_time() + self.micros / 1e6
        while time.thread_time() < until:
            pass
        return state + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> dict[str, int]:
        return {"count": state}
