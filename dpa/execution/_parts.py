"""Joins parts of states, divides them by the hashes of their keys, and handles keys whose last part is a window."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.errors import ExecutorError
from dpa.execution.keys import cast
from dpa.execution.states import P, StatePart
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, within
from dpa.routing.keys import one_type
from dpa.routing.table import Owners, Owning, RoutingTable
from dpa.windows.options import WINDOW
from dpa.windows.times import Times

_OF_WINDOW = len(WINDOW)  # components of a key that are its window: start and end

CHANGED = (
    "a function between the window and the step by key has changed them: have it keep `window_start` and `window_end`"
)

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
