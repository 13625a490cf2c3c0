"""States that cannot be merged, one by one in an embedded key-value store, RocksDB: a record needs the state of its key
and of no other.

An entry has the states of all keys of one hash. They are here or in memory, never in both.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.owned import OwnedDirectory
from dpa.errors import ConfigError
from dpa.execution.spill._shelf import BINS, Shelf, bins_of
from dpa.execution.spill.room import Room
from dpa.execution.states import StatePart
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval
from dpa.routing.keys import one_type, to_arrow, to_python

_AT_ONCE = 1_000
"""Entries that are read or written together: their keys, states and bytes are in memory a second time meanwhile."""

_BUFFER_SHARE = 24
"""RocksDB collects this part of the budget before it writes, within the bounds that follow; up to twice as much."""

_BUFFER_BYTES = (2**19, 2**24)

_BLOOM_BITS = 10
"""Bits a key by which it is known, in 99 cases of 100, that a file lacks it."""

_Entry = list[tuple[Any, Any, int, int]]
"""Keys of one hash, each with its state, its records and its mapped records."""


class Embedded(Shelf):
    """The store of one task."""

    def __init__(self, room: Room) -> None:
        """Make it.

        Raises:
            ConfigError: RocksDB is not installed.
            JobFailedError: nothing can be written there.
        """
        self._room = room
        self._type = pa.null()
        self._known = np.zeros((2, BINS), dtype=np.int64)  # keys and bytes in each stretch
        self._directory = room.directory()
        self._store, self._batch = self._opened()
        self._end = weakref.finalize(self, _end, self._store, self._directory)
        self._end.atexit = False  # whoever needs a directory next removes those of processes that have ended

    def put(self, part: StatePart) -> None:
        assert isinstance(part.states, list) and part.hashes is not None
        self._type = one_type([self._type, part.keys.type])
        order = np.argsort(part.hashes, kind="stable")
        hashes = part.hashes[order]
        start = 0
        while start < len(order):
            last = hashes[min(start + _AT_ONCE, len(order)) - 1]
            end = int(np.searchsorted(hashes, last, side="right"))
            self._put(part.take(order[start:end]))
            start = end

    def _put(self, part: StatePart) -> None:
        """Take in states in the order of their hashes, and all that there are of each."""
        assert isinstance(part.states, list) and part.hashes is not None
        columns = (to_python(part.keys), part.states, part.records.tolist(), part.mapped.tolist())
        rows = zip(part.hashes.tolist(), *columns, strict=True)
        some = [(hashed, [row[1:] for row in of_hash]) for hashed, of_hash in groupby(rows, itemgetter(0))]
        batch, values = self._batch(raw_mode=True), [self._room.pickled(entry) for _, entry in some]
        for (hashed, _), value in zip(some, values, strict=True):
            batch.put(_name(hashed), value)
        with self._room.writing(Exception):
            self._store.write(batch)
        self.written += self._count(some, values, 1)

    def read(self, interval: Interval = ALL_HASHES) -> Iterator[StatePart]:
        found: list[tuple[int, _Entry]] = []
        for name, value in self._store.items(from_key=_name(interval[0])):
            hashed = int.from_bytes(name, "big")
            if hashed > interval[1]:
                break
            found.append((hashed, pickle.loads(value)))
            if len(found) == _AT_ONCE:
                yield self._part(found)
                found = []
        if found:
            yield self._part(found)

    def drop(self, interval: Interval) -> None:
        """Forget the states of all keys in these stretches, as `cuts` gives them."""
        first, last = bins_of(np.array(interval, dtype=np.uint32)).tolist()
        self._store.delete_range(_name(interval[0]), _name(interval[1]) + b"\0")
        self._known[:, first : last + 1] = 0
        self.keys, self.bytes = self._known.sum(axis=1).tolist()

    def recall(self, hashes: Hashes) -> StatePart | None:
        numbers = np.unique(hashes).tolist()
        values = self._store.get([_name(hashed) for hashed in numbers])
        stored = [(hashed, value) for hashed, value in zip(numbers, values, strict=True) if value is not None]
        if not stored:
            return None
        found, batch = [(hashed, pickle.loads(value)) for hashed, value in stored], self._batch(raw_mode=True)
        for hashed, _ in stored:
            batch.delete(_name(hashed))
        with self._room.writing(Exception):
            self._store.write(batch)
        self._count(found, [value for _, value in stored], -1)
        return self._part(found)

    def close(self) -> None:
        self._end()

    def _opened(self) -> tuple[Any, Any]:
        """A store without a log, which would be for restarts, with little memory; and what makes batches for it."""
        try:
            from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions
        except ImportError:
            needs = "states that cannot be merged, as those of a process, are spilled to RocksDB"
            raise ConfigError(f"limits.state_mb: {needs}: pip install 'dpa[spill]'") from None
        options, blocks, writes = Options(raw_mode=True), BlockBasedOptions(), WriteOptions()
        buffer = int(np.clip(self._room.memory // _BUFFER_SHARE, *_BUFFER_BYTES))
        options.set_write_buffer_size(buffer)
        options.set_max_write_buffer_number(2)
        options.set_compression_type(DBCompressionType.none())
        blocks.set_block_cache(Cache(buffer))
        blocks.set_bloom_filter(_BLOOM_BITS, False)
        options.set_block_based_table_factory(blocks)
        writes.disable_wal = True  # type: ignore[method-assign, assignment]  # an attribute, whatever the stub says
        with self._room.writing(Exception):
            store = Rdict(str(self._directory.path / "states"), options)
        store.set_write_options(writes)
        return store, WriteBatch

    def _part(self, found: Iterable[tuple[int, _Entry]]) -> StatePart:
        rows = [(hashed, *row) for hashed, entry in found for row in entry]
        hashes, keys, states, records, mapped = zip(*rows, strict=True)
        counts = np.array([records, mapped], dtype=np.int64)
        return StatePart(to_arrow(keys, self._type), list(states), counts[0], counts[1], np.array(hashes, np.uint32))

    def _count(self, entries: list[tuple[int, _Entry]], values: list[bytes], sign: int) -> int:
        """Count entries that have come or gone; returns their bytes."""
        bins = bins_of(np.array([hashed for hashed, _ in entries], dtype=np.uint32))
        amounts = np.array([[len(entry) for _, entry in entries], [*map(len, values)]], dtype=np.int64)
        for known, amount in zip(self._known, amounts, strict=True):
            np.add.at(known, bins, sign * amount)
        self.keys, self.bytes = self._known.sum(axis=1).tolist()
        return int(amounts[1].sum())

    def _sizes(self) -> npt.NDArray[np.float64]:
        sizes: npt.NDArray[np.float64] = self._known[1].astype(np.float64)
        return sizes


def _end(store: Any, directory: OwnedDirectory) -> None:
    """Forget all, also where whoever had it has dropped it; what cannot be removed stays until this process ends."""
    store.close()
    with suppress(OSError):
        directory.remove_directory()
    directory.release()


def _name(hashed: int) -> bytes:
    """The name of the entry of a hash: ordered as hashes are."""
    return hashed.to_bytes(4, "big")
