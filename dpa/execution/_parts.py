"""Joins parts of states, divides them by the hashes of their keys, and handles keys whose last part is a window; the
stores that keep their states in such parts."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.execution.keys import cast
from dpa.execution.states import K, P, StatePart, States
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, within
from dpa.routing.keys import one_type
from dpa.routing.table import Owners, Owning, RoutingTable
from dpa.windows.options import WINDOW
from dpa.windows.times import Times

_OF_WINDOW = len(WINDOW)  # components of a key that are its window: start and end

CHANGED = (
    "a function between the window and the step by key has changed them: have it keep `window_start` and `window_end`"
)

_FOLD_FROM = 131_072  # the fewest new states that are folded while records come
_COLUMN_PIECES = 16  # most pieces of states in columns: taking one out scans all


def combined(parts: Sequence[P]) -> P:
    if len(parts) == 1:
        return parts[0]
    kind = one_type(part.keys.type for part in parts)
    keys = pa.concat_arrays([cast(part.keys, kind) for part in parts])
    return type(parts[0])(
        keys,
        parts[0].joined(parts),
        np.concatenate([part.records for part in parts]),
        np.concatenate([part.mapped for part in parts]),
        hashes_of(parts),
    )


def hashes_of(parts: Sequence[StatePart]) -> Hashes | None:
    """None if a part has no hashes."""
    hashes = [part.hashes for part in parts if part.hashes is not None]
    return np.concatenate(hashes) if len(hashes) == len(parts) else None


def ends_of(keys: pa.StructArray) -> Times:
    """The end of each key's window, shape (keys,). Raises ExecutorError if user code has changed a window."""
    return _times(keys.flatten()[-1])


def starts_of(keys: pa.StructArray) -> Times:
    return _times(keys.flatten()[-_OF_WINDOW])


def _times(column: pa.Array) -> Times:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_timestamp(column.type) or column.null_count:
        found = "null" if column.null_count else str(column.type)
        raise ExecutorError(f"the columns of a window are timestamps in microseconds, and one is {found}; {CHANGED}")
    times: Times = column.cast(pa.int64()).to_numpy()
    return times


def without_window(keys: pa.StructArray) -> pa.Array:
    """The keys as users see them."""
    own, fields = keys.flatten()[:-_OF_WINDOW], list(keys.type)[:-_OF_WINDOW]
    if not own:
        return pa.nulls(len(keys))
    return own[0] if len(own) == 1 else pa.StructArray.from_arrays(own, fields=fields)


def with_windows(keys: pa.Array, kind: pa.StructType, starts: Times, ends: Times) -> pa.StructArray:
    """`kind`: the type of keys with windows; their own components may be of other types."""
    own = kind.num_fields - _OF_WINDOW
    parts = (keys.flatten() if own > 1 else [keys])[:own]
    window = [pa.array(times, kind[own].type) for times in (starts, ends)]
    return pa.StructArray.from_arrays([*parts, *window], names=[field.name for field in kind])


def intervals(hashes: Hashes, records: npt.NDArray[np.int64], most: int) -> list[Interval]:
    """Intervals that cover all hashes, with about `most` keys each, those with most records first. `hashes`: in any
    order; `records`: of each key."""
    if len(hashes) <= most:
        return [ALL_HASHES]
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    starts = np.unique(np.searchsorted(hashes, hashes[::most]))  # keys of one hash stay together
    sums = np.add.reduceat(records[order], starts)
    first = [0, *hashes[starts[1:]].tolist()]
    last = [*(start - 1 for start in first[1:]), ALL_HASHES[1]]
    return [(first[piece], last[piece]) for piece in np.argsort(-sums, kind="stable").tolist()]


def of_columns(
    hashes: Hashes, records: npt.NDArray[np.int64], table: RoutingTable, keep: int, most: int
) -> list[Interval]:
    """The `intervals` of the keys that a table does not give to task `keep`, at most `_COLUMN_PIECES`."""
    gone = table.owners_of(hashes) != keep
    return intervals(hashes[gone], records[gone], max(most, -(-int(gone.sum()) // _COLUMN_PIECES)))


def owners_within(table: Owning, hashes: Hashes, keep: int, interval: Interval) -> Owners:
    """The owner of each key by a table, shape (keys,); outside of the interval it is task `keep`."""
    owners = table.owners_of(hashes)
    return owners if interval == ALL_HASHES else np.where(within(hashes, interval), owners, np.int32(keep))


class FoldedStates(States[K]):
    """A store with parts of states. When the new ones are twice as many as the folded ones, all are folded into one
    part: so every state is folded a logarithmic number of times, and memory stays within a small multiple of the states
    of distinct keys."""

    def __init__(self) -> None:
        self._parts: list[K] = []
        self._new = self._known = 0

    @abstractmethod
    def _folded(self, parts: Sequence[K]) -> K: ...

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def merge(self, part: K) -> None:
        """Keep a part for the next folding."""
        if not len(part.keys):
            return
        self._parts.append(part)
        self._new += len(part.keys)
        if self._new > max(2 * self._known, _FOLD_FROM):
            self.snapshot()

    def snapshot(self) -> K | None:
        if not self._parts:
            return None
        if self._new or len(self._parts) > 1:
            self._parts = [self._folded(self._parts)]
        self._new, self._known = 0, len(self._parts[0].keys)
        return self._parts[0]

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        whole = self._hashed(table.seed)
        return [ALL_HASHES] if whole is None else of_columns(whole.hashed(table.seed), whole.records, table, keep, most)

    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, K]:
        whole = self._hashed(table.seed)
        if whole is None:
            return {}
        owners = owners_within(table, whole.hashed(table.seed), keep, interval)
        if np.all(owners == keep):
            return {}
        parts = {int(owner): whole.take(np.flatnonzero(owners == owner)) for owner in np.unique(owners)}
        kept = parts.pop(keep, None)
        self._parts, self._known = ([], 0) if kept is None else ([kept], len(kept.keys))
        return parts

    def _hashed(self, seed: int) -> K | None:
        """All parts folded, with the hashes of their keys, which are kept."""
        whole = self.snapshot()
        if whole is not None and whole.hashes is None:
            [whole] = self._parts = [replace(whole, hashes=whole.hashed(seed))]
        return whole
