"""How a task delivers its finished share of its stage's result, and its shares of results by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpa._util.inference import no_rows
from dpa._util.outages import HERE
from dpa.errors import DpaError
from dpa.execution.failures import USER_ERRORS, executor_error
from dpa.execution.key_stats import KeyStats
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.rows import plain
from dpa.sinks.sink import Sink


@dataclass(frozen=True, eq=False)
class TaskOutput:
    """One task's share of its stage's result.

    Attributes:
        states: the most keys that it held before other tasks' states were merged in.
        staged: what the sink must know to commit the share: one thing, or nothing if none was staged.
        key_counts: table of `key` and `records` (processed records), if the plan asks for it.
    """

    rows: int
    states: int
    staged: tuple[Any, ...]
    stats: KeyStats
    key_counts: pa.Table | None


@dataclass(frozen=True)
class Delivery:
    """Where the tasks of a stage deliver their shares.

    Attributes:
        sink: of the result; None if it is not wanted.
        empty: the columns of a result without rows, where they are known.
        counted: whether tasks also give back the number of records of every key.
        partial: the sink of results by epoch, which may be `sink`; None if none are published.
    """

    sink: Sink | None = None
    empty: pa.Schema | None = None
    counted: bool = False
    partial: Sink | None = None

    def deliver(
        self, task: ReduceTask, index: int, schema: pa.Schema | None, *, is_first: bool, epoch: int = 1
    ) -> TaskOutput:
        """Bring a task's share into the schema of all shares and stage it, or the part of it that the last epoch
        publishes. If `schema` is None, all shares are empty, and the first task stages the columns.

        Raises:
            ExecutorError: the share does not fit the schema, or the sink failed.
            JobFailedError: the share cannot be written.
        """
        stands_for_all = schema is None and is_first
        empty = (
            plain(pa.Table.from_batches([no_rows(self.empty)])) if stands_for_all and self.empty is not None else None
        )
        task.conform(schema, empty)
        share, rows = task.share, task.published_last(epoch)
        staged: tuple[Any, ...] = ()
        if stands_for_all and self.sink is self.partial and not rows.num_columns:
            stands_for_all = False  # epochs before may have had rows
        if self.sink is not None and (rows.num_rows or stands_for_all):
            staged = (_staged(self.sink, rows, index, self.sink.number_of_last(epoch), is_last=True),)
        counts = pa.table({"key": share.keys, "records": share.records}) if self.counted else None
        return TaskOutput(share.table.num_rows, task.most_keys, staged, task.key_stats(), counts)

    def publish(self, rows: pa.Table, index: int, epoch: int) -> object:
        """Returns what the sink gave; None if nothing is published."""
        if self.partial is None or not rows.num_rows:
            return None
        return _staged(self.partial, rows, index, epoch)


def _staged(sink: Sink, rows: pa.Table, task: int, epoch: int, *, is_last: bool = False) -> Any:
    try:  # readers see nothing of what is staged once more
        return HERE.bear(lambda: sink.stage(rows, task, epoch), full=not is_last)
    except DpaError:
        raise
    except USER_ERRORS as error:
        raise executor_error(sink, "stage", f"the share of task {task}", error) from None
