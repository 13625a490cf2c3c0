"""Windows of one length: each has a store, of the kind that the receiver has without windows.

The window is part of the key, so keys are routed, moved and split with it. Stores of Python objects have keys without
it, as user code sees them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.inference import no_rows
from dpa.errors import ExecutorError
from dpa.execution._object_table import ObjectTable
from dpa.execution._parts import combined, ends_of, with_windows, without_window
from dpa.execution.block import Block
from dpa.execution.receivers.base import Receiver
from dpa.execution.rows import one_batch
from dpa.execution.states import P, Reduced, StatePart, States, Sweep, together
from dpa.execution.windowing import note_late
from dpa.executors import name_of
from dpa.routing.hashing import ALL_HASHES, Interval
from dpa.routing.keys import KeyName, names_of
from dpa.routing.table import Owning, RoutingTable
from dpa.windows.options import END, START

B = TypeVar("B", Block, StatePart)


class ClosableStates(States[P]):
    """Knows by what time windows are closed."""

    def __init__(self, receiver: Receiver) -> None:
        assert receiver.windowing is not None
        self._receiver = receiver
        self._windowing = receiver.windowing
        self._closed: int | None = None

    def note_closed(self, until: int) -> None:
        self._closed = until if self._closed is None else max(until, self._closed)


class WindowStates(ClosableStates[StatePart]):
    """`_own_keys` and `_whole_keys` remove the window from keys, and restore it."""

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        # dead letters of a reducer have whole keys, to be replayed by
        self._strips = receiver.takes_objects and (receiver.tolerance is None or not receiver.can_merge)
        self._size_us = self._windowing.windows.size_us
        self._stores: dict[int, States[Any]] = {}  # by the end of the window
        self._swept: list[States[Any]] = []  # by the current sweep
        self._kind: pa.DataType = pa.null()  # of keys

    @property
    def size(self) -> int:
        return sum(store.size for store in self._stores.values())

    @property
    def nbytes(self) -> int:
        return sum(store.nbytes for store in self._stores.values())

    @property
    def first_open(self) -> int | None:
        found = ((end, store.first_open) for end, store in self._stores.items())
        return min((end if timer is None else min(end, timer) for end, timer in found), default=None)

    def reduce(self, block: Block) -> pa.RecordBatch | None:
        found = []
        for end, own in self._by_end(block):
            if self._closed is not None and end <= self._closed:
                note_late(self._windowing, self._receiver.executor, own, end)
                continue
            rows = self._store(end).reduce(own)
            if rows is not None and rows.num_rows:
                found.append((self._in_window(rows, end, 0), rows.num_rows))
        return one_batch(found) if found else None

    def lacks(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Which of these keys no store has, shape (keys,); for stores of Python objects."""
        lacks = np.ones(len(keys), dtype=bool)
        ends = ends_of(keys)
        for end, store in self._stores.items():
            rows = np.flatnonzero(ends == end)
            assert isinstance(store, ObjectTable)
            lacks[rows] = store.lacks(self._own_keys(keys.take(pa.array(rows))))
        return lacks

    def close(self, until: int, key: KeyName) -> Reduced | None:
        self.note_closed(until)
        shares = []
        for end, store in sorted(self._stores.items()):
            shares += self._timed(end, until)
            if end <= until:
                shares.append(self._finished(end, store.finish, key))
                del self._stores[end]
        return together(shares) if shares else None

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """By the store with most keys: hashes are spread alike in all stores."""
        largest = max(self._stores.values(), key=lambda store: store.size, default=None)
        if largest is None:
            return [ALL_HASHES]
        return largest.pieces(table, keep, max(1, most * largest.size // max(1, self.size)))

    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        parts: dict[int, list[StatePart]] = {}
        for end, store in list(self._stores.items()):
            for owner, part in store.pack(table, keep, interval).items():
                parts.setdefault(owner, []).append(self._whole(part, end))
            if not store.size:
                del self._stores[end]
        return {owner: combined(found) for owner, found in sorted(parts.items())}

    def snapshot(self) -> StatePart | None:
        return self._combined((end, store.snapshot()) for end, store in self._stores.items())

    def begin_sweep(self, sweep: Sweep, *, only_changed: bool = False) -> bool:
        """A window that closes during the sweep is swept before it is dropped."""

        def keep(end: int, part: StatePart) -> None:
            sweep.keep(self._whole(part, end))

        for end, store in self._stores.items():
            if not store.begin_sweep(Sweep(partial(keep, end), sweep.guard)):
                self.end_sweep()
                return False
            self._swept.append(store)
        return True

    def sweep(self, most: int) -> bool:
        while self._swept:
            if self._swept[-1].sweep(most):
                return True
            self._swept.pop().end_sweep()
        return False

    def end_sweep(self) -> None:
        while self._swept:
            self._swept.pop().end_sweep()

    def touched(self, block: Block) -> StatePart | None:
        known = ((end, own) for end, own in self._by_end(block) if end in self._stores)
        return self._combined((end, self._stores[end].touched(own)) for end, own in known)

    def merge(self, part: StatePart) -> None:
        for end, own in self._by_end(part):
            self._store(end).merge(own)

    def install(self, part: StatePart) -> None:
        for end, own in self._by_end(part):
            self._store(end).install(own)

    def preview(self, key: KeyName) -> Reduced:
        return self._together(key, lambda store: store.preview)

    def finish(self, key: KeyName) -> Reduced:
        timed = [share for end in sorted(self._stores) for share in self._timed(end, end)]
        return self._together(key, lambda store: store.finish, timed)

    def _together(
        self, key: KeyName, finish: Callable[[States[Any]], Callable[[KeyName], Reduced]], timed: Sequence[Reduced] = ()
    ) -> Reduced:
        shares = [*timed, *(self._finished(end, finish(self._stores[end]), key) for end in sorted(self._stores))]
        return together(shares) if shares else self._receiver.own_store().finish(key)

    def _timed(self, end: int, until: int) -> list[Reduced]:
        """Rows of a window's timers. Timers at its end are called when it closes: no more rows can come."""
        share = self._stores[end].close(end + 1 if end <= until else until, ())
        return [] if share is None else [self._windowed(share, end, 0)]

    def _finished(self, end: int, finish: Callable[[KeyName], Reduced], key: KeyName) -> Reduced:
        if not self._strips:
            return finish(key)
        names = names_of(key)[:-2]
        return self._windowed(finish(names[0] if len(names) == 1 else names), end, len(names))

    def _windowed(self, share: Reduced, end: int, at: int) -> Reduced:
        """With the window's columns before the column at a position."""
        rows = share.table.combine_chunks().to_batches() or [no_rows(share.table.schema)]
        table = pa.Table.from_batches([self._in_window(each, end, at) for each in rows])
        return replace(share, table=table, keys=self._whole_keys(share.keys, end))

    def _in_window(self, rows: pa.RecordBatch, end: int, at: int) -> pa.RecordBatch:
        columns = list(zip(rows.schema.names, rows.columns, strict=True))
        window = {START: end - self._size_us, END: end}
        for name in window.keys() & set(rows.schema.names):
            raise ExecutorError(
                f"{name_of(self._receiver.executor)} gives a column {name!r}, which is the window's: leave it out"
            )
        kind = self._kind[self._kind.num_fields - 1].type
        added = [(name, pa.repeat(pa.scalar(time, kind), rows.num_rows)) for name, time in window.items()]
        return pa.record_batch(dict([*columns[:at], *added, *columns[at:]]))

    def _store(self, end: int) -> States[Any]:
        store = self._stores.get(end)
        if store is None:
            store = self._stores[end] = self._receiver.own_store()
        return store

    def _by_end(self, whole: B) -> Iterator[tuple[int, B]]:
        self._kind = whole.keys.type
        for end, own in whole.by_number(ends_of):
            yield end, replace(own, keys=self._own_keys(own.keys))

    def _whole(self, part: StatePart, end: int) -> StatePart:
        return replace(part, keys=self._whole_keys(part.keys, end))

    def _own_keys(self, keys: pa.StructArray) -> pa.Array:
        """As the store of a window has them."""
        return without_window(keys) if self._strips else keys

    def _whole_keys(self, keys: pa.Array, end: int) -> pa.StructArray:
        """The keys of a window's store, with their window."""
        if not self._strips:
            return keys
        ends = np.full(len(keys), end, dtype=np.int64)
        return with_windows(keys, self._kind, ends - self._size_us, ends)

    def _combined(self, parts: Iterator[tuple[int, StatePart | None]]) -> StatePart | None:
        found = [self._whole(part, end) for end, part in parts if part is not None]
        return combined(found) if found else None
