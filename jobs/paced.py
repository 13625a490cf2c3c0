"""Sources and counts at a fixed pace: work that is nothing but waiting, for experiments with load."""

from __future__ import annotations

import time

import pyarrow as pa

from dpa import BatchMapper, BatchReducer, Groups, Reducer

_IDLE_SECONDS = 0.01
"""A reducer that is so far behind was idle, and does not make up for it."""


class Pace:
    """Sleeps so that things take their time, exactly so on average: a sleep that lasts too long shortens the next."""

    def __init__(self) -> None:
        self._until = 0.0

    def spend(self, seconds: float) -> None:
        """Sleep about so long."""
        now = time.monotonic()
        if now - self._until > _IDLE_SECONDS:
            self._until = now
        self._until += seconds
        time.sleep(max(self._until - now, 0.0))


class Work:
    """Sleeps for as long as work takes, exactly so on average: a sleep that lasts too long shortens the next. What
    passes between two pieces of work is not made up for, so a reducer that is slow on purpose stays slow."""

    def __init__(self) -> None:
        self._owed = 0.0

    def spend(self, seconds: float) -> None:
        """Sleep about so long."""
        self._owed += seconds
        if self._owed > 0:
            began = time.monotonic()
            time.sleep(self._owed)
            self._owed -= time.monotonic() - began


class PacedSource(BatchMapper):
    """Passes records on, each mapper so many a second at most."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._pace = Pace()

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._pace.spend(batch.num_rows / self.rate)
        return batch


class PacedCounts(BatchReducer):
    """Counts by the batch, and takes `seconds` for each record."""

    def __init__(self, seconds: float = 0.0001) -> None:
        self.seconds = seconds
        self._work = Work()

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        self._work.spend(len(groups.ids) * self.seconds)
        return pa.record_batch({"count": groups.sizes()})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"count": groups.sum("count")})


class PacedCount(Reducer[int, int]):
    """Counts one by one, and takes `seconds` for each record."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.seconds = seconds
        self._pace = Pace()

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        self._pace.spend(self.seconds)
        return state + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> dict[str, int]:
        return {"count": state}
