"""States that can be merged, as runs sorted by hash: spilling writes a run, and reading merges the runs, as in a
log-structured merge-tree (O'Neil et al., 1996).

When the other runs outgrow the first, all are folded into one, range by range. So every state is folded a logarithmic
number of times, and the disk holds a small multiple of all states.

A run has segments by hash: columns and rows of joins are Arrow IPC streams, Python states are pickles."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.execution.block import Block
from dpa.execution.keys import cast, encode
from dpa.execution.receivers import store_of
from dpa.execution.receivers.base import Receiver
from dpa.execution.rows import concatenated, plain, whole_of
from dpa.execution.spill.room import BIN_BITS, BINS, Everything, Room, Shelf, read_at
from dpa.execution.states import ColumnPart, JoinPart, ObjectPart, StatePart
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval
from dpa.routing.keys import one_type

_SEGMENTS = 2048
"""A segment's fraction of the budget, within the bounds below: a piece read from tens of runs has a small part of
each."""

_SEGMENT_BYTES = (2**14, 2**20)

_SAMPLE = 64  # states that are pickled to estimate the size of all
_SIDE = b"side"  # metadata of a stream's schema: the side of a join
_VALUE = "value: "  # prefix of a join's own columns, while they are among all columns
_OWN = ("key", "hash", "records", "mapped")  # columns of a stream before those of the states
_OWN_OF_ROWS = ("key", "hash", "weight")  # the same of the rows of a join


@dataclass(frozen=True)
class _Segment:
    """A segment of a run, or a remainder.

    Attributes:
        file: that has it, and others; closed, and so gone, with the last of them.
        offset, size: where in the file it is, in bytes.
        keys: in the whole of it.
        live: the hashes in it that are not dropped.
    """

    file: BinaryIO
    offset: int
    size: int
    keys: int
    live: Interval

    def meets(self, interval: Interval) -> bool:
        return self.live[0] <= interval[1] and interval[0] <= self.live[1]

    def without(self, interval: Interval) -> list[_Segment]:
        if not self.meets(interval):
            return [self]
        (first, last), (begin, end) = self.live, interval
        rest = [(first, begin - 1), (end + 1, last)]
        return [replace(self, live=(low, high)) for low, high in rest if low <= high]


class Runs(Shelf):
    """The runs of one task."""

    def __init__(self, receiver: Receiver, room: Room) -> None:
        self._receiver = receiver
        self._room = room
        self._all = Everything(room.seed)
        self._segment_bytes = int(np.clip(room.memory // _SEGMENTS, *_SEGMENT_BYTES))
        self._segments: list[_Segment] = []
        self._folded = 0
        self._file: BinaryIO | None = None  # is written at its end until it is as large as the budget
        self._offset = 0

    def put(self, part: StatePart) -> None:
        self._write(iter([part]))
        if not self._receiver.has_sides and self.bytes > 2 * max(self._folded, self._room.memory):
            self._fold()

    def read(self, interval: Interval = ALL_HASHES) -> Iterator[StatePart]:
        for segment in self._segments:
            if segment.meets(interval):
                live = (max(interval[0], segment.live[0]), min(interval[1], segment.live[1]))
                part = unpacked(read_at(segment.file, segment.offset, segment.size), live)
                if part is not None:
                    yield part

    def drop(self, interval: Interval) -> None:
        self._segments = [left for segment in self._segments for left in segment.without(interval)]
        self._count()

    def recall(self, hashes: Hashes) -> None:
        return None

    def close(self) -> None:
        self.drop(ALL_HASHES)
        self._file = None

    def _write(self, parts: Iterator[StatePart]) -> None:
        with self._room.writing():
            if self._file is None or self._offset >= self._room.memory:
                self._file, self._offset = self._room.file(), 0
            file = self._file
            for part in parts:
                for interval, keys, data in packed(part, self._room, self._segment_bytes):
                    file.write(data)
                    self._segments.append(_Segment(file, self._offset, len(data), keys, interval))
                    self._offset += len(data)
                    self.written += len(data)
            file.flush()
        self._count()

    def _fold(self) -> None:
        old = Runs(self._receiver, self._room)
        old._segments, self._segments, self._file = self._segments, [], None

        def folded() -> Iterator[StatePart]:
            for interval in old.cuts(self._room.piece):
                store = store_of(self._receiver)
                for part in old.read(interval):
                    store.merge(part)
                old.drop(interval)
                yield from store.pack(self._all, -1).values()

        self._write(folded())
        self._folded = self.bytes

    def _count(self) -> None:
        self.keys = sum(segment.keys for segment in self._segments)
        self.bytes = sum(segment.size for segment in self._segments)

    def _sizes(self) -> npt.NDArray[np.float64]:
        sizes = np.zeros(BINS)
        for segment in self._segments:
            first, last = (end >> BIN_BITS for end in segment.live)
            sizes[first : last + 1] += segment.size / (last + 1 - first)
        return sizes


class Packed(NamedTuple):
    """A segment.

    Attributes:
        interval: from the first hash of its keys to the last.
        keys: how many; of a join, its rows.
        data: its bytes.
    """

    interval: Interval
    keys: int
    data: bytes


def packed(part: StatePart, room: Room, size: int) -> Iterator[Packed]:
    """Segments of about `size` bytes, sorted by hash; for a join, first one side, then the other."""
    if isinstance(part, ObjectPart):
        yield from _objects(part, room, size)
    elif isinstance(part, JoinPart):
        for side in sorted({block.side for block in part.states}):
            rows = _rows([block for block in part.states if block.side == side])
            yield from _columns(rows.replace_schema_metadata({_SIDE: str(side)}), rows.column(1).to_numpy(), size)
    else:
        assert isinstance(part, ColumnPart) and part.hashes is not None
        columns = [part.keys, *map(pa.array, (part.hashes, part.records, part.mapped)), *part.states.columns]
        yield from _columns(pa.RecordBatch.from_arrays(columns, [*_OWN, *part.states.schema.names]), part.hashes, size)


def unpacked(data: bytes, interval: Interval) -> StatePart | None:
    """A segment's states with hashes in an interval; None without any."""
    is_objects = data.startswith(pickle.PROTO)
    found = pickle.loads(data) if is_objects else pa.ipc.open_stream(data).read_next_batch()
    hashes = found.hashes if is_objects else found.column(1).to_numpy()
    first, last = np.array(interval, dtype=np.uint32)
    start, stop = np.searchsorted(hashes, first), np.searchsorted(hashes, last, side="right")
    if start == stop:
        return None
    if stop - start < len(hashes):
        found = found.slice(int(start), int(stop - start))
    return found if is_objects else _part(found)


def _part(rows: pa.RecordBatch) -> StatePart:
    metadata = rows.schema.metadata or {}
    own = len(_OWN_OF_ROWS if _SIDE in metadata else _OWN)
    fields = list(rows.schema)[own:]
    states = pa.RecordBatch.from_arrays(rows.columns[own:], schema=pa.schema(fields))
    if _SIDE not in metadata:
        hashes, records, mapped = (column.to_numpy() for column in rows.columns[1:own])
        return ColumnPart(rows.column(0), states, records, mapped, hashes)
    keys, codes = encode(rows.column(0))
    hashes = np.empty(len(keys), dtype=np.uint32)
    hashes[codes] = rows.column(1).to_numpy()
    weights = rows.column(2).to_numpy(zero_copy_only=False) if rows.column(2).null_count == 0 else None
    block = Block(keys, hashes, codes, states if fields else None, weights, side=int(metadata[_SIDE]))
    return JoinPart(keys, (block,), block.counts(), block.mapped(), hashes)


def _objects(part: ObjectPart, room: Room, size: int) -> Iterator[Packed]:
    some = part.states[:: max(1, len(part.states) // _SAMPLE)]
    keys = max(1, size * len(some) // len(room.pickled(some)))
    order = np.argsort(part.hashes, kind="stable")
    for start in range(0, len(order), keys):
        rows = order[start : start + keys]
        ends = part.hashes[rows[[0, -1]]].tolist()
        yield Packed((ends[0], ends[1]), len(rows), room.pickled(part.take(rows)))


def _columns(rows: pa.RecordBatch, hashes: Hashes, size: int) -> Iterator[Packed]:
    order = np.argsort(hashes, kind="stable")
    rows, hashes = rows.take(pa.array(order)), hashes[order]
    keys = max(1, size * len(rows) // max(1, rows.nbytes))
    for start in range(0, len(rows), keys):
        sink, own = pa.BufferOutputStream(), rows.slice(start, keys)
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(own)
        ends = hashes[[start, start + len(own) - 1]].tolist()
        yield Packed((ends[0], ends[1]), len(own), sink.getvalue())


def _rows(blocks: Sequence[Block]) -> pa.RecordBatch:
    """Rows of one side of a join, with a column of weights, null for blocks without."""
    kind = one_type(block.keys.type for block in blocks)
    parts = []
    for block in blocks:
        weights = pa.nulls(block.rows) if block.weights is None else pa.array(block.weights)
        columns = [cast(block.keys, kind).take(pa.array(block.codes)), pa.array(block.hashes[block.codes]), weights]
        names = [*_OWN_OF_ROWS, *(_VALUE + name for name in block.columns.schema.names)]
        parts.append((pa.RecordBatch.from_arrays([*columns, *block.columns.columns], names), block.rows))
    rows = whole_of(plain(pa.table(concatenated(parts))))
    names = [name.removeprefix(_VALUE) for name in rows.schema.names]
    weight = rows.column(2).fill_null(1) if rows.column(2).null_count < len(rows) else rows.column(2)
    return pa.RecordBatch.from_arrays([*rows.columns[:2], weight, *rows.columns[len(_OWN_OF_ROWS) :]], names)
