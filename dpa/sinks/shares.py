"""A task's finished share of its stage's result, written as Parquet or kept in memory, as the plan asks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dpa._util.disk import writing
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.rows import plain
from dpa.protocol.plan import RunPlan, TaskOutput
from dpa.protocol.wire.addresses import Address


def deliver(
    plan: RunPlan, address: Address, task: ReduceTask, schema: pa.Schema | None, *, is_first: bool
) -> TaskOutput:
    """Deliver a share that conforms to the schema of all shares; None if all are empty. Of an empty result the first
    task delivers the columns.

    Raises:
        JobFailedError: the file cannot be written.
    """
    stands_for_all = schema is None and is_first
    if stands_for_all:
        task.conform(None, plain(plan.empty_results[address.stage].empty_table()))
    table = task.share.table
    wanted, directory = address.stage in plan.results, plan.results.get(address.stage)
    file = None
    if directory is not None and (table.num_rows or stands_for_all):
        file = f"part-{address.index:05d}.parquet"
        path = Path(directory) / file
        with writing(path):
            task.write(path)
    counts = None
    if address.stage in plan.counted:
        counts = pa.table({"key": task.share.keys, "records": task.share.records})
    return TaskOutput(
        rows=table.num_rows,
        states=task.most_keys,
        file=file,
        table=table if wanted and directory is None else None,
        stats=task.key_stats(),
        key_counts=counts,
    )
