"""Moves between two routing tables: exactly the pairs of reducers between which some hash changes its owner."""

from __future__ import annotations

import numpy as np
import pytest
from builders import rings, seeds, tables
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ProtocolError
from dpa.routing.members import moves
from dpa.routing.table import RoutingTable

MANY = np.random.default_rng(0).integers(0, 2**32, 2_000, dtype=np.uint32)


def owner_pairs(old: RoutingTable, new: RoutingTable, hashes: np.ndarray) -> set[tuple[int, int]]:
    """The owners before and after of these hashes, where they differ."""
    pairs = zip(old.owners_of(hashes).tolist(), new.owners_of(hashes).tolist(), strict=True)
    return {(before, after) for before, after in pairs if before != after}


@given(before=rings(), after=rings(), more=st.lists(seeds, max_size=20))
def test_ranges_move_between_those_that_a_hash_of_either_table_moves_between(before, after, more) -> None:
    reducers = max(before.reducers, after.reducers)
    old, new = (
        RoutingTable.unsplit(version, table.positions, table.sole_owners, reducers)
        for version, table in enumerate((before.snapshot(0), after.snapshot(1)))
    )
    beside = np.concatenate([old.positions, new.positions, old.positions - np.uint32(1), new.positions - np.uint32(1)])
    found = moves(old, new)
    assert owner_pairs(old, new, np.concatenate([MANY, np.array(more, dtype=np.uint32)])) <= found
    assert owner_pairs(old, new, beside) == found


@given(ring=rings())
def test_nothing_moves_between_equal_tables(ring) -> None:
    assert moves(ring.snapshot(0), ring.snapshot(1)) == frozenset()


@given(table=tables().filter(lambda table: bool(table.splits)))
def test_a_table_that_splits_keys_is_refused(table: RoutingTable) -> None:
    whole = RoutingTable.unsplit(0, table.positions, np.zeros(len(table.positions), np.int32), table.reducers)
    for old, new in ((whole, table), (table, whole)):
        with pytest.raises(ProtocolError, match="table 9 splits keys of a stage whose states migrate"):
            moves(old, new)
