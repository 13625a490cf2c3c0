"""Joins: both sides' rows are kept, as blocks, until the end. A key's rows move and merge like any state.

Every block's keys are dictionary-encoded, so the join needs no hash table of rows: once all distinct keys are numbered,
a key's rows are found by position. The side with fewer rows is sorted by key, and the other side's blocks are joined
with it one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.execution._parts import of_columns, owners_within
from dpa.execution.block import Block
from dpa.execution.keys import by_position, cast, encode, key_columns
from dpa.execution.receivers.base import NOTHING_KNOWN, Extent, Known, Receiver
from dpa.execution.rows import concatenated
from dpa.execution.states import JoinPart, Reduced, States
from dpa.operators import JoinOptions
from dpa.routing.hashing import ALL_HASHES, Interval
from dpa.routing.keys import KeyName, one_type
from dpa.routing.table import Owning, RoutingTable

Positions = npt.NDArray[np.int64]
Piece = tuple[pa.RecordBatch, int]
"""Rows of the result, and their number."""

_SIDES = ("left", "right")  # names of the sides, as `Block.side` numbers them


class _Keys(NamedTuple):
    """The keys of some blocks.

    Attributes:
        all: each key once, shape (keys,).
        of_block: the keys of each block, in the type of `all`.
        places: for each block the position of each of its keys in `all`.
        rows: the rows of each key on either side, shape (2, keys).
        records: the processed records of each key, shape (keys,).
    """

    all: pa.Array
    of_block: list[pa.Array]
    places: list[npt.NDArray[np.int32]]
    rows: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]


class JoinReceiver(Receiver):
    """A join of two sides."""

    executors = (JoinOptions,)
    noun = "a join"
    word = "join"
    has_sides = True
    may_lack_columns = True

    executor: JoinOptions

    def does(self, by: str) -> str:
        return f"{self.executor.how} join by {by}"

    def columns(self, key: KeyName, blocks: Sequence[Block], extent: Extent) -> Known:
        if self.executor.names_sides and None in self.executor.columns:
            return NOTHING_KNOWN
        store = self.own_store()
        try:
            for block in blocks:
                store.reduce(block)
            return Known(store.finish(key).table.schema, extent)
        except ExecutorError:
            return NOTHING_KNOWN

    def own_store(self) -> States[Any]:
        return JoinStates(self.executor)


class JoinStates(States[JoinPart]):
    """Of the right side of a semi or anti join it keeps one row for each key and block, without values."""

    def __init__(self, options: JoinOptions) -> None:
        self._options = options
        self._right = options.right_names
        self._blocks: list[Block] = []

    @property
    def size(self) -> int:
        """Counts rows, not keys, as rows take the memory."""
        return sum(block.rows for block in self._blocks)

    @property
    def nbytes(self) -> int:
        return sum(block.size for block in self._blocks)

    def reduce(self, block: Block) -> None:
        """Keep a copy of a block's rows: a view would keep the whole message in memory."""
        if block.side and not self._options.names_sides:
            once = np.arange(len(block.keys), dtype=np.int32)
            block = Block(block.keys, block.hashes, once, None, block.mapped(), side=block.side)
        known, names = self._options.columns[block.side], block.columns.schema.names
        if known is not None and (more := [name for name in names if name not in known.names]):
            why = f"a side of a join has a column {more[0]!r}, and was to have {', '.join(known.names) or 'none'}"
            raise ExecutorError(f"{why}: declare the `schema` of the function that gives it")
        self._blocks.append(block.copy())

    def merge(self, part: JoinPart) -> None:
        self._blocks += part.states

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """A key counts once for each block with rows of it."""
        if not self._blocks:
            return [ALL_HASHES]
        hashes = np.concatenate([block.hashes for block in self._blocks])
        rows = np.concatenate([block.counts() for block in self._blocks])
        return of_columns(hashes, rows, table, keep, most)

    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, JoinPart]:
        parts: dict[int, list[Block]] = {keep: []}
        for block in self._blocks:
            for owner, part in block.by_key(owners_within(table, block.hashes, keep, interval)):
                parts.setdefault(owner, []).append(part)
        self._blocks = parts.pop(keep)
        return {owner: _part(blocks) for owner, blocks in sorted(parts.items())}

    def snapshot(self) -> JoinPart | None:
        return _part(self._blocks) if self._blocks else None

    def finish(self, key: KeyName) -> Reduced:
        """The key columns, named `key`, the left side's columns, and the right side's. Raises ExecutorError where a
        column of one side has values of two types."""
        keys = _keys_of(self._blocks)
        try:
            pieces = self._joined(key, keys) if self._options.names_sides else self._of_left_alone(key, keys)
            columns = concatenated([self._header(key, keys), *pieces])
        except pa.ArrowInvalid as error:
            raise ExecutorError(f"a side of a join must have columns of one type each: {error}") from None
        return Reduced(pa.table(columns), keys.all, keys.records, keys.records)

    def _header(self, key: KeyName, keys: _Keys) -> Piece:
        """No rows, with all columns known beforehand, in order."""
        columns = key_columns(keys.all.slice(0, 0), key)
        for side in (0, 1) if self._options.names_sides else (0,):
            for field in self._options.columns[side] or ():
                columns[self._right[field.name] if side else field.name] = pa.nulls(0, field.type)
        return pa.record_batch(columns), 0

    def _of_left_alone(self, key: KeyName, keys: _Keys) -> Iterator[Piece]:
        """A semi or an anti join."""
        wanted = ((keys.rows[1] > 0) & _matchable(keys.all)) == (self._options.how == "semi")
        for block, own, places in self._of_side(0, keys):
            kept = wanted[places]
            rows = None if kept.all() else np.flatnonzero(kept.take(block.codes))
            codes = block.codes if rows is None else block.codes[rows]
            yield _piece(key_columns(own.take(pa.array(codes)), key), block, rows), len(codes)

    def _joined(self, key: KeyName, keys: _Keys) -> Iterator[Piece]:
        built = int(keys.rows[1].sum() <= keys.rows[0].sum())
        probed, how, matchable = 1 - built, self._options.how, _matchable(keys.all)
        codes = [places.take(block.codes) for block, _, places in self._of_side(built, keys)]
        build = _Build(np.concatenate(codes) if codes else np.zeros(0, np.int32), keys.rows[built], matchable)
        chunked = concatenated([(block.columns, block.rows) for block, *_ in self._of_side(built, keys)])
        columns = {name: column.combine_chunks() for name, column in chunked.items()}
        for block, own, places in self._of_side(probed, keys):
            rows, others = build.matches(block.codes, places, alone=how in (_SIDES[probed], "full"))
            found = key_columns(own.take(pa.array(block.codes if rows is None else block.codes[rows])), key)
            yield _beside(_piece(found, block, rows), columns, others), len(others)
        if how in (_SIDES[built], "full"):
            rows = np.flatnonzero((keys.rows[probed] * matchable).take(build.codes) == 0)
            found = key_columns(keys.all.take(pa.array(build.codes[rows])), key)
            yield _beside(pa.record_batch(found), columns, rows), len(rows)

    def _of_side(self, side: int, keys: _Keys) -> Iterator[tuple[Block, pa.Array, npt.NDArray[np.int32]]]:
        for block, own, places in zip(self._blocks, keys.of_block, keys.places, strict=True):
            if block.side == side:
                names = [self._right[name] if side else name for name in block.columns.schema.names]
                yield replace(block, values=block.columns.rename_columns(names)), own, places


class _Build:
    """The rows of one side by key; `codes`: the key of each row."""

    def __init__(self, codes: npt.NDArray[np.int32], rows: Positions, matchable: npt.NDArray[np.bool_]) -> None:
        """`rows`: the number for each key; `matchable`: whether it may match; shape (keys,)."""
        self.codes = codes
        self._by_key = np.append(np.argsort(codes, kind="stable"), -1)  # the last one stands for no row
        self._number = rows * matchable
        self._start = np.where(self._number > 0, np.cumsum(rows) - rows, len(codes))

    def matches(
        self, codes: npt.NDArray[np.int32], places: npt.NDArray[np.int32], *, alone: bool
    ) -> tuple[Positions | None, Positions]:
        """Pairs of rows with one key: positions in a block (None: all, in order), and in this side.

        Args:
            codes: the key of each row of the block as a position in `places`.
            places: the positions of the block's keys among all keys.
            alone: whether a row without a match comes too, with the position -1.
        """
        number, start = self._number[places], self._start[places]
        if alone:
            number = np.maximum(number, 1)
        if number.max(initial=0) <= 1:
            others = self._by_key[start].take(codes)
            if number.all():
                return None, others
            rows = np.flatnonzero(number.take(codes))
            return rows, others[rows]
        of_row = number.take(codes)
        rows = np.repeat(np.arange(len(codes)), of_row)
        first = np.cumsum(of_row) - of_row
        return rows, self._by_key.take(np.arange(len(rows)) - (first - start.take(codes)).take(rows))


def _piece(keys: dict[str, pa.Array], block: Block, rows: Positions | None) -> pa.RecordBatch:
    """`rows` None: all of the block's rows."""
    values = block.columns if rows is None or not block.columns.num_columns else block.columns.take(pa.array(rows))
    return pa.record_batch({**keys, **dict(zip(values.schema.names, values.columns, strict=True))})


def _beside(piece: pa.RecordBatch, columns: dict[str, pa.Array], rows: Positions) -> pa.RecordBatch:
    """A piece with some rows of columns beside it, null for -1."""
    missing = rows < 0
    index = pa.array(rows, mask=missing if missing.any() else None)
    taken = {name: column.take(index) for name, column in columns.items()}
    return pa.record_batch({**dict(zip(piece.schema.names, piece.columns, strict=True)), **taken})


def _matchable(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether keys have no null, which equals nothing in SQL, shape (keys,)."""
    matchable = np.ones(len(keys), dtype=bool)
    for component in keys.flatten() if pa.types.is_struct(keys.type) else [keys]:
        matchable &= component.is_valid().to_numpy(zero_copy_only=False)
    return matchable


def _keys_of(blocks: list[Block]) -> _Keys:
    if not blocks:
        return _Keys(pa.nulls(0), [], [], np.zeros((2, 0), np.int64), np.zeros(0, np.int64))
    columns = [by_position(block.keys) for block in blocks]
    kind = one_type(column.type for column in columns)
    columns = [cast(column, kind) for column in columns]
    keys, codes = encode(pa.chunked_array(columns))
    places = np.split(codes, np.cumsum([len(column) for column in columns])[:-1])
    rows, records = np.zeros((2, len(keys)), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
    for block, at in zip(blocks, places, strict=True):
        counts = block.counts()
        np.add.at(rows[block.side], at, counts)
        np.add.at(records, at, counts if block.weights is None else block.mapped())
    return _Keys(keys, columns, places, rows, records)


def _part(blocks: list[Block]) -> JoinPart:
    keys = _keys_of(blocks)
    return JoinPart(keys.all, tuple(blocks), keys.records, keys.records)
