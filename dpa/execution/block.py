"""A block: the batch of records that tasks send, with each distinct key and its hash once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from sys import getsizeof
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.execution._held import objects_of, value_of
from dpa.execution.arrivals import Input
from dpa.execution.keys import encode, encode_hashed, hashes_by, renumbered, rows_a_key
from dpa.executors import Groups
from dpa.measure.load import KeySample
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes, hash_column
from dpa.routing.keys import to_python
from dpa.routing.table import Owners

NumberOf: TypeAlias = "Callable[[pa.Array], npt.NDArray[np.int64]]"
"""Numbers keys, shape (keys,)."""

_MOST_ROWS, _RARE = 2.0, 0.5
"""Rows of each key, up to which numbering by hashes is faster, and up to which it costs more than it saves."""

T = TypeVar("T", pa.Array, pa.RecordBatch)

Values: TypeAlias = pa.RecordBatch | npt.NDArray[np.object_] | None
"""The records' values: columns, or Python objects, or nothing at all; shape (rows,)."""

_MOST_BYTES = 2**24  # of blocks that are copied into one
_SORT_FROM = 16  # with more owners, one sort is cheaper than a scan for each
_WEIGHED = 16  # Python objects of a block that are measured, approximately
_ITEMS = (tuple, list, set, frozenset, dict)  # Python objects whose size is about that of their items

_WIDTHS = (np.uint8, np.uint16, np.int32)
"""Widths of owners' numbers, the narrowest first: comparing bytes is several times as fast as comparing integers."""


@dataclass(frozen=True, eq=False)
class Block:
    """Records as columns.

    Attributes:
        keys: the keys, each used by some record; shape (keys,), of a type that `key_type` returns. Each comes once,
            except in a dictionary given by a user, and if they hardly repeat and the receiver has partial states.
        hashes: their hashes, shape (keys,).
        codes: for each record the position of its key in `keys`, shape (rows,).
        values: the records' values, or None where there are none.
        weights: how many mapped records each one stands for, shape (rows,); None if each is one, without a combiner.
        combined: whether the values are states that a combiner made.
        side: of a join, the side that all the records are of: 0 is the left one, 1 the right one.
        row_bytes: about how many bytes a record has; None where nobody asks.
        arrived: the columns of the records' rows by the inputs that they came from, where those must go together and
            are not known before; empty elsewhere.
    """

    keys: pa.Array
    hashes: Hashes
    codes: npt.NDArray[np.int32]
    values: Values = None
    weights: npt.NDArray[np.int64] | None = None
    combined: bool = False
    side: int = 0
    row_bytes: float | None = None
    arrived: Mapping[Input, pa.Schema] = field(default_factory=dict)

    @staticmethod
    def of(
        column: pa.Array | pa.ChunkedArray, values: Values, seed: int, side: int = 0, *, may_repeat: bool = False
    ) -> Block:
        """`may_repeat`: keys that hardly repeat are left as they are. Raises KeyTypeError where keys of this type are
        not supported."""
        if isinstance(column, pa.Array) and (rows := rows_a_key(column)) < _MOST_ROWS:
            hashes = hash_column(column, seed)
            if may_repeat and rows < _RARE:
                return Block(column, hashes, np.arange(len(column), dtype=np.int32), values, side=side)
            keys, codes = encode_hashed(column, hashes)
            return Block(keys, hashes_by(codes, hashes, len(keys)), codes, values, side=side)
        keys, codes = encode(column)
        return Block(keys, hash_column(keys, seed), codes, values, side=side)

    @property
    def rows(self) -> int:
        return len(self.codes)

    @property
    def columns(self) -> pa.RecordBatch:
        """No columns where there are no values. Raises TypeError where values are Python objects."""
        if isinstance(self.values, np.ndarray):
            raise TypeError("these values must be columns")
        return pa.record_batch({}) if self.values is None else self.values

    @cached_property
    def groups(self) -> Groups:
        """As a batch reducer sees them. Raises as `columns`."""
        return Groups(self.keys, self.codes, self.columns)

    @cached_property
    def size(self) -> int:
        """Bytes, exact for columns, estimated from a sample for Python objects."""
        values = self.values
        if isinstance(values, np.ndarray):
            some = values[:: max(1, len(values) // _WEIGHED)]
            value_bytes = sum(map(_size, some)) * len(values) // max(1, len(some))
        else:
            value_bytes = 0 if values is None else values.nbytes
        return int(self.keys.nbytes + self.hashes.nbytes + self.codes.nbytes + value_bytes)

    def weighed(self) -> Block:
        return replace(self, row_bytes=self.size / self.rows) if self.rows else self

    def copy(self) -> Block:
        """In memory of its own: the arrays of a message share the message's."""
        values = copied(self.values) if isinstance(self.values, pa.RecordBatch) else self.values
        weights = None if self.weights is None else self.weights.copy()
        hashes, codes = self.hashes.copy(), self.codes.copy()
        return replace(self, keys=copied(self.keys), hashes=hashes, codes=codes, values=values, weights=weights)

    def counts(self) -> npt.NDArray[np.int64]:
        """Records of each key, shape (keys,)."""
        is_object = isinstance(self.values, np.ndarray)
        return np.bincount(self.codes, minlength=len(self.keys)) if is_object else self.groups.sizes()

    def mapped(self) -> npt.NDArray[np.int64]:
        """Mapped records of each key, shape (keys,); after a combiner not the same as `counts`."""
        if self.weights is None:
            return self.counts()
        return np.bincount(self.codes, self.weights, len(self.keys)).astype(np.int64)

    def objects(self) -> list[Any]:
        """The values as Python objects: None without values, a dict for several columns."""
        values = self.values
        if values is None:
            return [None] * self.rows
        if isinstance(values, np.ndarray):
            return list(values)
        if values.num_columns != 1:
            return objects_of(values)
        column = values.column(0)
        if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            return list(column.to_numpy(zero_copy_only=False).tolist())
        return objects_of(column)

    def shown(self, row: int, *, as_object: bool) -> tuple[Any, Any]:
        """A record's key and value, to show and to keep; `as_object`: the value as `objects` has it, else as a row."""
        one = self.take(np.array([row]))
        [key] = to_python(one.keys)
        [value] = list.__iter__(one.objects() if as_object else objects_of(one.columns))
        return key, value_of(value)

    def slice(self, start: int, stop: int) -> Block:
        """The records from `start` up to `stop`, with only the keys that they use."""
        if start == 0 and stop >= self.rows:
            return self
        rows = np.arange(start, min(stop, self.rows))
        if not np.array_equal(self.codes[start:stop], rows):
            return self.take(rows)
        keys, hashes = copied(self.keys[start:stop]), self.hashes[start:stop]  # each has a key of its own
        codes = (rows - start).astype(np.int32)
        values, weights = self.values, None if self.weights is None else self.weights[start:stop]
        if values is not None:
            values = copied(values[start:stop]) if isinstance(values, pa.RecordBatch) else values[start:stop]
        return replace(self, keys=keys, hashes=hashes, codes=codes, values=values, weights=weights)

    def goes_with(self, other: Block) -> bool:
        """Whether both can be one block: of dictionaries with null among their values Arrow makes no one array."""
        kinds = [
            one.values.schema if isinstance(one.values, pa.RecordBatch) else type(one.values) for one in (self, other)
        ]
        forms = [(one.keys.type, one.weights is None, one.combined, one.side, one.arrived) for one in (self, other)]
        types = [self.keys.type, *(kinds[0].types if isinstance(kinds[0], pa.Schema) else ())]
        return kinds[0] == kinds[1] and forms[0] == forms[1] and not any(map(_has_dictionary, types))

    def sample(self, most: int, random: np.random.Generator) -> tuple[KeySample, npt.NDArray[np.intp]]:
        """Its keys with their records, and the positions of these keys in `keys`. Up to `most` rows are counted
        exactly; of a larger block, `most` rows stand for all."""
        if self.rows <= most:
            return _sampled(self.hashes, np.arange(len(self.hashes)), self.counts().astype(np.float64), self.rows)
        step = self.rows / most  # a row of each of `most` equal stretches: regular input has no way to fool it
        rows = ((np.arange(most) + random.random(most)) * step).astype(np.int64)
        used, counts = np.unique(self.codes[np.minimum(rows, self.rows - 1)], return_counts=True)
        return _sampled(self.hashes, used.astype(np.intp), counts.astype(np.float64) * step, most)

    def route(self, grouping: Grouping) -> Iterator[tuple[int, Block]]:
        """Each reducer's part, by ascending reducer; the order within a part is kept."""
        if not self.rows:
            return
        owners = grouping.owners_of(self.hashes)
        if owners is None:
            yield from self._by_record(grouping.choose_by_key(self.hashes, self.codes), grouping.reducers)
        else:
            yield from self.by_key(owners)

    def by_key(self, owners: Owners) -> Iterator[tuple[int, Block]]:
        """Each owner's part, ascending; all records of a key stay together. `owners` has shape (keys,)."""
        used = np.flatnonzero(np.bincount(owners))
        if len(used) == 1:
            yield int(used[0]), self
            return
        keys_of = [np.flatnonzero(owners == owner) for owner in used]
        place = np.empty(len(self.keys), dtype=np.int32)
        part_of_key = np.empty(len(self.keys), dtype=_narrowest(len(used)))
        for part, positions in enumerate(keys_of):
            place[positions] = np.arange(len(positions), dtype=np.int32)
            part_of_key[positions] = part
        codes = place.take(self.codes)
        rows_of = _rows_by_part(part_of_key.take(self.codes), len(used))
        for owner, positions, rows in zip(used, keys_of, rows_of, strict=True):
            yield int(owner), self._part(positions, codes.take(rows), rows)

    def by_number(self, number_of: NumberOf) -> Iterator[tuple[int, Block]]:
        """The parts with each number, ascending; `number_of` gives one for each key."""
        numbers, of_key = np.unique(number_of(self.keys), return_inverse=True)
        for place, own in self.by_key(of_key.astype(np.int32)):
            yield int(numbers[place]), own

    def _by_record(self, owners: Owners, reducers: int) -> Iterator[tuple[int, Block]]:
        """The parts if records of one key may go to several reducers; `owners` has shape (rows,)."""
        narrow = owners.astype(_narrowest(reducers))
        for owner, rows in enumerate(_rows_by_part(narrow, reducers)):
            if len(rows):
                yield owner, self if len(rows) == self.rows else self.take(rows)

    def take(self, rows: npt.NDArray[np.intp]) -> Block:
        return self._part(*renumbered(self.codes[rows], len(self.keys)), rows)

    def _part(self, positions: npt.NDArray[np.intp], codes: npt.NDArray[np.int32], rows: npt.NDArray[np.intp]) -> Block:
        """The rows `rows`, with the keys at `positions`; `codes` are the places of the rows' keys among these."""
        return Block(
            self.keys.take(pa.array(positions)),
            self.hashes[positions],
            codes,
            _take(self.values, rows),
            None if self.weights is None else self.weights[rows],
            self.combined,
            self.side,
            arrived=self.arrived,
        )


def joined(blocks: Sequence[Block]) -> Iterator[Block]:
    """The same records in the same order, in few blocks: those that go together are copied into one."""
    some, size = list(blocks[:1]), 0
    for block in blocks[1:]:
        size += block.size
        if size > _MOST_BYTES or not block.goes_with(some[0]):
            yield _joined(some)
            some, size = [], 0
        some.append(block)
    yield _joined(some)


def _joined(blocks: Sequence[Block]) -> Block:
    first = blocks[0]
    if len(blocks) == 1:
        return first
    keys = pa.concat_arrays([block.keys for block in blocks])
    hashes = np.concatenate([block.hashes for block in blocks])
    starts = np.cumsum([0, *(len(block.keys) for block in blocks[:-1])])
    codes = np.concatenate([block.codes + start for block, start in zip(blocks, starts, strict=True)]).astype(np.int32)
    if not first.combined:  # states are in the order of their keys, which may repeat
        keys, places = encode_hashed(keys, hashes)
        codes, hashes = places.take(codes), hashes_by(places, hashes, len(keys))
    values = first.values
    if values is not None:
        join = pa.concat_batches if isinstance(values, pa.RecordBatch) else np.concatenate
        values = join([block.values for block in blocks])
    weights = None if first.weights is None else np.concatenate([block.weights for block in blocks])
    return replace(first, keys=keys, hashes=hashes, codes=codes, values=values, weights=weights)


def _has_dictionary(kind: pa.DataType) -> bool:
    kind = getattr(kind, "storage_type", kind)  # of an extension
    within = (kind.field(place).type for place in range(kind.num_fields))
    return pa.types.is_dictionary(kind) or any(map(_has_dictionary, within))


def object_array(objects: list[Any]) -> npt.NDArray[np.object_]:
    return np.fromiter(objects, dtype=object, count=len(objects))


def _sampled(
    hashes: Hashes, positions: npt.NDArray[np.intp], records: npt.NDArray[np.float64], rows: float
) -> tuple[KeySample, npt.NDArray[np.intp]]:
    """The sample of these keys, one position for each hash: different keys may share a hash, and a dictionary may
    repeat a key."""
    order = np.argsort(hashes[positions], kind="stable")
    positions, records = positions[order], records[order]
    ascending = hashes[positions]
    first = np.flatnonzero(np.r_[True, ascending[1:] != ascending[:-1]]) if len(ascending) else order
    if len(first) < len(positions):
        ascending, positions, records = ascending[first], positions[first], np.add.reduceat(records, first)
    return KeySample(ascending, records, rows), positions


def copied(arrow: T) -> T:
    """Concatenating copies whole buffers, at many times the speed of `take`."""
    concatenate = pa.concat_batches if isinstance(arrow, pa.RecordBatch) else pa.concat_arrays
    try:
        return concatenate([arrow, arrow.slice(0, 0)])
    except pa.ArrowInvalid:  # a dictionary has null among its values
        return arrow.take(pa.array(np.arange(len(arrow))))


def _narrowest(owners: int) -> type[np.integer[Any]]:
    return next(width for width in _WIDTHS if owners <= np.iinfo(width).max + 1)


def _rows_by_part(part_of_row: npt.NDArray[Any], parts: int) -> list[npt.NDArray[np.intp]]:
    if parts <= _SORT_FROM:
        return [np.flatnonzero(part_of_row == part) for part in range(parts)]
    order = np.argsort(part_of_row, kind="stable")
    return np.split(order, np.cumsum(np.bincount(part_of_row, minlength=parts))[:-1])


def _take(values: Values, rows: npt.NDArray[np.intp]) -> Values:
    if isinstance(values, pa.RecordBatch):
        return values.take(pa.array(rows)) if values.num_columns else values
    return None if values is None else values[rows]


def _size(value: object) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, _ITEMS) else ()
    return getsizeof(value) + sum(map(getsizeof, items))
