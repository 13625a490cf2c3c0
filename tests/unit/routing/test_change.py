"""Changes of routing tables: applied to the table before, a difference gives the table after, and to no other."""

import pickle

import numpy as np
import pytest
from builders import assignments_of, same_table, seeds, tables
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ProtocolError
from dpa.routing.assignment import Assignment, KeySplit, Single
from dpa.routing.change import TableChange
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable


def positions(*some: int) -> np.ndarray:
    return np.array(some, dtype=np.uint32)


SPLIT = KeySplit((2, 0), (0.5, 0.5), (1.0, 0.0), since=4)


def assign(of_token: dict[int, int | KeySplit]) -> dict[int, Assignment]:
    return {at: one if isinstance(one, KeySplit) else Single(one) for at, one in of_token.items()}


def table_of(of_token: dict[int, int | KeySplit], *, version: int = 0) -> RoutingTable:
    """A table of three reducers with these assignments, by position."""
    found = assign(of_token)
    known = tuple(dict.fromkeys(found.values()))
    assigned = np.array([known.index(found[position]) for position in sorted(found)], dtype=np.int32)
    return RoutingTable(version, positions(*sorted(found)), assigned, known, 3)


@given(tables(version=4), tables(version=5), st.lists(seeds, max_size=30))
def test_what_lies_between_two_tables_makes_the_second_of_the_first(
    old: RoutingTable, new: RoutingTable, some: list[int]
) -> None:
    change = TableChange.between(old, new)
    made = pickle.loads(pickle.dumps(change)).apply(old)
    assert same_table(made, new)
    hashes = np.concatenate([np.array(some, dtype=np.uint32), old.positions, new.positions])
    assert made.owners_of(hashes).tolist() == new.owners_of(hashes).tolist()
    before = dict(zip(old.positions.tolist(), assignments_of(old), strict=True))
    after = dict(zip(new.positions.tolist(), assignments_of(new), strict=True))
    assert change.dropped.tolist() == sorted(before.keys() - after.keys())
    assert change.positions.tolist() == sorted(at for at, one in after.items() if before.get(at) != one)
    assert set(change.assignments) == {after[at] for at in change.positions.tolist()}


def test_a_change_does_not_fit_any_other_table_than_the_one_before() -> None:
    change = TableChange(3, positions(), positions(5), np.array([0], dtype=np.int32), (Single(1),))
    for held in (0, 1, 3, 7):
        with pytest.raises(ProtocolError, match=f"the change to table 3 does not fit table {held}"):
            change.apply(table_of({5: 0}, version=held))


@pytest.mark.parametrize("edge", [0, 2**32 - 1])
def test_tokens_at_the_ends_of_the_circle_come_change_and_go(edge: int) -> None:
    steps = [{9: 0}, {9: 0, edge: 1}, {9: 0, edge: 2}, {edge: 2}, {7: 1}]
    held = table_of(steps[0])
    for version, step in enumerate(steps[1:], 1):
        wanted = table_of(step, version=version)
        held = TableChange.between(held, wanted).apply(held)
        assert same_table(held, wanted)


def test_a_change_of_some_tokens_puts_them_where_it_says_and_leaves_the_others() -> None:
    old = table_of({5: 0, 9: 1, 20: 2}, version=3)
    change = TableChange.of(old, assign({20: SPLIT, 7: 2}), positions(9))
    assert (change.version, change.positions.tolist()) == (4, [7, 20])
    assert [change.assignments[number] for number in change.assigned] == [Single(2), SPLIT]
    assert same_table(change.apply(old), table_of({5: 0, 7: 2, 20: SPLIT}, version=4))
    assert same_table(old, table_of({5: 0, 9: 1, 20: 2}, version=3))


def test_tokens_that_go_may_never_have_been_there_but_one_stays_and_so_does_one_that_is_put_somewhere() -> None:
    old = table_of({5: 0, 9: 1})
    made = TableChange.of(old, assign({9: 2}), positions(9)).apply(old)
    assert same_table(made, table_of({5: 0, 9: 2}, version=1))
    made = TableChange.of(old, {}, positions(0, 6, 9, 2**32 - 1)).apply(old)
    assert same_table(made, table_of({5: 0}, version=1))
    with pytest.raises(ValueError, match="at least one token"):
        TableChange.of(made, {}, positions(5)).apply(made)


def test_a_split_that_nothing_has_any_more_is_dropped() -> None:
    held = table_of({5: 1, 9: SPLIT})
    held = TableChange.of(held, assign({9: 2})).apply(held)
    assert set(held.assignments) == {Single(1), Single(2)}


def test_where_tokens_of_two_reducers_collide_the_other_reducer_takes_over_when_the_first_gives_up_its_own() -> None:
    ring = TokenRing(2, 3, token_format="{token}")  # all tokens of reducer 1 lie where those of reducer 0 do
    old = ring.snapshot(0)
    ring.set_tokens(0, 1)
    new = ring.snapshot(1)
    change = TableChange.between(old, new)
    owners = [change.assignments[number].reducers[0] for number in change.assigned.tolist()]
    assert (len(old.positions), change.dropped.tolist(), owners) == (3, [], [1, 1])
    assert same_table(change.apply(old), new)
