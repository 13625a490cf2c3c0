"""Who gives ranges of the hash circle to whom, between a routing table and the next."""

from __future__ import annotations

import numpy as np

from dpa.errors import ProtocolError
from dpa.routing.members import left_by
from dpa.routing.table import RoutingTable

Moves = frozenset[tuple[int, int]]
"""Pairs of reducers: the first gives ranges to the second."""


def hand_overs(old: RoutingTable, new: RoutingTable) -> Moves:
    """The pairs of reducers of which the first hands something over to the second, where states migrate: those between
    which ranges move; and who leaves without a range hands over to somebody what else it has."""
    pairs = moves(old, new)
    givers = {source for source, _ in pairs}
    return pairs | {(gone, min(new.members)) for gone in left_by(old, new) - givers}


def moves(old: RoutingTable, new: RoutingTable) -> Moves:
    """The pairs of reducers between which ranges move. O(tokens).

    Raises:
        ProtocolError: a table splits a key, whose state would have no one place.
    """
    for table in (old, new):
        if table.splits:
            raise ProtocolError(f"table {table.version} splits keys of a stage whose states migrate")
    last = np.union1d(old.positions, new.positions) - np.uint32(1)  # of each arc that has one owner in both
    before, after = old.owners_of(last), new.owners_of(last)
    moved = before != after
    codes = np.unique(before[moved].astype(np.int64) * new.reducers + after[moved])
    return frozenset(divmod(code, new.reducers) for code in codes.tolist())
