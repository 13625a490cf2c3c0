"""States that cannot be merged, one by one in an embedded key-value store, RocksDB: a record needs its key's state and
no other.

An entry has the states of all keys with one hash. A state is here or in memory, never in both."""

import gc
import pickle
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice, pairwise, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.owned import OwnedDirectory
from dpa.execution.spill.room import BIN_BITS, BINS, Room, Shelf, bins_of
from dpa.execution.states import ObjectPart, StatePart
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval
from dpa.routing.keys import one_type, to_arrow, to_python

_AT_ONCE = 1_000  # entries read or written together; they are in memory twice meanwhile

_BUFFER_SHARE = 24
"""RocksDB buffers this fraction of the budget before it writes, within the bounds below; up to twice as much."""

_BUFFER_BYTES = (2**19, 2**24)

_BLOOM_BITS = 10  # bits of a Bloom filter for each key, for 1 % false positives
_FIELDS = 4  # fields of each key in an entry: the key, its state, its records, its mapped records

_BIG_ENDIAN = np.dtype(">u4")


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pause the cyclic garbage collector while many objects without cycles are made: it would search in vain again and
    again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Embedded(Shelf):
    """The store of one task."""

    def __init__(self, room: Room) -> None:
        """Raises JobFailedError if nothing can be written."""
        self._room = room
        self._type = pa.null()
        self._known = np.zeros((2, BINS), dtype=np.int64)  # keys and bytes in each stretch
        self._directory = room.directory()
        self._store, self._batch = self._opened()
        self._end = weakref.finalize(self, _end, self._store, self._directory)
        self._end.atexit = False  # whoever needs a directory next removes those of processes that have ended

    def put(self, part: StatePart) -> None:
        assert isinstance(part, ObjectPart)
        self._type = one_type([self._type, part.keys.type])
        order = np.argsort(part.hashes, kind="stable")
        hashes = part.hashes[order]
        start = 0
        while start < len(order):
            last = hashes[min(start + _AT_ONCE, len(order)) - 1]
            end = int(np.searchsorted(hashes, last, side="right"))
            self._put(part.take(order[start:end]))
            start = end

    @_without_collections()
    def _put(self, part: ObjectPart) -> None:
        """The part is sorted by hash, with all states of each hash."""
        columns = (to_python(part.keys), part.states, part.records.tolist(), part.mapped.tolist())
        flat = list(chain.from_iterable(zip(*columns, strict=True)))
        starts = np.flatnonzero(np.diff(part.hashes, prepend=~part.hashes[:1]))
        ends = np.append(starts, len(part.hashes))
        values = [self._room.pickled(flat[start:end]) for start, end in pairwise((ends * _FIELDS).tolist())]
        names, batch = _names(part.hashes[starts]), self._batch(raw_mode=True)
        for name, value in zip(names, values, strict=True):
            batch.put(name, value)
        self._write(batch)
        self.written += self._count(part, names, values, 1)

    def read(self, interval: Interval = ALL_HASHES) -> Iterator[StatePart]:
        for names, values in self._entries(interval):
            yield self._part(names, values)

    def drop(self, interval: Interval) -> None:
        (first, last), size = interval, 2**BIN_BITS
        begin, end = -(-first // size), (last + 1) // size  # the bins that it has all of
        borders = [(first, begin * size - 1), (end * size, last)] if begin <= end else [interval]
        for border in borders:
            for names, values in self._entries(border):
                self._count(self._part(names, values), names, values, -1)
        self._known[:, begin:end] = 0
        self.keys, self.bytes = self._known.sum(axis=1).tolist()
        lowest, highest = _names(np.array(interval, dtype=np.uint32))
        self._store.delete_range(lowest, highest + b"\0")

    def _entries(self, interval: Interval) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        """Names and contents, some at a time."""
        if interval[0] > interval[1]:
            return
        first, last = _names(np.array(interval, dtype=np.uint32))
        entries = takewhile(lambda entry: entry[0] <= last, self._store.items(from_key=first))
        while some := list(islice(entries, _AT_ONCE)):
            names, values = zip(*some, strict=True)
            yield names, values

    @_without_collections()
    def recall(self, hashes: Hashes) -> StatePart | None:
        names = _names(np.unique(hashes))
        stored = [pair for pair in zip(names, self._store.get(names), strict=True) if pair[1] is not None]
        if not stored:
            return None
        found, values = zip(*stored, strict=True)
        part, batch = self._part(found, values), self._batch(raw_mode=True)
        for name in found:
            batch.delete(name)
        self._write(batch)
        self._count(part, found, values, -1)
        return part

    def close(self) -> None:
        self._end()

    def _opened(self) -> tuple[Any, Any]:
        """The database, and its class of batches. It has little memory and no log: nothing restarts from it."""
        from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

        options, blocks, writes = Options(raw_mode=True), BlockBasedOptions(), WriteOptions()
        buffer = int(np.clip(self._room.memory // _BUFFER_SHARE, *_BUFFER_BYTES))
        options.set_write_buffer_size(buffer)
        options.set_max_write_buffer_number(2)
        options.set_allow_mmap_reads(True)
        options.set_compression_type(DBCompressionType.none())
        blocks.set_block_cache(Cache(buffer))
        blocks.set_bloom_filter(_BLOOM_BITS, False)
        options.set_block_based_table_factory(blocks)
        writes.disable_wal = True  # type: ignore[method-assign, assignment]  # an attribute, whatever the stub says
        with self._room.writing(Exception):
            store = Rdict(str(self._directory.path / "states"), options)
        store.set_write_options(writes)
        return store, WriteBatch

    def _write(self, batch: Any) -> None:
        with self._room.writing(Exception):
            self._store.write(batch)

    @_without_collections()
    def _part(self, names: Sequence[bytes], values: Sequence[bytes]) -> ObjectPart:
        entries = [pickle.loads(value) for value in values]
        flat = list(chain.from_iterable(entries))
        keys, states, *counts = (flat[field::_FIELDS] for field in range(_FIELDS))
        records, mapped = np.array(counts, dtype=np.int64)
        hashes = np.repeat(_hashes(names), [len(entry) // _FIELDS for entry in entries])
        return ObjectPart(to_arrow(keys, self._type), states, records, mapped, hashes)

    def _count(self, part: ObjectPart, names: Sequence[bytes], values: Sequence[bytes], sign: int) -> int:
        """Count a part that comes (`sign` 1) or goes (-1), by its entries. Returns their bytes."""
        sizes = np.array([*map(len, values)])
        self._known[0] += sign * np.bincount(bins_of(part.hashes), minlength=BINS)
        self._known[1] += sign * np.bincount(bins_of(_hashes(names)), sizes, BINS).astype(np.int64)
        total = int(sizes.sum())
        self.keys += sign * len(part.keys)
        self.bytes += sign * total
        return total

    def _sizes(self) -> npt.NDArray[np.float64]:
        sizes: npt.NDArray[np.float64] = self._known[1].astype(np.float64)
        return sizes


def _end(store: Any, directory: OwnedDirectory) -> None:
    """Also called when the store is garbage-collected. What cannot be removed stays until this process ends."""
    store.close()
    with suppress(OSError):
        directory.remove_directory()
    directory.release()


def _names(hashes: Hashes) -> list[bytes]:
    """Names of entries, big-endian so that they sort as hashes do."""
    names: list[bytes] = hashes.astype(_BIG_ENDIAN).view("V4").tolist()
    return names


def _hashes(names: Iterable[bytes]) -> Hashes:
    return np.frombuffer(b"".join(names), _BIG_ENDIAN).astype(np.uint32)
