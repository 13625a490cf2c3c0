"""Results by epoch that are given to a function in the process that runs the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from dpa.execution.publishing import Publishes
from dpa.executors import name_of
from dpa.sinks._part_files import together
from dpa.sinks.sink import RESULT, Sink


class Callback(Sink):
    """Calls a function with the rows of each epoch that has any, and the epoch's number, when the next one has not
    begun to be published. At least once: behind a death the function is given rows again, where the job goes on behind
    a checkpoint those since then, else all; numbers may come again with other rows."""

    in_driver = True

    def __init__(self, function: Callable[[pa.Table, int], object], publishes: Publishes) -> None:
        """`function` takes the rows and the number of the epoch."""
        self.publishes = publishes
        self._function = function
        self._newest = 0

    def __getstate__(self) -> dict[str, object]:
        return {}

    @property
    def place(self) -> str:
        return name_of(self._function)

    def begin(self) -> None:
        self._newest = 0

    def stage(self, rows: pa.Table, task: int, epoch: int) -> pa.Table:
        return rows

    def commit(self, staged: Sequence[pa.Table], epoch: int, seconds: float) -> None:
        number = self._newest + 1 if epoch == RESULT else epoch
        rows = together(staged)
        if rows.num_rows or self.publishes == "table":
            self._function(rows, number)
        self._newest = number  # not before: what fails is given again with the same number
