"""States that move in pieces: intervals of the hashes of their keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.hashing import ALL_HASHES, Hashes, Interval, within
from dpa.routing.table import Owners, Owning, RoutingTable

_COLUMN_PIECES = 16
"""Most pieces of states that are columns: to take one out, all are looked at."""


def intervals(hashes: Hashes, records: npt.NDArray[np.int64], most: int) -> list[Interval]:
    """Intervals that together have all hashes, with about `most` keys each, those with most records first. `hashes` are
    in any order; `records`: of each key."""
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
    """The same of the keys that a table does not give to task `keep`, in fewer pieces."""
    gone = table.owners_of(hashes) != keep
    return intervals(hashes[gone], records[gone], max(most, -(-int(gone.sum()) // _COLUMN_PIECES)))


def owners_within(table: Owning, hashes: Hashes, keep: int, interval: Interval) -> Owners:
    """The owner of each key by a table, shape (keys,); outside of the interval it is task `keep`."""
    owners = table.owners_of(hashes)
    return owners if interval == ALL_HASHES else np.where(within(hashes, interval), owners, np.int32(keep))
