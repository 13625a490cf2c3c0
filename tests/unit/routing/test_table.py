"""Routing tables: what the ring says, frozen, and the same for columns, for single keys and in every process."""

import pickle

import numpy as np
import pytest
from builders import key_array, key_lists, rings, table_giving
from hypothesis import given
from hypothesis import strategies as st

from dpa.routing.assignment import KeySplit, Single
from dpa.routing.hashing import hash_column, hash_key
from dpa.routing.keys import Key
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable


def table_of(positions: list[int], owners: list[int]) -> RoutingTable:
    return RoutingTable.unsplit(3, np.array(positions, np.uint32), np.array(owners, np.int32), 2)


@given(rings(), key_lists())
def test_a_table_answers_as_its_ring_whatever_the_keys_and_edits(ring: TokenRing, some: list[Key]) -> None:
    table = ring.snapshot(1)
    expected = [ring.key_lookup(key) for key in some]
    assert [table.key_lookup(key) for key in some] == expected
    assert table.owners_of(hash_column(key_array(some), table.seed)).tolist() == expected


@pytest.mark.parametrize(("hashed", "owner"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 0), (2**31, 0), (2**32 - 1, 0)])
def test_a_hash_at_a_token_goes_on_to_the_next_and_past_the_last_to_the_first(hashed: int, owner: int) -> None:
    assert table_of([10, 20], [0, 1]).owners_of(np.array([hashed], np.uint32)).tolist() == [owner]


@given(rings(), st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_a_large_column_is_looked_up_as_its_hashes_one_by_one(ring: TokenRing, some: list[int]) -> None:
    table = ring.snapshot(0)
    edges = [*table.positions.astype(np.int64), *some, *(arc << 16 for arc in range(0, 2**16, 7))]
    around = [edge + step for edge in edges for step in (-1, 0, 1) if 0 <= edge + step < 2**32]
    hashes = np.array([*around, 0, 2**32 - 1], dtype=np.uint32)
    one_by_one = [table.owners_of(few) for few in np.array_split(hashes, 100)]
    assert table.owners_of(hashes).tolist() == np.concatenate(one_by_one).tolist()


def test_one_token_owns_the_whole_circle() -> None:
    hashes = np.array([0, 4, 5, 6, 2**32 - 1], np.uint32)
    assert table_of([5], [1]).owners_of(hashes).tolist() == [1] * 5


def test_no_hashes_have_no_owners() -> None:
    assert table_of([5], [1]).owners_of(np.zeros(0, np.uint32)).tolist() == []


def test_a_table_that_was_sent_answers_as_before() -> None:
    table = TokenRing(3, 4, seed=9).snapshot(2)
    arrived = pickle.loads(pickle.dumps(table))
    assert (arrived.version, arrived.reducers, arrived.seed) == (2, 3, 9)
    assert [arrived.key_lookup(number) for number in range(50)] == [table.key_lookup(number) for number in range(50)]


def test_a_table_stays_as_it_was_when_its_ring_changes() -> None:
    ring = TokenRing(2, 4)
    table = ring.snapshot(0)
    before = [table.key_lookup(number) for number in range(50)]
    ring.set_tokens(0, 1)
    assert [table.key_lookup(number) for number in range(50)] == before


@pytest.mark.parametrize("sent", [False, True])
def test_a_table_cannot_be_changed(sent: bool) -> None:
    table = table_of([10, 20], [0, 1])
    if sent:
        table = pickle.loads(pickle.dumps(table))
    for array in (table.positions, table.assigned):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(("positions", "owners"), [([], []), ([1, 2], [0])])
def test_a_table_needs_a_token_and_an_assignment_for_each(positions: list[int], owners: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one token, and an assignment for each"):
        table_of(positions, owners)


def test_a_table_needs_each_assignment_once() -> None:
    with pytest.raises(ValueError, match="each assignment once"):
        RoutingTable(0, np.array([5], np.uint32), np.array([0], np.int32), (Single(1), Single(1)), 2)


def test_a_table_may_number_its_assignments_in_any_order_and_have_more_than_it_uses() -> None:
    split = KeySplit((1, 0), (0.5, 0.5), (1.0, 0.0), since=3)
    table = RoutingTable(
        3, np.array([10, 20, 30], np.uint32), np.array([1, 0, 3], np.int32), (Single(2), split, Single(0), Single(1)), 3
    )
    assert table.owners_of(np.array([5, 15, 25], np.uint32)).tolist() == [1, 2, 1]
    assert [owner if owner >= 0 else None for owner in table.sole_owners.tolist()] == [None, 2, 1]
    assert table.splits == {0: split}
    assert [table.assignment_of(hashed) for hashed in (5, 15, 25)] == [split, Single(2), Single(1)]


def test_the_tables_of_these_tests_give_keys_as_asked() -> None:
    wanted = {"a": 2, "b": 0, None: 1, 7: 2}
    table = table_giving(wanted, seed=5)
    assert {key: table.key_lookup(key) for key in wanted} == wanted
    assert hash_key("a", 5) + 1 in table.positions
