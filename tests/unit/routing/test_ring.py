"""The token ring: one owner a key, who loses and gains keys when tokens come and go, and the edges of the circle."""

import itertools
from dataclasses import replace

import mmh3
import pytest
from builders import keys, rings, seeds
from hypothesis import given
from hypothesis import strategies as st

from dpa.protocol.restore import renumbered
from dpa.routing.hashing import hash_key
from dpa.routing.keys import Key
from dpa.routing.members import MemberChange
from dpa.routing.ring import PAPER_TOKEN_FORMAT, TokenRing

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


@pytest.mark.parametrize(("reducer", "token"), list(itertools.product(range(3), range(4))))
def test_a_token_at_the_keys_hash_is_passed_over(reducer: int, token: int) -> None:
    ring = TokenRing(3, 4, token_format="{node}-{token}", seed=1)
    key = f"{reducer}-{token}"
    assert ring.key_lookup(key) == owner_by_definition(ring, key, "{node}-{token}", 1)


@given(st.integers(1, 3), seeds)
def test_of_tokens_at_the_same_place_the_lowest_reducer_owns_what_comes_before(tokens: int, seed: int) -> None:
    ring = TokenRing(3, tokens, token_format="{token}", seed=seed)
    assert {ring.key_lookup(key) for key in MANY} == {0}
    assert ring.shares() == [1.0, 0.0, 0.0]


@given(rings(), st.data())
def test_tokens_that_come_move_keys_to_their_own_reducer_only(ring: TokenRing, data: st.DataObject) -> None:
    reducer = data.draw(st.integers(0, ring.reducers - 1))
    before = {key: ring.key_lookup(key) for key in MANY}
    ring.set_tokens(reducer, ring.tokens_of(reducer) + data.draw(st.integers(1, 10)))
    assert all(ring.key_lookup(key) in (owner, reducer) for key, owner in before.items())


@given(rings(), st.data())
def test_tokens_that_go_move_keys_of_their_own_reducer_only(ring: TokenRing, data: st.DataObject) -> None:
    reducer = data.draw(st.integers(0, ring.reducers - 1))
    before = {key: ring.key_lookup(key) for key in MANY}
    ring.set_tokens(reducer, data.draw(st.integers(1, ring.tokens_of(reducer))))
    assert all(ring.key_lookup(key) == owner for key, owner in before.items() if owner != reducer)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=8), seeds)
def test_only_the_numbers_of_tokens_matter_not_how_they_came_about(edits: list[tuple[int, int]], seed: int) -> None:
    edited, direct = TokenRing(3, 5, seed=seed), TokenRing(3, 1, seed=seed)
    for reducer, count in edits:
        edited.set_tokens(reducer, count)
    for reducer in reversed(range(3)):
        direct.set_tokens(reducer, edited.tokens_of(reducer))
    assert edited.snapshot(0).positions.tolist() == direct.snapshot(0).positions.tolist()
    assert edited.snapshot(0).sole_owners.tolist() == direct.snapshot(0).sole_owners.tolist()


@given(rings())
def test_shares_add_up_to_the_whole_circle(ring: TokenRing) -> None:
    assert sum(ring.shares()) == pytest.approx(1.0)
    assert all(share > 0 for share in ring.shares())


def test_a_share_is_what_a_reducer_gets_of_many_keys() -> None:
    ring = TokenRing(4, 8)
    owners = [ring.key_lookup(number) for number in range(20_000)]
    assert [owners.count(reducer) / 20_000 for reducer in range(4)] == pytest.approx(ring.shares(), abs=0.015)


@pytest.mark.parametrize(("reducers", "tokens"), [(0, 1), (1, 0), (-1, 3)])
def test_a_ring_needs_a_reducer_with_a_token(reducers: int, tokens: int) -> None:
    with pytest.raises(ValueError, match="at least one reducer with one token"):
        TokenRing(reducers, tokens)


def test_a_reducer_keeps_at_least_one_token() -> None:
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
