"""How a task delivers its finished share of its stage's result, and its shares of results by epoch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpa._util.outages import HERE
from dpa.errors import DpaError
from dpa.execution.failures import USER_ERRORS, executor_error
from dpa.execution.key_stats import KeyStats
from dpa.execution.publishing import Publishes
from dpa.execution.reduce_task import ReduceTask
from dpa.sinks.sink import Sink


@dataclass(frozen=True, eq=False)
class TaskOutput:
    """One task's share of its stage's result.

    Attributes:
        states: the most keys that it held before other tasks' states were merged in.
        rows: of the share that its result's first output by epoch, if that is `final`, has not published before.
        staged: what the sink of each output must know to commit the share, by the number of the output, if any was.
        key_counts: table of `key` and `records` (processed records), if the plan asks for it.
    """

    rows: int
    states: int
    staged: Mapping[int, Any]
    stats: KeyStats
    key_counts: pa.Table | None


@dataclass(frozen=True)
class Delivery:
    """Where the tasks of a stage deliver their shares.

    Attributes:
        sinks: of the outputs of the stage, in the order of their numbers; None: nothing goes there.
        counted: whether tasks also give back the number of records of every key.
        publishes: what they publish by epoch, each at its number; None: nothing before the end.
    """

    sinks: tuple[Sink | None, ...] = ()
    counted: bool = False
    publishes: tuple[Publishes | None, ...] = ()

    @property
    def by_epoch(self) -> tuple[Sink | None, ...]:
        """The sinks to which epochs are committed while the stream runs, at their numbers."""
        # The copies of a sink in other processes may have lost their context.
        return tuple(None if how is None else sink for sink, how in zip(self.sinks, self.publishes, strict=False))

    @property
    def first(self) -> int | None:
        """The number of the first of them, whose rows are counted; None: there is none."""
        return next((number for number, sink in enumerate(self.by_epoch) if sink is not None), None)

    def deliver(
        self, task: ReduceTask, index: int, schema: pa.Schema | None, *, is_first: bool, epoch: int = 1
    ) -> TaskOutput:
        """Bring a task's share into the schema of all shares and stage it, or the part of it that the last epoch
        publishes. If `schema` is None, all shares are empty, and the first task stages what no record gives. Raises
        ExecutorError if the share does not fit the schema, or the sink failed; JobFailedError if the share cannot be
        written."""
        stands_for_all = schema is None and is_first
        task.conform(schema, is_first=is_first)
        share, staged = task.share, {}
        number_of_rows = share.table.num_rows
        for number, sink in enumerate(self.sinks):
            if sink is None:
                continue
            rows = task.published_last(epoch, number)
            how = self.publishes[number] if self.publishes else None
            if how == "final" and number == self.first:
                number_of_rows = rows.num_rows
            # Where there are no columns, epochs before may have had rows.
            stands_here = stands_for_all and (rows.num_columns or how is None)
            if rows.num_rows or stands_here:
                staged[number] = _staged(sink, rows, index, epoch, is_last=True)
        counts = pa.table({"key": share.keys, "records": share.records}) if self.counted else None
        return TaskOutput(number_of_rows, task.most_keys, staged, task.key_stats(), counts)

    def publish(self, task: ReduceTask, index: int, outputs: Collection[int], epoch: int) -> tuple[dict[int, Any], int]:
        """Stage a task's share of an epoch's results in some outputs; returns what their sinks gave, and how many rows
        the first of all that are published by epoch has got."""
        staged, count = {}, 0
        for number, sink in enumerate(self.by_epoch):
            if sink is None or number not in outputs:
                continue
            rows = task.published(epoch, number)
            if rows.num_rows:
                staged[number] = _staged(sink, rows, index, epoch)
            if number == self.first:
                count = rows.num_rows
        return staged, count


def _staged(sink: Sink, rows: pa.Table, task: int, epoch: int, *, is_last: bool = False) -> Any:
    try:  # readers see nothing of what is staged once more
        return HERE.bear(lambda: sink.stage(rows, task, epoch), full=not is_last)
    except DpaError:
        raise
    except USER_ERRORS as error:
        raise executor_error(sink, "stage", f"the share of task {task}", error) from None
