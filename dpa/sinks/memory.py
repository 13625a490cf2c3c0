"""Results that stay in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dpa.sinks.sink import Sink


class Memory(Sink):
    """Each task's rows travel to the process that runs the job."""

    @property
    def place(self) -> None:
        """No place that another process could look at."""
        return None

    def stage(self, rows: pa.Table, task: int, epoch: int) -> pa.Table:
        """The rows themselves."""
        return rows

    def commit(self, staged: Sequence[pa.Table], epoch: int, seconds: float) -> Sequence[str]:
        """Nothing: whoever has what was staged has the result."""
        return ()

    def read(self, staged: Sequence[pa.Table]) -> pa.Table:
        """The rows of all tasks, which have one schema."""
        return pa.concat_tables(staged)
