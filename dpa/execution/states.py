"""The states a reducer task keeps: one for each key, made by the user's reducer and folded by it.

`states_for` picks the store that suits the executor. Both stores also count records for each key, which is what hot
keys and the Spark baseline are computed from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.execution.block import Block
from dpa.execution.keys import key_column, key_columns
from dpa.execution.schemas import as_agreed
from dpa.executors import AnyReducer, BatchReducer, name_of
from dpa.routing.hashing import hash_column
from dpa.routing.keys import KeyName
from dpa.routing.table import RoutingTable


@dataclass(frozen=True, eq=False)
class StatePart:
    """The states of some keys on their way to another reducer.

    Attributes:
        keys: shape (keys,), each once.
        states: a row or an object for each key.
        records: processed records of each key, shape (keys,).
        mapped: mapped records of each key, shape (keys,).
    """

    keys: pa.Array
    states: pa.RecordBatch | list[Any]
    records: npt.NDArray[np.int64]
    mapped: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reducer's finished share of the result.

    Attributes:
        table: the key column, or the columns of a composite key, and the result columns; a row a key.
        records: processed records of each row's key, shape (keys,).
        mapped: mapped records of each row's key, shape (keys,).
    """

    table: pa.Table
    records: npt.NDArray[np.int64]
    mapped: npt.NDArray[np.int64]

    def owned(self, key: KeyName, table: RoutingTable, owner: int) -> Reduced:
        """The rows whose key, in the columns that `key` names, the table gives to reducer `owner`."""
        keys = key_column(self.table, key)
        rows = np.flatnonzero(table.owners_of(hash_column(keys, table.seed)) == owner)
        if len(rows) == len(keys):
            return self
        return Reduced(self.table.take(pa.array(rows)), self.records[rows], self.mapped[rows])

    def in_schema(self, schema: pa.Schema, key: KeyName) -> Reduced:
        """The same rows with the columns of `schema`; `key` is the name of the key column or columns.

        Raises:
            ExecutorError: a value does not fit.
        """
        return replace(self, table=as_agreed(self.table, schema, key))


class States(Protocol):
    """What a reducer task needs of its store."""

    @property
    def size(self) -> int:
        """How many keys it holds."""
        ...

    def reduce(self, block: Block) -> None:
        """Fold a block's records, or the combined states that they are, into the states of their keys."""
        ...

    def pack(self, table: RoutingTable, keep: int) -> dict[int, StatePart]:
        """Take out the states of all keys that the table does not give to reducer `keep`, by their owner."""
        ...

    def merge(self, part: StatePart) -> None:
        """Fold in states that came from another reducer."""
        ...

    def preview(self, key: KeyName) -> Reduced:
        """What `finish` would give now; the states stay as they are, whatever the reducer's `finish` does to them."""
        ...

    def finish(self, key: KeyName) -> Reduced:
        """The result, with the key column named `key`, or the columns of a composite key. The last call: the reducer
        may change the states."""
        ...


def result_table(reducer: AnyReducer, key: KeyName, keys: pa.Array, results: dict[str, pa.Array]) -> pa.Table:
    """The key's columns and the result columns beside them.

    Raises:
        ExecutorError: a result column has the name of the key column.
    """
    named = key_columns(keys, key)
    for name in named.keys() & results.keys():
        rename = "rename the job's `key`, or return a dict with another name"
        raise ExecutorError(f"{name_of(reducer)}.finish gives a column {name!r}, which is the key column; {rename}")
    return pa.table({**named, **results})


def states_for(reducer: AnyReducer) -> States:
    """An empty store for the reducer."""
    from dpa.execution.batch_states import BatchStates
    from dpa.execution.record_states import RecordStates

    return BatchStates(reducer) if isinstance(reducer, BatchReducer) else RecordStates(reducer)
