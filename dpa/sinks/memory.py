"""Results that stay in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dpa.sinks.sink import Sink


class Memory(Sink):
    """Each task's rows travel to the process that runs the job."""

    @property
    def place(self) -> None:
        return None

    def stage(self, rows: pa.Table, task: int, epoch: int) -> pa.Table:
        return rows

    def commit(self, staged: Sequence[pa.Table], epoch: int, seconds: float) -> Sequence[str]:
        return ()

    def read(self, staged: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(staged)
