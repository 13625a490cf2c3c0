"""A task's finished share of its stage's result, written as Parquet or kept in memory, as the plan asks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dpa._util.disk import writing
from dpa.execution.emission import Emission
from dpa.execution.empty import empty_join, empty_result
from dpa.execution.mapping import MapTask
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.row_operators import schema_after
from dpa.operators import JoinOptions
from dpa.protocol.addresses import Address
from dpa.protocol.graph import Edge
from dpa.protocol.plan import RunPlan, TaskOutput


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
        task.conform(None, _columns_of(plan, address.stage))
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


def _columns_of(plan: RunPlan, stage: str) -> pa.Table:
    """The result of a stage that received no records, without rows: the columns that its executors would give."""
    task = plan.tasks[stage]
    feeds = [_feed(plan, number, edge) for number, edge in plan.graph.into(stage)]
    assert isinstance(task, ReduceStage)
    if isinstance(task.receiver, JoinOptions):
        return empty_join(sorted(feeds, key=lambda feed: feed[0].side))
    if task.receiver is None:
        return (schema_after(task.operators, feeds[0][1]) or pa.schema([])).empty_table()
    return empty_result(*feeds[0]).table


def _feed(plan: RunPlan, number: int, edge: Edge) -> tuple[MapTask, pa.Schema]:
    """How the rows of an edge become records, and their columns."""
    task = plan.tasks[edge.source]
    emission = task if isinstance(task, Emission) else task.emission
    assert emission is not None
    rows = plan.columns[edge.source] if plan.graph.is_source(edge.source) else _columns_of(plan, edge.source).schema
    position = [other for other, _ in plan.graph.out_of(edge.source)].index(number)
    return emission.edges[position], emission.schemas(rows)[position] or pa.schema([])
