"""Python objects by key, each with two counts of records: what record reducers and processes keep their states in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.execution.block import Block
from dpa.execution.states import StatePart
from dpa.routing.hashing import hash_column
from dpa.routing.keys import Key, one_type, to_arrow, to_python
from dpa.routing.table import RoutingTable


class ObjectTable:
    """The table. A key's position in it stays the same until `pack` takes other keys out.

    Attributes:
        keys: the keys, as Python values; shape (size,).
        states: their states, shape (size,).
    """

    def __init__(self, zero: Callable[[Key], Any]) -> None:
        """`zero` makes the state of a new key."""
        self.keys: list[Key] = []
        self.states: list[Any] = []
        self._zero = zero
        self._places: dict[Key, int] = {}
        self._type = pa.null()  # of all keys so far: Python's values alone would not tell it
        self._counts = np.zeros((1024, 2), dtype=np.int64)

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self.keys)

    @property
    def column(self) -> pa.Array:
        """The keys as a key column, shape (size,)."""
        return to_arrow(self.keys, self._type)

    @property
    def records(self) -> npt.NDArray[np.int64]:
        """Processed records of each key, shape (size,)."""
        return self._counts[: self.size, 0].copy()

    @property
    def mapped(self) -> npt.NDArray[np.int64]:
        """Mapped records of each key, shape (size,)."""
        return self._counts[: self.size, 1].copy()

    def add_block(self, block: Block) -> list[int]:
        """Count a block's records. Returns the position of each one's key, shape (rows,)."""
        places = self.add(block.keys, block.counts(), block.mapped())
        return places.take(block.codes).tolist()  # type: ignore[no-any-return]

    def add(
        self, keys: pa.Array, records: npt.NDArray[np.int64], mapped: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.intp]:
        """Count records of keys. Returns the position of each key, shape (keys,); new ones get a state of zero.

        Raises:
            KeyTypeError: keys before were of a type that does not go with these.
        """
        self._type = one_type([self._type, keys.type])
        found = []
        for key in to_python(keys):
            place = self._places.setdefault(key, self.size)
            if place == self.size:
                self.states.append(self._zero(key))
                self.keys.append(key)
            found.append(place)
        while self.size > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        places = np.array(found, dtype=np.intp)
        np.add.at(self._counts, places, np.stack([records, mapped], axis=1))
        return places

    def pack(self, table: RoutingTable, keep: int) -> dict[int, StatePart]:
        """Take out the states of all keys that the table does not give to reducer `keep`, by their owner."""
        column = self.column
        owners = table.owners_of(hash_column(column, table.seed))
        others = np.unique(owners[owners != keep])
        parts = {int(owner): self._part(column, np.flatnonzero(owners == owner)) for owner in others}
        if parts:
            kept = np.flatnonzero(owners == keep)
            self.states = [self.states[row] for row in kept.tolist()]
            self.keys = [self.keys[row] for row in kept.tolist()]
            self._places = {key: place for place, key in enumerate(self.keys)}
            self._counts[: len(kept)] = self._counts[kept]
            self._counts[len(kept) :] = 0
        return parts

    def _part(self, column: pa.Array, rows: npt.NDArray[np.intp]) -> StatePart:
        states = [self.states[row] for row in rows.tolist()]
        counts = self._counts[rows]
        return StatePart(column.take(pa.array(rows)), states, counts[:, 0], counts[:, 1])
