"""The columns of rows before there are any, as far as they can be known: what is checked before a run, and what a
result without rows has.

Batch executors are run on no rows at all, which tells every type. Functions of a record give no columns before they are
called; a per-record reducer is asked for the result of its `zero`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dpa._util.declared import Declared
from dpa.errors import ConfigError, DpaError, ExecutorError
from dpa.execution.batch_states import finished
from dpa.execution.block import Block
from dpa.execution.calls import columns
from dpa.execution.failures import USER_ERRORS
from dpa.execution.join_states import JoinStates
from dpa.execution.keys import key_columns
from dpa.execution.mapping import MapTask, Receiver
from dpa.execution.row_operators import schema_after
from dpa.execution.schemas import named, result_column
from dpa.execution.states import result_table
from dpa.executors import BatchReducer, FunctionReducer, Groups, Mapper, Process, Reducer, name_of
from dpa.operators import JoinOptions, RowOperator
from dpa.routing.keys import key_type


@dataclass(frozen=True)
class Known:
    """What is known of the columns of some rows. The type null stands for one that is not known.

    Attributes:
        schema: the columns that an empty table of such rows has.
        is_complete: whether the rows have these columns and no others, so that a missing one is an error.
    """

    schema: pa.Schema
    is_complete: bool = True

    def with_names(self, names: Iterable[str]) -> Known:
        """The same with null columns of these names, if there may be more columns than are known."""
        if self.is_complete:
            return self
        missing = dict.fromkeys(name for name in names if name not in self.schema.names)
        return Known(pa.schema([*self.schema, *((name, pa.null()) for name in missing)]), is_complete=False)


NOTHING_KNOWN = Known(pa.schema([]), is_complete=False)


def result_columns(task: MapTask, rows: Known, declared: Declared | None = None) -> Known:
    """The columns of the result of a reducer or a process that takes such rows.

    Raises:
        ExecutorError: a result column of a batch reducer has the name of the key column.
        ConfigError: the columns are not those declared, as far as they are known.
    """
    reducer, block = task.reducer, _empty_block(task, rows.schema)
    keys = pa.table(key_columns(block.keys, task.key))
    if isinstance(reducer, Process):
        return Known(keys.schema, is_complete=False) if declared is None else Known(declared.schema)
    try:
        results = _results(reducer, block)
        tells = isinstance(reducer, BatchReducer) and not isinstance(task.mapper, Mapper)
    except (DpaError, *USER_ERRORS):
        results, tells = {}, False
    found = Known(result_table(reducer, task.key, block.keys, results).schema, tells and rows.is_complete)
    return found if declared is None else _as_declared(found, declared, f"{name_of(reducer)}.finish", keys.schema)


def rows_after(operator: RowOperator | None, rows: Known) -> Known:
    """The columns of such rows after an operator.

    Raises:
        ConfigError: they are not those declared, as far as they are known.
    """
    try:
        schema = schema_after(() if operator is None else (operator,), rows.schema)
    except (DpaError, pa.ArrowException, *USER_ERRORS):
        schema = None
    found = NOTHING_KNOWN if schema is None else Known(schema, rows.is_complete)
    if operator is None or operator.declared is None:
        return found
    return _as_declared(found, operator.declared, f"{name_of(operator)}.{operator.kind.value}", pa.schema([]))


def _as_declared(found: Known, declared: Declared, giver: str, key: pa.Schema) -> Known:
    """The declared columns of rows, behind those of the key, which has these types."""
    for field in declared.schema:
        kept = key_type(field.type) if field.name in key.names else field.type
        if kept != field.type:
            raise ConfigError(f"{declared.place}: the key column {field.name!r} is kept as {kept}: declare it so")
    if found.is_complete:
        try:
            declared.conformed(pa.RecordBatch.from_pylist([], found.schema), giver, key.names)
        except ExecutorError as error:
            raise ConfigError(str(error)) from None
    others = [field for field in declared.schema if field.name not in key.names]
    own = [declared.schema.field(field.name) if field.name in declared.schema.names else field for field in key]
    return Known(pa.schema([*own, *others]))


def join_columns(sides: Sequence[tuple[MapTask, Known]]) -> Known:
    """The columns of the result of a join whose sides have such rows."""
    options = sides[0][0].reducer
    assert isinstance(options, JoinOptions)
    store = JoinStates(options)
    for task, rows in sides:
        store.reduce(_empty_block(task, rows.schema))
    table = named(store.finish(options.key).table)
    return Known(table.schema, all(rows.is_complete for _, rows in sides))


def _empty_block(task: MapTask, schema: pa.Schema) -> Block:
    """A block without records; one without values where a batch mapper fails, as there is nothing to work on."""
    try:
        return task.empty_block(schema)
    except (DpaError, *USER_ERRORS):
        return task.empty_block(None)


def _results(reducer: Receiver, block: Block) -> dict[str, pa.Array]:
    """The result columns, without rows."""
    if isinstance(reducer, BatchReducer):
        states = columns(reducer, "reduce", Groups(block.keys, block.codes, block.columns), 0)
        states = columns(reducer, "merge", Groups(block.keys, block.codes, states), 0)  # as any state is
        found, _ = finished(reducer, states, block.keys)
        return dict(zip(found.schema.names, found.columns, strict=True))
    if isinstance(reducer, FunctionReducer):  # it has no zero; what it returns takes the place of a value
        values = block.columns
        return {"value": values.column(0) if values.num_columns == 1 else pa.nulls(0)}
    assert isinstance(reducer, Reducer)
    found = reducer.finish(reducer.zero())
    named = found if isinstance(found, dict) else {"value": found}
    return {name: result_column(name, [None], [value]).slice(1) for name, value in named.items()}
