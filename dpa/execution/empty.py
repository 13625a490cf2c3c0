"""The columns of a result without rows, as far as they can be known: a reader of an empty result finds its schema.

Batch executors are run on no rows at all, which tells every type. What a per-record mapper yields is not known before
it has yielded something; a per-record reducer is asked for the result of its `zero`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dpa.errors import DpaError
from dpa.execution.batch_states import finished
from dpa.execution.block import Block
from dpa.execution.calls import columns
from dpa.execution.failures import USER_ERRORS
from dpa.execution.join_states import JoinStates
from dpa.execution.mapping import MapTask, Receiver
from dpa.execution.schemas import named, result_column
from dpa.execution.states import Reduced, result_table
from dpa.executors import BatchReducer, FunctionReducer, Groups, Reducer
from dpa.operators import JoinOptions


def empty_result(task: MapTask, schema: pa.Schema) -> Reduced:
    """The result of a job whose input has these columns and no row that gives a record.

    Where executors tell no type, or fail as there is nothing to work on, the column is null or left out.
    """
    block = _empty_block(task, schema)
    keys = pa.nulls(0) if block is None else block.keys
    try:
        results = _results(task.reducer, block)
    except (DpaError, *USER_ERRORS):
        results = {}
    key = task.key if isinstance(task.reducer, Reducer | BatchReducer) else ()
    nobody = np.zeros(0, dtype=np.int64)
    return Reduced(result_table(task.reducer, key, keys, results), keys, nobody, nobody)


def result_columns(task: MapTask, schema: pa.Schema) -> pa.Schema | None:
    """The columns of the rows that a batch reducer makes of records from rows with these columns; None where they are
    not known before there is a record.

    Raises:
        ExecutorError: one of them is named as the key.
    """
    block = _empty_block(task, schema)
    if block is None:
        return None
    try:
        results = _results(task.reducer, block)
    except (DpaError, *USER_ERRORS):
        return None
    return result_table(task.reducer, task.key, block.keys, results).schema


def empty_join(sides: Sequence[tuple[MapTask, pa.Schema]]) -> pa.Table:
    """The result, without rows, of a join whose left and right sides have these columns, as far as they are known."""
    task = sides[0][0]
    assert isinstance(task.reducer, JoinOptions)
    store = JoinStates(task.reducer)
    for side, schema in sides:
        block = _empty_block(side, schema)
        if block is not None:
            store.reduce(block)
    return named(store.finish(task.key).table)


def _empty_block(task: MapTask, schema: pa.Schema) -> Block | None:
    try:
        return task.empty_block(schema)
    except (DpaError, *USER_ERRORS):
        return None


def _results(reducer: Receiver, block: Block | None) -> dict[str, pa.Array]:
    """The result columns, without rows."""
    if isinstance(reducer, BatchReducer):
        if block is None:
            return {}
        values = block.values if isinstance(block.values, pa.RecordBatch) else pa.record_batch({})
        states = columns(reducer, "reduce", Groups(block.keys, block.codes, values), 0)
        states = columns(reducer, "merge", Groups(block.keys, block.codes, states), 0)  # as any state is
        found, _ = finished(reducer, states, block.keys)
        return dict(zip(found.schema.names, found.columns, strict=True))
    if isinstance(reducer, FunctionReducer):  # it has no zero; what it returns takes the place of a value
        values = None if block is None else block.values
        if isinstance(values, pa.RecordBatch) and values.num_columns == 1:
            return {"value": values.column(0)}
        return {"value": pa.nulls(0)}
    if not isinstance(reducer, Reducer):  # a process, or a stage without state: its rows are what user code emits
        return {}
    found = reducer.finish(reducer.zero())
    named = found if isinstance(found, dict) else {"value": found}
    return {name: result_column(name, [None], [value]).slice(1) for name, value in named.items()}
