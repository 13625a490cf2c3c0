"""What every store of states has in common: its interface, the states on their way elsewhere, and the finished share.

Each kind of receiver (`dpa.execution.receivers`) has a store of its own. All stores also count records for each key,
which is what hot keys and the Spark baseline are computed from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.declared import Declared
from dpa.errors import ExecutorError
from dpa.execution.block import Block, copied
from dpa.execution.keys import key_column, key_columns
from dpa.executors import name_of
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, hash_column
from dpa.routing.keys import KeyName
from dpa.routing.table import RoutingTable


@dataclass(frozen=True, eq=False)
class StatePart:
    """The states of some keys on their way to another reducer.

    Attributes:
        keys: shape (keys,), each once.
        states: a row or an object for each key; of a join, the rows themselves.
        records: processed records of each key, shape (keys,).
        mapped: mapped records of each key, shape (keys,).
        hashes: their hashes, shape (keys,); None of a store that does not keep any.
    """

    keys: pa.Array
    states: pa.RecordBatch | list[Any] | tuple[Block, ...]
    records: npt.NDArray[np.int64]
    mapped: npt.NDArray[np.int64]
    hashes: Hashes | None = None

    def slice(self, start: int, keys: int) -> StatePart:
        """The Python states of at most `keys` keys, from one on; the keys are a copy, as Arrow pickles a slice with all
        that it is a slice of."""
        assert isinstance(self.states, list)
        of = slice(start, start + keys)
        hashes = None if self.hashes is None else self.hashes[of]
        return StatePart(copied(self.keys[of]), self.states[of], self.records[of], self.mapped[of], hashes)


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reducer's finished share of the result.

    Attributes:
        table: the key column, or the columns of a composite key, and the result columns. A reducer's has a row a key,
            in the order of `keys`; that of another store may have any number.
        keys: the keys that the reducer holds, each once; shape (keys,).
        records: processed records of each key, shape (keys,).
        mapped: mapped records of each key, shape (keys,).
    """

    table: pa.Table
    keys: pa.Array
    records: npt.NDArray[np.int64]
    mapped: npt.NDArray[np.int64]

    @staticmethod
    def of_nobody(table: pa.Table) -> Reduced:
        """The share of a reducer that holds no key."""
        none = np.zeros(0, dtype=np.int64)
        return Reduced(table, pa.nulls(0), none, none)

    def owned(self, key: KeyName, table: RoutingTable, owner: int) -> Reduced:
        """The rows whose key, in the columns that `key` names, the table gives to reducer `owner`."""
        rows = _of(owner, key_column(self.table, key), table)
        own = _of(owner, self.keys, table)
        if len(rows) == self.table.num_rows and len(own) == len(self.keys):
            return self
        keys = self.keys.take(pa.array(own))
        return Reduced(self.table.take(pa.array(rows)), keys, self.records[own], self.mapped[own])


class States(ABC):
    """What a reducer task needs of its store."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many keys it holds."""

    @abstractmethod
    def reduce(self, block: Block) -> pa.RecordBatch | None:
        """Fold a block's records, or the combined states that they are, into the states of their keys. Returns the rows
        that it emits at once, None for a store that emits none before its end."""

    @abstractmethod
    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """The keys that the table does not give to reducer `keep`, in pieces of about `most`, or more where pieces cost
        much: intervals of hashes that together have all, those with most processed records first."""

    @abstractmethod
    def pack(self, table: RoutingTable, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        """Take out the states of all keys that the table does not give to reducer `keep`, by their owner; or only of
        those in an interval of `pieces`."""

    @abstractmethod
    def snapshot(self) -> StatePart | None:
        """All states as they are; None if there are none. Python states are those of the store, so they are to be
        written before the store goes on."""

    @abstractmethod
    def merge(self, part: StatePart) -> None:
        """Fold in states that came from another reducer."""

    def install(self, part: StatePart) -> None:
        """Take in states that came from another reducer, of keys that it has none of.

        Raises:
            ProtocolError: there is a state of such a key already, where the store can see that.
        """
        self.merge(part)

    def preview(self, key: KeyName) -> Reduced:
        """What `finish` would give now; the states stay as they are, whatever the reducer's `finish` does to them."""
        return self.finish(key)

    @abstractmethod
    def finish(self, key: KeyName) -> Reduced:
        """The result, with the key column named `key`, or the columns of a composite key. The last call: the reducer
        may change the states."""


def result_table(
    reducer: object, key: KeyName, keys: pa.Array, results: dict[str, pa.Array], declared: Declared | None = None
) -> pa.Table:
    """The key's columns and the result columns beside them, those of a result that has rows as declared.

    Raises:
        ExecutorError: a result column has the name of the key column; or the columns are not those declared.
    """
    named = key_columns(keys, key)
    for name in named.keys() & results.keys():
        mend = "leave it out of `value`, or give it another name before"
        raise ExecutorError(f"{name_of(reducer)}.finish gives a column {name!r}, which is the key column; {mend}")
    table = pa.table({**named, **results})
    if declared is None or not table.num_rows:
        return table
    [rows] = table.to_batches()
    return pa.Table.from_batches([declared.conformed(rows, f"{name_of(reducer)}.finish", list(named))])


def _of(owner: int, keys: pa.Array, table: RoutingTable) -> npt.NDArray[np.intp]:
    """The positions of the keys that the table gives to reducer `owner`."""
    return np.flatnonzero(table.owners_of(hash_column(keys, table.seed)) == owner)
