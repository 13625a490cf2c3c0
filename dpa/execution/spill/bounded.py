"""A store with bounded memory; further states are on local disk.

Records are reduced in memory. When it is full, the least recently used keys are put on the shelf until half is free.
States that can be merged need not come back before the end: the next record of such a key starts another state, and
both are merged later. Other states come back one by one, with the next record of their key.

Use is tracked by stretches of the hash circle, as many as tasks have hot keys."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.execution._object_table import ObjectTable
from dpa.execution.block import Block
from dpa.execution.receivers import store_of
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.windows import WindowStates
from dpa.execution.rows import one_batch, plain
from dpa.execution.spill._embedded import Embedded
from dpa.execution.spill._runs import Runs
from dpa.execution.spill.room import Everything, Room, Shelf
from dpa.execution.states import Gone, Reduced, StatePart, States, Sweep, together
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval
from dpa.routing.keys import KeyName
from dpa.routing.table import Owners, Owning, RoutingTable

_STRETCH_BITS = np.uint32(16)
_STRETCHES = 2**16

_OBJECTS, _STORED, _COLUMNS = 0.7, 0.5, 0.12
"""The fraction of the room that is filled before states are shelved. An embedded store needs an eighth itself, and
folding columns takes six times as much again."""

_PARTS_OF_ROWS = 8  # parts in which a join's rows are shelved: numbering keys takes several times their size
_SLICES = 8  # a block whose keys could fill more than this fraction of the room with objects is reduced in slices
_MEASURED = 16  # objects are measured again after this fraction of their number, in records
_KEY_BYTES = 1024  # bytes of a key and its state, before any are measured


@dataclass(frozen=True)
class _Divided:
    """The part in which keys are shelved, by stretch; -1: they stay in memory."""

    seed: int
    stretches: npt.NDArray[np.int32]

    def owners_of(self, hashes: Hashes) -> Owners:
        return self.stretches.take(hashes >> _STRETCH_BITS)


class BoundedStates(States[StatePart]):
    """The store.

    Attributes:
        held: bytes in memory, when they were measured last.
        most_held: the most that they were.
    """

    def __init__(self, receiver: Receiver, room: Room) -> None:
        self.held = self.most_held = 0
        self._receiver = receiver
        self._room = room
        objects = _OBJECTS if receiver.can_merge else _STORED
        self._limit = int(room.memory * (objects if receiver.takes_objects else _COLUMNS))
        self._hot = store_of(receiver)
        self._all = Everything(room.seed)
        parts = _PARTS_OF_ROWS if receiver.has_sides else 1
        self._parts = np.arange(_STRETCHES, dtype=np.int32) // (_STRETCHES // parts)
        self._shelf: Shelf | None = None
        self._touched = np.zeros(_STRETCHES, dtype=np.uint32)  # when, in blocks; 0: not since it was put on the shelf
        self._now = self._unmeasured = 0
        self._first_spilled: int | None = None  # no window on the shelf ends before

    @property
    def size(self) -> int:
        """A key counts once in memory, and once for each spilled state not yet merged."""
        return self._hot.size + self.keys_on_disk

    @property
    def keys_on_disk(self) -> int:
        return 0 if self._shelf is None else self._shelf.keys

    @property
    def nbytes(self) -> int:
        return self._hot.nbytes

    @property
    def spilled(self) -> int:
        return 0 if self._shelf is None else self._shelf.written

    def reduce(self, block: Block) -> pa.RecordBatch | None:
        made = [self._reduce(part) for part in self._slices(block)]
        rows = [part for part in made if part is not None]
        return rows[0] if len(rows) == 1 else one_batch([(part, part.num_rows) for part in rows]) if rows else None

    def touched(self, block: Block) -> StatePart | None:
        """Only states in memory: a trial of other records starts without states."""
        return self._hot.touched(block)

    def merge(self, part: StatePart) -> None:
        self._take_in(part, self._hot.merge)

    def install(self, part: StatePart) -> None:
        self._take_in(part, self._hot.install)

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """States touched last come first."""
        if self._shelf is None:
            return self._hot.pieces(table, keep, most)
        touched = self._touched.copy()
        shelf = self._flush()
        size = min(self._room.piece, most * shelf.bytes // max(1, shelf.keys))
        cuts = [cut for cut in shelf.cuts(size) if _is_any_of_others(table, keep, cut)]
        return sorted(cuts or [(0, 0)], key=lambda cut: -int(touched[_stretches(cut)].max()))

    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        if self._shelf is None:
            return self._hot.pack(table, keep, interval)
        stores: dict[int, States[Any]] = {}
        shelf = self._flush(interval)
        for cut in shelf.cuts(self._room.piece, interval):
            store = self._read(cut)
            shelf.drop(cut)
            for owner, part in store.pack(table, keep).items():
                stores.setdefault(owner, store_of(self._receiver)).install(part)
            for rest in store.pack(self._all, -1).values():
                shelf.put(rest)
        return {owner: store.pack(self._all, -1)[0] for owner, store in sorted(stores.items())}

    def snapshot(self) -> StatePart | None:
        """Only states in memory; `on_disk` has the others."""
        return self._hot.snapshot()

    def on_disk(self) -> Iterator[StatePart]:
        """Read small parts, one at a time. If states can be merged, several parts may have one key: merge them in this
        order, and the states in memory last."""
        if self._shelf is not None:
            yield from self._shelf.read()

    def gone(self) -> Gone | None:
        """None once anything was spilled."""
        return self._hot.gone() if self._shelf is None else None

    def begin_sweep(self, sweep: Sweep, *, only_changed: bool = False) -> bool:
        """False once anything was spilled."""
        return self._shelf is None and self._hot.begin_sweep(sweep, only_changed=only_changed)

    def sweep(self, most: int) -> bool:
        return self._hot.sweep(most)

    def end_sweep(self) -> None:
        self._hot.end_sweep()

    def preview(self, key: KeyName) -> Reduced:
        """Finishes copies, read from disk."""
        return self._hot.preview(key) if self._shelf is None else self._share(self._flush(), key)

    def finish(self, key: KeyName) -> Reduced:
        """Finishes one range of hashes after another. The rows stay on disk until they are read."""
        if self._shelf is None:
            return self._hot.finish(key)
        share = self._share(self._flush(), key)
        self._shelf.close()
        return share

    @property
    def first_open(self) -> int | None:
        return _least(self._hot.first_open, self._first_spilled)

    def close(self, until: int, key: KeyName) -> Reduced | None:
        """If such a window may be on disk, closes one range of hashes after another."""
        if self._first_spilled is None or self._first_spilled > until:
            return self._hot.close(until, key)
        shelf, shares = self._flush(), []
        self._hot.note_closed(until)
        self._first_spilled = None
        for cut in shelf.cuts(self._room.piece):
            store = self._read(cut)
            found = store.close(until, key)
            self._first_spilled = _least(self._first_spilled, store.first_open)
            if found is not None:
                shares.append(found)
                shelf.drop(cut)
                for rest in store.pack(self._all, -1).values():
                    shelf.put(rest)
        return together(shares) if shares else None

    def note_closed(self, until: int) -> None:
        self._hot.note_closed(until)

    def _share(self, shelf: Shelf, key: KeyName) -> Reduced:
        shares: list[Reduced] = []
        for cut in shelf.cuts(self._room.piece):
            found = self._read(cut).finish(key)
            shares.append(self._all_on_disk(found))
        return together(shares, self._room.column_on_disk)

    def _all_on_disk(self, share: Reduced) -> Reduced:
        of_keys = {"keys": share.keys, "records": pa.array(share.records), "mapped": pa.array(share.mapped)}
        keys, records, mapped = (column.chunk(0) for column in self._room.on_disk(pa.table(of_keys)).columns)
        return Reduced(self._room.on_disk(plain(share.table)), keys, records.to_numpy(), mapped.to_numpy())

    def _slices(self, block: Block) -> Iterator[Block]:
        rows = block.rows
        if self._receiver.takes_objects:
            each = self.held // max(1, self._hot.size) or _KEY_BYTES
            rows = max(1, self._limit // (_SLICES * each))
        if len(block.keys) <= rows:
            yield block
            return
        for start in range(0, block.rows, rows):
            yield block.slice(start, start + rows)

    def _reduce(self, block: Block) -> pa.RecordBatch | None:
        self._touch(block.keys, block.hashes)
        rows = self._hot.reduce(block)
        self._unmeasured += block.rows
        self._shrink()
        return rows

    def _take_in(self, part: StatePart, take_in: Callable[[StatePart], None]) -> None:
        self._touch(part.keys, part.hashed(self._room.seed))
        take_in(part)
        self._unmeasured += len(part.keys)
        self._shrink()

    def _touch(self, keys: pa.Array, hashes: Hashes) -> None:
        """Load the states of these keys, unless states can be merged."""
        self._now += 1
        self._touched[hashes >> _STRETCH_BITS] = self._now
        if self._shelf is None or self._receiver.can_merge:
            return
        assert isinstance(self._hot, ObjectTable | WindowStates)
        lacks = self._hot.lacks(keys)
        if lacks.any() and (part := self._shelf.recall(hashes[lacks])) is not None:
            self._hot.install(part)

    def _shrink(self) -> None:
        """If states take too much memory, shelve half of them. A join shelves all its rows: it reads none before the
        end."""
        if self._receiver.takes_objects and self._unmeasured * _MEASURED < self._hot.size:
            return
        self._unmeasured, self.held = 0, self._hot.nbytes
        self.most_held = max(self.held, self.most_held)
        if self.held <= self._limit:
            return
        least = 0 if self._receiver.has_sides else self._limit // 2
        while self.held > least and len(seen := np.flatnonzero(self._touched)):
            oldest = seen[np.argsort(self._touched[seen], kind="stable")]
            self._spill(oldest[: len(seen) if not least else -(-len(seen) // 2)])

    def _spill(self, stretches: npt.NDArray[np.intp]) -> None:
        parts = np.full(_STRETCHES, -1, dtype=np.int32)
        parts[stretches] = self._parts[stretches]
        self._move(parts)
        self._touched[stretches] = 0

    def _flush(self, interval: Interval = ALL_HASHES) -> Shelf:
        return self._move(self._parts, interval)

    def _move(self, stretches: npt.NDArray[np.int32], interval: Interval = ALL_HASHES) -> Shelf:
        """Shelve the keys whose stretches are in a part, part by part."""
        if self._shelf is None:
            room, can_merge = self._room, self._receiver.can_merge
            self._shelf = Runs(self._receiver, room) if can_merge else Embedded(room)
        self._first_spilled = self.first_open
        for part in self._hot.pack(_Divided(self._room.seed, stretches), -1, interval).values():
            self._shelf.put(part)
        self.held = self._hot.nbytes
        pa.default_memory_pool().release_unused()
        return self._shelf

    def _read(self, interval: Interval) -> States[Any]:
        assert self._shelf is not None
        store = store_of(self._receiver)
        for part in self._shelf.read(interval):
            (store.merge if self._receiver.can_merge else store.install)(part)
        return store


def _least(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)


def _stretches(interval: Interval) -> slice:
    return slice(interval[0] >> int(_STRETCH_BITS), (interval[1] >> int(_STRETCH_BITS)) + 1)


def _is_any_of_others(table: RoutingTable, keep: int, interval: Interval) -> bool:
    first, last = interval
    inside = table.positions[(table.positions > first) & (table.positions <= last)]
    found: bool = (table.owners_of(np.append(inside, np.uint32(first))) != keep).any()
    return found
