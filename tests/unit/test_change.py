"""Changes of routing tables: applied to the table before, a difference gives the table after, and to no other."""

import pickle

import numpy as np
import pytest
from builders import rings, same_table, seeds, tables
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ProtocolError
from dpa.routing.change import TableChange
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable, Spread


def positions(*some: int) -> np.ndarray:
    return np.array(some, dtype=np.uint32)


def table_of(of_token: dict[int, int], *, epoch: int = 0, spreads: tuple[Spread, ...] = ()) -> RoutingTable:
    """A table of three reducers with these places, by position."""
    places = np.array([of_token[position] for position in sorted(of_token)], dtype=np.int32)
    return RoutingTable(epoch, positions(*sorted(of_token)), places, 3, 0, spreads)


@given(tables(epoch=4), tables(epoch=5), st.lists(seeds, max_size=30))
def test_what_lies_between_two_tables_makes_the_second_of_the_first(
    old: RoutingTable, new: RoutingTable, some: list[int]
) -> None:
    made = pickle.loads(pickle.dumps(TableChange.between(old, new))).apply(old)
    assert same_table(made, new)
    hashes = np.concatenate([np.array(some, dtype=np.uint32), old.positions, new.positions])
    assert made.owners_of(hashes).tolist() == new.owners_of(hashes).tolist()


@given(tables(epoch=4), tables(epoch=5))
def test_a_change_names_no_token_that_stays_where_it_is(old: RoutingTable, new: RoutingTable) -> None:
    change = TableChange.between(old, new)
    before = dict(zip(old.positions.tolist(), old.places.tolist(), strict=True))
    after = dict(zip(new.positions.tolist(), new.places.tolist(), strict=True))
    assert change.dropped.tolist() == sorted(before.keys() - after.keys())
    assert change.positions.tolist() == sorted(at for at, place in after.items() if before.get(at) != place)
    assert change.tokens == len(change.dropped) + len(change.positions)


@given(tables(epoch=4))
def test_between_equal_tables_there_is_nothing_but_the_number(table: RoutingTable) -> None:
    same = table_with_epoch(table, 5)
    change = TableChange.between(table, same)
    assert (change.epoch, change.tokens) == (5, 0)
    assert same_table(change.apply(table), same)


def table_with_epoch(table: RoutingTable, epoch: int) -> RoutingTable:
    return RoutingTable(epoch, table.positions, table.places, table.reducers, table.seed, table.spreads)


@pytest.mark.parametrize("held", [0, 1, 3, 7])
def test_a_change_does_not_fit_any_other_table_than_the_one_before(held: int) -> None:
    change = TableChange(3, positions(), positions(5), np.array([1], dtype=np.int32))
    with pytest.raises(ProtocolError, match=f"the change to table 3 does not fit table {held}"):
        change.apply(table_of({5: 0}, epoch=held))


@pytest.mark.parametrize("edge", [0, 2**32 - 1])
def test_tokens_at_the_ends_of_the_circle_come_change_and_go(edge: int) -> None:
    steps = [{9: 0}, {9: 0, edge: 1}, {9: 0, edge: 2}, {edge: 2}, {7: 1}]
    held = table_of(steps[0])
    for epoch, step in enumerate(steps[1:], 1):
        wanted = table_of(step, epoch=epoch)
        held = TableChange.between(held, wanted).apply(held)
        assert same_table(held, wanted)


def test_a_change_leaves_the_table_it_was_applied_to_as_it_was() -> None:
    old = table_of({5: 0, 9: 1})
    TableChange.of(old, {5: 2, 7: 1}, (), positions(9)).apply(old)
    assert same_table(old, table_of({5: 0, 9: 1}))


# --- changes made by hand


def test_a_change_of_some_tokens_puts_them_where_it_says_and_leaves_the_others() -> None:
    spread = Spread((2, 0), (0.5, 0.5), (1.0, 0.0), since=4)
    change = TableChange.of(table_of({5: 0, 9: 1, 20: 2}, epoch=3), {20: 3, 7: 2}, (spread,), positions(9))
    assert (change.epoch, change.positions.tolist(), change.places.tolist()) == (4, [7, 20], [2, 3])
    made = change.apply(table_of({5: 0, 9: 1, 20: 2}, epoch=3))
    assert same_table(made, table_of({5: 0, 7: 2, 20: 3}, epoch=4, spreads=(spread,)))


def test_a_token_that_is_put_somewhere_stays_though_it_is_named_among_those_that_go() -> None:
    old = table_of({5: 0, 9: 1})
    made = TableChange.of(old, {9: 2}, (), positions(9)).apply(old)
    assert same_table(made, table_of({5: 0, 9: 2}, epoch=1))


def test_tokens_that_go_but_were_never_there_are_passed_over() -> None:
    old = table_of({5: 0, 9: 1})
    made = TableChange.of(old, {}, (), positions(0, 6, 9, 2**32 - 1)).apply(old)
    assert same_table(made, table_of({5: 0}, epoch=1))


def test_the_last_token_cannot_go() -> None:
    old = table_of({5: 0})
    with pytest.raises(ValueError, match="at least one token"):
        TableChange.of(old, {}, (), positions(5)).apply(old)


# --- what rings give


@given(st.integers(2, 5), st.integers(1, 4), seeds, st.data())
def test_halving_drops_half_of_a_nodes_tokens_and_names_nothing_else(nodes, doublings, seed, data) -> None:
    ring, node = TokenRing(nodes, 2**doublings, seed=seed), data.draw(st.integers(0, nodes - 1))
    old = ring.snapshot(0)
    ring.set_tokens(node, 2 ** (doublings - 1))
    change = TableChange.between(old, ring.snapshot(1))
    assert (len(change.dropped), change.positions.tolist()) == (2 ** (doublings - 1), [])
    assert set(old.places[np.isin(old.positions, change.dropped)].tolist()) == {node}


@given(st.integers(2, 5), st.integers(1, 8), seeds, st.data())
def test_doubling_brings_new_tokens_to_all_other_nodes_and_drops_none(nodes, tokens, seed, data) -> None:
    ring, spared = TokenRing(nodes, tokens, seed=seed), data.draw(st.integers(0, nodes - 1))
    old = ring.snapshot(0)
    others = [node for node in range(nodes) if node != spared]
    for node in others:
        ring.set_tokens(node, 2 * tokens)
    change = TableChange.between(old, ring.snapshot(1))
    assert change.dropped.tolist() == []
    assert sorted(change.places.tolist()) == sorted(others * tokens)
    assert not np.isin(change.positions, old.positions).any()


@given(rings(), st.data())
def test_edits_of_a_ring_travel_as_changes(ring: TokenRing, data: st.DataObject) -> None:
    held = ring.snapshot(0)
    for epoch in range(1, 4):
        ring.set_tokens(data.draw(st.integers(0, ring.nodes - 1)), data.draw(st.integers(1, 12)))
        newest = ring.snapshot(epoch)
        held = TableChange.between(held, newest).apply(held)
        assert same_table(held, newest)


def test_where_tokens_of_two_nodes_collide_the_other_node_takes_over_when_the_first_gives_up_its_own() -> None:
    ring = TokenRing(2, 3, token_format="{token}")  # all tokens of node 1 lie where those of node 0 do
    old = ring.snapshot(0)
    ring.set_tokens(0, 1)
    new = ring.snapshot(1)
    change = TableChange.between(old, new)
    assert (len(old.positions), change.dropped.tolist(), change.places.tolist()) == (3, [], [1, 1])
    assert same_table(change.apply(old), new)
