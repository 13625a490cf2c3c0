"""Results that stay in memory: they travel to the process that runs the job."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from dpa.executors import name_of
from dpa.sinks.sink import Sink, together


class Memory(Sink):
    """Each task's rows travel to the process that runs the job."""

    @property
    def place(self) -> None:
        return None

    def stage(self, rows: pa.Table, task: int, epoch: int) -> pa.Table:
        return rows

    def commit(self, staged: Sequence[pa.Table], epoch: int, seconds: float, *, is_last: bool = False) -> Sequence[str]:
        return ()

    def read(self, staged: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(staged)


class Callback(Sink):
    """Calls a function with the rows of each epoch that has any, and the epoch's number, before the next epoch is
    published. At least once: after a death the function gets rows again, those since the checkpoint from which the job
    continues, or else all. Numbers may come again with other rows."""

    in_driver = True

    def __init__(self, function: Callable[[pa.Table, int], object]) -> None:
        self._function = function

    def __getstate__(self) -> dict[str, object]:
        return {}

    @property
    def place(self) -> str:
        return name_of(self._function)

    def stage(self, rows: pa.Table, task: int, epoch: int) -> pa.Table:
        return rows

    def commit(self, staged: Sequence[pa.Table], epoch: int, seconds: float, *, is_last: bool = False) -> None:
        rows = together(staged)
        if rows.num_rows or self.publishes == "table":
            self._function(rows, epoch)
