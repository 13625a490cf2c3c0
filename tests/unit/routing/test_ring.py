"""The token ring and its tables: who owns, loses and gains keys, and the edges of the circle."""

import pickle
from dataclasses import replace

import mmh3
import numpy as np
import pytest
from builders import key_array, key_lists, keys, rings, seeds
from hypothesis import given
from hypothesis import strategies as st

from dpa.protocol.restore import renumbered
from dpa.routing.assignment import KeySplit, Single
from dpa.routing.hashing import hash_column, hash_key
from dpa.routing.keys import Key
from dpa.routing.members import MemberChange
from dpa.routing.ring import PAPER_TOKEN_FORMAT, TokenRing
from dpa.routing.table import RoutingTable

MANY = [f"key {number}" for number in range(300)]


def owner_by_definition(ring: TokenRing, key: Key, token_format: str, seed: int) -> int:
    """The owner of the first token clockwise of the key, found by looking at them all."""
    tokens = [
        (mmh3.hash(token_format.format(node=reducer, token=token), seed, signed=False), reducer)
        for reducer in range(ring.reducers)
        for token in range(ring.tokens_of(reducer))
    ]
    hashed = hash_key(key, seed)
    behind = [(position, reducer) for position, reducer in tokens if position > hashed]
    return min(behind or tokens)[1]


@given(st.integers(1, 4), st.integers(1, 5), seeds, keys)
def test_a_key_belongs_to_the_first_token_clockwise(reducers: int, tokens: int, seed: int, key: Key) -> None:
    ring = TokenRing(reducers, tokens, seed=seed)
    assert ring.key_lookup(key) == owner_by_definition(ring, key, "token-{node}-{token}", seed)


def test_a_token_at_the_keys_hash_is_passed_over() -> None:
    ring = TokenRing(3, 4, token_format="{node}-{token}", seed=1)
    for key in (f"{reducer}-{token}" for reducer in range(3) for token in range(4)):
        assert ring.key_lookup(key) == owner_by_definition(ring, key, "{node}-{token}", 1)


@given(st.integers(1, 3), seeds)
def test_of_tokens_at_the_same_place_the_lowest_reducer_owns_what_comes_before(tokens: int, seed: int) -> None:
    ring = TokenRing(3, tokens, token_format="{token}", seed=seed)
    assert {ring.key_lookup(key) for key in MANY} == {0}
    assert ring.shares() == [1.0, 0.0, 0.0]


@given(rings(), st.data())
def test_tokens_move_keys_to_their_own_reducer_or_from_it_only(ring: TokenRing, data: st.DataObject) -> None:
    reducer = data.draw(st.integers(0, ring.reducers - 1))
    before = {key: ring.key_lookup(key) for key in MANY}
    ring.set_tokens(reducer, ring.tokens_of(reducer) + data.draw(st.integers(1, 10)))
    between = {key: ring.key_lookup(key) for key in MANY}
    assert all(between[key] in (owner, reducer) for key, owner in before.items())
    ring.set_tokens(reducer, data.draw(st.integers(1, ring.tokens_of(reducer))))
    assert all(ring.key_lookup(key) == owner for key, owner in between.items() if owner != reducer)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=8), seeds)
def test_only_the_numbers_of_tokens_matter_not_how_they_came_about(edits: list[tuple[int, int]], seed: int) -> None:
    edited, direct = TokenRing(3, 5, seed=seed), TokenRing(3, 1, seed=seed)
    for reducer, count in edits:
        edited.set_tokens(reducer, count)
    for reducer in reversed(range(3)):
        direct.set_tokens(reducer, edited.tokens_of(reducer))
    assert edited.snapshot(0).positions.tolist() == direct.snapshot(0).positions.tolist()
    assert edited.snapshot(0).sole_owners.tolist() == direct.snapshot(0).sole_owners.tolist()


def test_a_share_is_what_a_reducer_gets_of_many_keys() -> None:
    ring = TokenRing(4, 8)
    owners = [ring.key_lookup(number) for number in range(20_000)]
    assert [owners.count(reducer) / 20_000 for reducer in range(4)] == pytest.approx(ring.shares(), abs=0.015)


@pytest.mark.parametrize(("reducers", "tokens"), [(0, 1), (1, 0), (-1, 3)])
def test_a_ring_needs_a_reducer_and_each_reducer_a_token(reducers: int, tokens: int) -> None:
    with pytest.raises(ValueError, match="at least one reducer with one token"):
        TokenRing(reducers, tokens)
    with pytest.raises(ValueError, match="reducer 1 must keep at least one token, not 0"):
        TokenRing(2, 4).set_tokens(1, 0)


@pytest.mark.parametrize("token_format", [PAPER_TOKEN_FORMAT, "{token} of {node}"])
def test_a_ring_is_found_again_from_its_table_by_whoever_knows_how_its_tokens_are_named(token_format: str) -> None:
    ring = TokenRing(4, 8, token_format=token_format, seed=5)
    ring.set_tokens(1, 3)
    ring.change_members(MemberChange(joins=(5,), leaves=(0,), replaces=((2, 4),)))
    for _ in range(2):  # the second time, tasks have other numbers than the nodes after which their tokens are named
        table = renumbered(ring.snapshot(3))
        found = TokenRing.of(table, token_format)
        assert found is not None and found.members == (0, 1, 2, 3)
        ring = found.change_members(MemberChange(joins=(4, 5)))
        for joined in (4, 5):
            assert ring.tokens_of(joined) == 8
        assert len(ring.snapshot(0).positions) == len(table.positions) + 16, "those that join have tokens of their own"
        ring.change_members(MemberChange(leaves=(4, 5)))
        ring = TokenRing.of(renumbered(ring.snapshot(0)), token_format) or ring
    assert TokenRing.of(table, "{token}/{node}") is None
    assigned = table.assigned.copy()
    assigned[0] = (assigned[0] + 1) % 4
    assert TokenRing.of(replace(table, assigned=assigned), token_format) is None


def table_of(positions: list[int], owners: list[int]) -> RoutingTable:
    return RoutingTable.unsplit(3, np.array(positions, np.uint32), np.array(owners, np.int32), 2)


@given(rings(), key_lists(), st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_a_table_answers_as_its_ring_whatever_the_keys_and_edits_and_for_many_as_for_each(
    ring: TokenRing, some: list[Key], more: list[int]
) -> None:
    table = ring.snapshot(1)
    expected = [ring.key_lookup(key) for key in some]
    assert [table.key_lookup(key) for key in some] == expected
    assert table.owners_of(hash_column(key_array(some), table.seed)).tolist() == expected
    assert sum(ring.shares()) == pytest.approx(1.0)
    assert all(share > 0 for share in ring.shares())
    edges = [*table.positions.astype(np.int64), *more, *(arc << 16 for arc in range(0, 2**16, 7))]
    around = [edge + step for edge in edges for step in (-1, 0, 1) if 0 <= edge + step < 2**32]
    hashes = np.array([*around, 0, 2**32 - 1], dtype=np.uint32)
    one_by_one = [table.owners_of(few) for few in np.array_split(hashes, 100)]
    assert table.owners_of(hashes).tolist() == np.concatenate(one_by_one).tolist()


def test_a_hash_at_a_token_goes_on_to_the_next_and_past_the_last_to_the_first() -> None:
    hashes = np.array([0, 9, 10, 19, 20, 2**31, 2**32 - 1], np.uint32)
    assert table_of([10, 20], [0, 1]).owners_of(hashes).tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert table_of([10], [1]).owners_of(hashes).tolist() == [1] * 7
    assert table_of([10], [1]).owners_of(hashes[:0]).tolist() == []


def test_a_table_that_was_sent_answers_as_before_and_cannot_be_changed_nor_does_it_with_its_ring() -> None:
    ring = TokenRing(3, 4, seed=9)
    table = ring.snapshot(2)
    before = [table.key_lookup(number) for number in range(50)]
    ring.set_tokens(0, 1)
    arrived = pickle.loads(pickle.dumps(table))
    assert (arrived.version, arrived.reducers, arrived.seed) == (2, 3, 9)
    for each in (table, arrived):
        assert [each.key_lookup(number) for number in range(50)] == before
        for array in (each.positions, each.assigned):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


@pytest.mark.parametrize(("positions", "owners"), [([], []), ([1, 2], [0])])
def test_a_table_needs_a_token_and_an_assignment_for_each(positions: list[int], owners: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one token, and an assignment for each"):
        table_of(positions, owners)
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
