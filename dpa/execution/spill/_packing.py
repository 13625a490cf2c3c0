"""Parts of states as bytes, in segments by the hashes of their keys: columns, and the rows of a join, as Arrow IPC
streams, Python states as pickles."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpa.execution.block import Block
from dpa.execution.keys import cast, encode
from dpa.execution.rows import concatenated, plain, whole_of
from dpa.execution.spill.room import Room
from dpa.execution.states import StatePart
from dpa.routing.hashing import Hashes, Interval
from dpa.routing.keys import one_type

_SAMPLE = 64
"""States that are pickled to learn how large they are."""

_SIDE = b"side"
"""What says in a stream's schema of which side of a join its rows are."""

_VALUE = "value: "
"""Before the names of a join's own columns, while they are among those of all rows."""

_OWN = ("key", "hash", "records", "mapped")
"""Columns of a stream before those of the states."""

_OWN_OF_ROWS = ("key", "hash", "weight")
"""The same of the rows of a join."""


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
    """In segments of about `size` bytes, ordered by hash; one side of a join after the other."""
    if isinstance(part.states, list):
        yield from _objects(part, room, size)
    elif isinstance(part.states, tuple):
        for side in sorted({block.side for block in part.states}):
            rows = _rows([block for block in part.states if block.side == side])
            yield from _columns(rows.replace_schema_metadata({_SIDE: str(side)}), rows.column(1).to_numpy(), size)
    else:
        assert part.hashes is not None
        columns = [part.keys, *map(pa.array, (part.hashes, part.records, part.mapped)), *part.states.columns]
        yield from _columns(pa.RecordBatch.from_arrays(columns, [*_OWN, *part.states.schema.names]), part.hashes, size)


def unpacked(data: bytes, interval: Interval) -> StatePart | None:
    """A segment's part, of keys with hashes in an interval; None: there are none."""
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
        return StatePart(rows.column(0), states, records, mapped, hashes)
    keys, codes = encode(rows.column(0))
    hashes = np.empty(len(keys), dtype=np.uint32)
    hashes[codes] = rows.column(1).to_numpy()
    weights = rows.column(2).to_numpy(zero_copy_only=False) if rows.column(2).null_count == 0 else None
    block = Block(keys, hashes, codes, states if fields else None, weights, side=int(metadata[_SIDE]))
    return StatePart(keys, (block,), block.counts(), block.mapped(), hashes)


def _objects(part: StatePart, room: Room, size: int) -> Iterator[Packed]:
    assert isinstance(part.states, list) and part.hashes is not None
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
    """Rows of one side of a join; a block has weights or has none, which null stands for."""
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
