"""Joins: the rows of both sides are kept, as blocks, until the end. A key's rows move and merge like any state.

Keys are dictionary-encoded in every block, so that the join needs no hash table of rows: with all distinct keys
numbered, the rows of a key are found by position. The side with fewer rows is sorted by key; the blocks of the other
side are joined with it one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.execution._pieces import of_columns, owners_within
from dpa.execution.block import Block
from dpa.execution.keys import by_position, cast, encode, key_columns
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.known import NOTHING_KNOWN, Known
from dpa.execution.rows import concatenated
from dpa.execution.schemas import RIGHT, SUFFIX, named
from dpa.execution.states import Reduced, StatePart, States
from dpa.operators import JoinOptions
from dpa.routing.hashing import ALL_HASHES, Interval
from dpa.routing.keys import KeyName, names_of, one_type
from dpa.routing.table import Owning, RoutingTable

Positions = npt.NDArray[np.int64]
Piece = tuple[pa.RecordBatch, int]
"""Some rows of the result, and how many they are."""

_SIDES = ("left", "right")
"""Names of the sides, as `Block.side` numbers them."""

_MARKS = ("", RIGHT)
"""What the names of each side's result columns begin with."""


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

    def knowing(self, columns: Sequence[pa.Schema | None], names: Sequence[str]) -> Receiver:
        left, right = columns
        return replace(self, executor=replace(self.executor, columns=(left, right), named=tuple(names)))

    def columns(self, key: KeyName, blocks: Sequence[Block], *, is_complete: bool) -> Known:
        store = self.own_store()
        try:
            for block in blocks:
                store.reduce(block)
            return Known(named(store.finish(key).table).schema, is_complete)
        except ExecutorError:
            return NOTHING_KNOWN

    def own_store(self) -> States:
        return JoinStates(self.executor)

    def completed(self, rows: pa.Table) -> pa.Table:
        """The result, in the columns that all reducers agree on, under the names that its columns have in the end.

        A side without any value column had no rows. If its columns are not known either, it has those of
        `JoinOptions.named` that are missing, as nulls: on the left side `x` where the right one has it and `x_right` is
        named.
        """
        options, key = self.executor, names_of(self.executor.key)
        right = {name.removeprefix(RIGHT) for name in rows.column_names if name.startswith(RIGHT)}
        has_left = options.columns[0] is not None or len(right) + len(key) < rows.num_columns
        has_right = options.columns[1] is not None or bool(right)
        missing = [name for name in options.named if name not in right and name not in rows.column_names]
        for name in [] if has_left else [name.removesuffix(SUFFIX) for name in missing]:
            if name in right and name not in rows.column_names:
                rows = rows.add_column(len(key), name, pa.nulls(rows.num_rows))
        table = named(rows)
        for name in [] if has_left and has_right else missing:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(table.num_rows))
        return table


class JoinStates(States):
    """The store. Of the right side of a semi or an anti join it keeps a row a key and block, without values."""

    def __init__(self, options: JoinOptions) -> None:
        self._options = options
        self._blocks: list[Block] = []

    @property
    def size(self) -> int:
        """Rows, not keys: what its memory goes by."""
        return sum(block.rows for block in self._blocks)

    @property
    def nbytes(self) -> int:
        return sum(block.size for block in self._blocks)

    @property
    def _only_left(self) -> bool:
        """Whether the result has columns of the left side alone."""
        return self._options.how in ("semi", "anti")

    def reduce(self, block: Block) -> None:
        """Keep a copy of a block's rows: a view would keep the whole message in memory."""
        if self._only_left and block.side:
            block = Block(
                block.keys,
                block.hashes,
                np.arange(len(block.keys), dtype=np.int32),
                None,
                block.mapped(),
                side=block.side,
            )
        self._blocks.append(block.copy())

    def merge(self, part: StatePart) -> None:
        assert isinstance(part.states, tuple)
        self._blocks += part.states

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        """The keys that the table does not give to reducer `keep`, in pieces of `most` or more, those with most rows
        first. A key is counted once in each block that has rows of it."""
        if not self._blocks:
            return [ALL_HASHES]
        hashes = np.concatenate([block.hashes for block in self._blocks])
        rows = np.concatenate([block.counts() for block in self._blocks])
        return of_columns(hashes, rows, table, keep, most)

    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        parts: dict[int, list[Block]] = {keep: []}
        for block in self._blocks:
            for owner, part in block.by_key(owners_within(table, block.hashes, keep, interval)):
                parts.setdefault(owner, []).append(part)
        self._blocks = parts.pop(keep)
        return {owner: _part(blocks) for owner, blocks in sorted(parts.items())}

    def snapshot(self) -> StatePart | None:
        return _part(self._blocks) if self._blocks else None

    def finish(self, key: KeyName) -> Reduced:
        """The joined rows: the key columns, named `key`, the left side's columns, and those of the right, whose names
        begin with `RIGHT` until the columns of all reducers are known.

        Raises:
            ExecutorError: a column of one side has values of two types.
        """
        keys = _keys_of(self._blocks)
        try:
            pieces = self._of_left_alone(key, keys) if self._only_left else self._joined(key, keys)
            columns = concatenated([self._header(key, keys), *pieces])
        except pa.ArrowInvalid as error:
            raise ExecutorError(f"a side of a join must have columns of one type each: {error}") from None
        return Reduced(pa.table(columns), keys.all, keys.records, keys.records)

    def _header(self, key: KeyName, keys: _Keys) -> Piece:
        """No rows, with all columns in their order."""
        columns = key_columns(keys.all.slice(0, 0), key)
        for side in (0,) if self._only_left else (0, 1):
            columns |= {_MARKS[side] + name: pa.nulls(0, kind) for name, kind in self._kinds(side).items()}
        return pa.record_batch(columns), 0

    def _kinds(self, side: int) -> dict[str, pa.DataType]:
        """The value columns of a side, with the types that are known beforehand."""
        known = self._options.columns[side]
        batches = (block.columns for block in self._blocks if block.side == side)
        names = dict.fromkeys(name for batch in batches for name in batch.schema.names)
        first = {} if known is None else dict(zip(known.names, known.types, strict=True))
        return {**first, **{name: first.get(name, pa.null()) for name in names}}

    def _of_left_alone(self, key: KeyName, keys: _Keys) -> Iterator[Piece]:
        """The rows of a semi or an anti join."""
        wanted = ((keys.rows[1] > 0) & _matchable(keys.all)) == (self._options.how == "semi")
        for block, own, places in self._of_side(0, keys):
            kept = wanted[places]
            rows = None if kept.all() else np.flatnonzero(kept.take(block.codes))
            codes = block.codes if rows is None else block.codes[rows]
            yield _piece(key_columns(own.take(pa.array(codes)), key), block, rows), len(codes)

    def _joined(self, key: KeyName, keys: _Keys) -> Iterator[Piece]:
        """The rows of any other join."""
        built = int(keys.rows[1].sum() <= keys.rows[0].sum())
        probed, how, matchable = 1 - built, self._options.how, _matchable(keys.all)
        codes = [places.take(block.codes) for block, _, places in self._of_side(built, keys)]
        build = _Build(np.concatenate(codes) if codes else np.zeros(0, np.int32), keys.rows[built], matchable)
        chunked = concatenated([(block.columns, block.rows) for block, *_ in self._of_side(built, keys)])
        columns = {name: column.combine_chunks() for name, column in chunked.items()}
        for block, own, places in self._of_side(probed, keys):
            rows, others = build.matches(block.codes, places, alone=how in (_SIDES[probed], "full"))
            found = key_columns(own.take(pa.array(block.codes if rows is None else block.codes[rows])), key)
            piece = _piece(found, block, rows, _MARKS[probed])
            yield _beside(piece, columns, others, _MARKS[built]), len(others)
        if how in (_SIDES[built], "full"):
            rows = np.flatnonzero((keys.rows[probed] * matchable).take(build.codes) == 0)
            found = key_columns(keys.all.take(pa.array(build.codes[rows])), key)
            yield _beside(pa.record_batch(found), columns, rows, _MARKS[built]), len(rows)

    def _of_side(self, side: int, keys: _Keys) -> Iterator[tuple[Block, pa.Array, npt.NDArray[np.int32]]]:
        for block, own, places in zip(self._blocks, keys.of_block, keys.places, strict=True):
            if block.side == side:
                yield block, own, places


class _Build:
    """The rows of one side by key.

    Attributes:
        codes: the key of each row, shape (rows,).
    """

    def __init__(self, codes: npt.NDArray[np.int32], rows: Positions, matchable: npt.NDArray[np.bool_]) -> None:
        """`rows` is the number of rows of each key, and `matchable` whether it may match; shape (keys,)."""
        self.codes = codes
        self._by_key = np.append(np.argsort(codes, kind="stable"), -1)  # the last one stands for no row
        self._number = rows * matchable
        self._start = np.where(self._number > 0, np.cumsum(rows) - rows, len(codes))

    def matches(
        self, codes: npt.NDArray[np.int32], places: npt.NDArray[np.int32], *, alone: bool
    ) -> tuple[Positions | None, Positions]:
        """The pairs of rows of one key: positions in a block, None for all of them in order, and in this side.

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


def _piece(keys: dict[str, pa.Array], block: Block, rows: Positions | None, mark: str = "") -> pa.RecordBatch:
    """Keys and the values of some rows of a block, None for all of them."""
    values = block.columns if rows is None or not block.columns.num_columns else block.columns.take(pa.array(rows))
    named = zip(values.schema.names, values.columns, strict=True)
    return pa.record_batch({**keys, **{mark + name: column for name, column in named}})


def _beside(piece: pa.RecordBatch, columns: dict[str, pa.Array], rows: Positions, mark: str) -> pa.RecordBatch:
    """A piece with some rows of columns beside it, null for -1."""
    missing = rows < 0
    index = pa.array(rows, mask=missing if missing.any() else None)
    taken = {mark + name: column.take(index) for name, column in columns.items()}
    return pa.record_batch({**dict(zip(piece.schema.names, piece.columns, strict=True)), **taken})


def _matchable(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether keys have no null, which equals nothing in SQL; shape (keys,)."""
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


def _part(blocks: list[Block]) -> StatePart:
    keys = _keys_of(blocks)
    return StatePart(keys.all, tuple(blocks), keys.records, keys.records)
