"""What a task publishes of its share at the end of an epoch, while its stage continues."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpa.errors import ExecutorError
from dpa.execution._parts import owners_within
from dpa.execution.keys import cast, encode, key_column
from dpa.routing.hashing import ALL_HASHES, Interval, hash_column
from dpa.routing.keys import KeyName, names_of, one_type
from dpa.routing.table import Owning

Publishes: TypeAlias = Literal["final", "changes", "table"]
"""Of an epoch, rows that stay as they are; rows of the keys whose result has changed since the epoch before; or the
whole result so far."""

CHANGE, EPOCH = "change", "epoch"
"""The columns that rows of changes have besides those of the result: `insert` or `update`, and the epoch's number."""


@dataclass(frozen=True, eq=False)
class EmittedRows:
    """Rows that a task has emitted into its share; `published`: the numbers of the outputs that have them for good."""

    rows: pa.RecordBatch
    published: frozenset[int] = frozenset()


class LastPublished:
    """The result of a task's keys as it was published last. A key's row goes where its state goes."""

    def __init__(self, key: KeyName) -> None:
        self._key = key
        self._rows: pa.Table | None = None

    def replace(self, rows: pa.Table) -> None:
        self._rows = rows

    def add(self, rows: pa.Table) -> None:
        """Take in rows that other tasks have published, of keys that this task owns now."""
        known = [self._rows] if self._rows is not None and self._rows.num_rows else []
        self._rows = pa.concat_tables([*known, rows], promote_options="permissive")

    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, pa.Table]:
        """Take out the rows of keys in an interval of hashes that a table does not give to task `keep`, by their
        owner."""
        if self._rows is None or not self._rows.num_rows:
            return {}
        keys = key_column(self._rows, self._key)
        owners = owners_within(table, hash_column(keys, table.seed), keep, interval)
        of = {int(owner): self._rows.take(np.flatnonzero(owners == owner)) for owner in np.unique(owners)}
        self._rows = of.pop(keep, None)
        return of

    def changes(self, rows: pa.Table, epoch: int) -> pa.Table:
        """Rows that differ from those published last; these are then the last. Raises ExecutorError where the result
        has a column of a reserved name."""
        for name in (CHANGE, EPOCH):
            if name in rows.column_names:
                what = f"rows of changes already have a column {name!r}"
                raise ExecutorError(f"{what}, as does the result: rename the result's column, or publish the `table`")
        before = self._places(rows)
        changed = before < 0
        known = np.flatnonzero(~changed)
        if len(known):
            assert self._rows is not None
            changed[known] = _differ(rows.take(known), self._rows.take(before[known]), names_of(self._key))
        self._rows = rows
        found = np.flatnonzero(changed)
        words = np.where(before[found] < 0, "insert", "update")
        added = {CHANGE: pa.array(words, pa.string()), EPOCH: pa.array(np.full(len(found), epoch, dtype=np.int64))}
        return pa.table({**dict(zip(rows.column_names, rows.take(found).columns, strict=True)), **added})

    def _places(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The position of the row of the same key published before, -1 without one; shape (rows,)."""
        if self._rows is None or not self._rows.num_rows or not rows.num_rows:
            return np.full(rows.num_rows, -1, dtype=np.int64)
        columns = [key_column(each, self._key) for each in (self._rows, rows)]
        kind = one_type(column.type for column in columns)
        keys, codes = encode(pa.chunked_array([cast(column, kind) for column in columns]))
        places = np.full(len(keys), -1, dtype=np.int64)
        places[codes[: self._rows.num_rows]] = np.arange(self._rows.num_rows)
        found: npt.NDArray[np.int64] = places[codes[self._rows.num_rows :]]
        return found


def latest(changes: pa.Table, key: KeyName) -> pa.Table:
    rows = changes.sort_by(EPOCH).drop_columns([CHANGE, EPOCH])
    if not rows.num_rows:
        return rows
    keys, codes = encode(key_column(rows, key))
    places = np.empty(len(keys), dtype=np.int64)
    places[codes] = np.arange(rows.num_rows)  # of several the last one stays
    return rows.take(np.sort(places))


def _differ(new: pa.Table, old: pa.Table, key: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Which rows differ from those at the same position, which have the same keys; shape (rows,)."""
    found = np.zeros(new.num_rows, dtype=bool)
    for name in new.column_names:
        if name in key:
            continue
        if name not in old.column_names:
            return np.ones(new.num_rows, dtype=bool)
        found |= _column_differs(new[name], old[name])
    return found


def _column_differs(new: pa.ChunkedArray, old: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    try:
        if new.type != old.type:
            raise pa.ArrowNotImplementedError
        same = pc.equal(new, old)
        if pa.types.is_floating(new.type):
            same = pc.or_(same, pc.and_(pc.is_nan(new), pc.is_nan(old)))
    except pa.ArrowNotImplementedError:  # a nested type, or another one than before
        pairs = zip(new.to_pylist(), old.to_pylist(), strict=True)
        return np.fromiter((one != other for one, other in pairs), dtype=bool, count=len(new))
    same = pc.if_else(pc.and_(pc.is_null(new), pc.is_null(old)), True, pc.fill_null(same, False))
    found: npt.NDArray[np.bool_] = ~same.combine_chunks().to_numpy(zero_copy_only=False).astype(bool)
    return found
