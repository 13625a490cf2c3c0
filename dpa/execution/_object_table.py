"""Python objects by key, each with two counts of records: what record reducers and processes keep their states in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ProtocolError
from dpa.execution._pieces import intervals
from dpa.execution.block import Block
from dpa.execution.states import StatePart
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, within
from dpa.routing.keys import Key, in_words, one_type, to_arrow, to_python
from dpa.routing.table import RoutingTable


class ObjectTable:
    """The table. A key's position in it stays the same until `pack` takes other keys out.

    The hash of a key is kept beside its state, so that taking keys out costs what is taken out, and a look at all
    hashes, a few milliseconds for a million.

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
        self._type = pa.null()  # of all keys so far: it does not follow from Python's values
        self._counts = np.zeros((1024, 2), dtype=np.int64)
        self._hashes: Hashes = np.zeros(1024, dtype=np.uint32)

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
        places = self.add(block.keys, block.hashes, block.counts(), block.mapped())
        return places.take(block.codes).tolist()  # type: ignore[no-any-return]

    def install(self, part: StatePart) -> None:
        """Take in states of keys that it does not have.

        Raises:
            ProtocolError: it has one of them.
        """
        before = self.size
        places = self.add_part(part)
        assert isinstance(part.states, list)
        if len(places) and int(places.min()) < before:
            twice = in_words(self.keys[int(places.min())])
            raise ProtocolError(f"there are two states of one key on one task, {twice}, which are not to be merged")
        for place, state in zip(places.tolist(), part.states, strict=True):
            self.states[place] = state

    def add_part(self, part: StatePart) -> npt.NDArray[np.intp]:
        """Count the records that made states of another table's. Returns the position of each one's key."""
        assert part.hashes is not None
        return self.add(part.keys, part.hashes, part.records, part.mapped)

    def add(
        self, keys: pa.Array, hashes: Hashes, records: npt.NDArray[np.int64], mapped: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.intp]:
        """Count records of keys. Returns the position of each key, shape (keys,); new ones get a state of zero.

        Raises:
            KeyTypeError: keys before were of a type that does not go with these.
        """
        self._type = one_type([self._type, keys.type])
        found, before = [], self.size
        for key in to_python(keys):
            place = self._places.setdefault(key, self.size)
            if place == self.size:
                self.states.append(self._zero(key))
                self.keys.append(key)
            found.append(place)
        while self.size > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._hashes = np.concatenate([self._hashes, np.zeros_like(self._hashes)])
        places = np.array(found, dtype=np.intp)
        if self.size > before:
            self._hashes[places] = hashes
        np.add.at(self._counts, places, np.stack([records, mapped], axis=1))
        return places

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """The keys that the table does not give to reducer `keep`, in pieces of about `most` keys: intervals of hashes
        that together have all, those with most processed records first."""
        gone = self._gone(table, keep, ALL_HASHES)
        return intervals(self._hashes[gone], self._counts[gone, 0], most)

    def pack(self, table: RoutingTable, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        """Take out the states of all keys in an interval of hashes that the table does not give to reducer `keep`, by
        their owner."""
        gone = self._gone(table, keep, interval)
        owners = table.owners_of(self._hashes[gone])
        parts = {int(owner): self._part(gone[owners == owner]) for owner in np.unique(owners)}
        self._remove(gone)
        return parts

    def snapshot(self) -> StatePart | None:
        """All states, by reference."""
        return self._part(np.arange(self.size)) if self.size else None

    def _gone(self, table: RoutingTable, keep: int, interval: Interval) -> npt.NDArray[np.intp]:
        """The positions of the keys in the interval that belong to others."""
        hashes = self._hashes[: self.size]
        inside = None if interval == ALL_HASHES else np.flatnonzero(within(hashes, interval))
        owners = table.owners_of(hashes if inside is None else hashes[inside])
        others = np.flatnonzero(owners != keep)
        return others if inside is None else inside[others]

    def _part(self, rows: npt.NDArray[np.intp]) -> StatePart:
        places = rows.tolist()
        keys = to_arrow([self.keys[place] for place in places], self._type)
        counts = self._counts[rows]
        return StatePart(keys, [self.states[place] for place in places], counts[:, 0], counts[:, 1], self._hashes[rows])

    def _remove(self, gone: npt.NDArray[np.intp]) -> None:
        """Remove the keys at these positions, ascending. The last of those that stay take the positions that become
        free."""
        size = self.size - len(gone)
        stays = np.ones(len(gone), dtype=bool)
        stays[gone[gone >= size] - size] = False
        free, last = gone[gone < size], np.flatnonzero(stays) + size
        removed = [self.keys[place] for place in gone.tolist()]
        for place, old in zip(free.tolist(), last.tolist(), strict=True):
            self.keys[place], self.states[place] = self.keys[old], self.states[old]
        self._counts[free], self._hashes[free] = self._counts[last], self._hashes[last]
        self._counts[size : self.size] = 0
        del self.keys[size:], self.states[size:]
        if len(removed) > size:
            self._places = {key: place for place, key in enumerate(self.keys)}
            return
        for key in removed:
            del self._places[key]
        self._places.update((self.keys[place], place) for place in free.tolist())
