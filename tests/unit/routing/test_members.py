"""Reducers that join, leave, and take the places of others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.options import AdaptiveOptions, BalanceOptions, DoublingOptions, HalvingOptions
from dpa.balance.policy import BalancedStage
from dpa.errors import ProtocolError
from dpa.routing.assignment import KeySplit, Single
from dpa.routing.change import TableChange
from dpa.routing.groupings.options import BY_KIND, KINDS
from dpa.routing.members import MemberChange, left_by, with_members
from dpa.routing.table import RoutingTable

HASHES = np.random.default_rng(0).integers(0, 2**32, 4_000, dtype=np.uint32)
POLICIES: list[BalanceOptions] = [AdaptiveOptions(), HalvingOptions(), DoublingOptions()]


def table_of(members: int, **options: int) -> RoutingTable:
    return AdaptiveOptions(**options).ring(members).snapshot(0)


def joined(table: RoutingTable, *new: int) -> RoutingTable:
    tokens = {reducer: AdaptiveOptions().positions(reducer) for reducer in new}
    return with_members(table, MemberChange(joins=new), tokens)


@pytest.mark.parametrize("options", POLICIES, ids=lambda options: options.strategy)
def test_a_policy_lets_reducers_join_leave_and_be_replaced(options: BalanceOptions) -> None:
    policy = options.policy(BalancedStage(3))
    policy.change_members(MemberChange(joins=(3,)))
    before = policy.table
    assert before.members == (0, 1, 2, 3) and np.any(before.owners_of(HASHES) == 3)
    policy.change_members(MemberChange(replaces=((1, 4),)))
    after = policy.table
    assert after.members == (0, 4, 2, 3)
    expected = np.where(before.owners_of(HASHES) == 1, 4, before.owners_of(HASHES))
    np.testing.assert_array_equal(after.owners_of(HASHES), expected)
    policy.change_members(MemberChange(leaves=(0, 4)))
    stay = np.isin(after.owners_of(HASHES), [2, 3])
    assert (policy.table.version, policy.table.members, policy.table.reducers) == (3, (2, 3), 5)
    assert set(policy.table.owners_of(HASHES).tolist()) == {2, 3}
    np.testing.assert_array_equal(policy.table.owners_of(HASHES[stay]), after.owners_of(HASHES[stay]))


@given(st.integers(1, 6), st.integers(1, 4))
def test_who_joins_takes_a_fair_part_and_others_get_nothing(members: int, new: int) -> None:
    before = table_of(members)
    after = joined(before, *range(members, members + new))
    moved = before.owners_of(HASHES) != after.owners_of(HASHES)
    assert np.all(after.owners_of(HASHES[moved]) >= members)
    assert 0.3 * new / (members + new) < moved.mean() < 2 * new / (members + new)


@given(st.integers(2, 6), st.data())
def test_a_change_travels_as_a_difference(members: int, data: st.DataObject) -> None:
    before = table_of(members)
    going = data.draw(st.sets(st.integers(0, members - 1), max_size=members - 1))
    after = with_members(before, MemberChange(leaves=tuple(sorted(going))), {})
    received = TableChange.between(before, after).apply(before)
    np.testing.assert_array_equal(received.owners_of(HASHES), after.owners_of(HASHES))
    assert (received.members, received.reducers) == (after.members, after.reducers)
    assert left_by(before, after) == frozenset(going)


def split(table: RoutingTable, *reducers: int) -> RoutingTable:
    """The next table, in which an arc is split evenly over these reducers."""
    shares = tuple(1 / len(reducers) for _ in reducers)
    of_each = KeySplit(reducers, shares, shares, table.version + 1)
    return TableChange.of(table, {int(table.positions[5]): of_each}).apply(table)


@pytest.mark.parametrize(
    ("reducers", "change", "left"),
    [
        ((0, 1), MemberChange(leaves=(1,)), (0,)),
        ((0, 1, 2), MemberChange(leaves=(1,)), (0, 2)),
        ((1, 2), MemberChange(replaces=((1, 3),)), (3, 2)),
        ((0, 1, 2), MemberChange(joins=(3,)), (0, 1, 2, 3)),
        ((0, 1), MemberChange(joins=(3,)), (0, 1)),
    ],
)
def test_a_split_key_stays_with_those_that_stay(
    reducers: tuple[int, ...], change: MemberChange, left: tuple[int, ...]
) -> None:
    before = split(table_of(3), *reducers)
    tokens = {reducer: AdaptiveOptions().positions(reducer) for reducer in change.joins}
    after = with_members(before, change, tokens)
    found = after.assignment_of(int(before.positions[5]) - 1)
    assert found.reducers == left
    if isinstance(found, KeySplit):
        assert sum(found.weights) == pytest.approx(1.0)
    else:
        assert isinstance(found, Single)


def test_all_may_leave_while_others_join() -> None:
    before = split(table_of(2), 0, 1)
    tokens = {reducer: AdaptiveOptions().positions(reducer) for reducer in (2, 3)}
    after = with_members(before, MemberChange(leaves=(0, 1), joins=(2, 3)), tokens)
    assert after.members == (2, 3) and set(after.owners_of(HASHES).tolist()) == {2, 3}


@pytest.mark.parametrize(
    "change",
    [
        MemberChange(joins=(5,)),
        MemberChange(leaves=(3,)),
        MemberChange(leaves=(0, 1, 2)),
        MemberChange(replaces=((0, 4),)),
    ],
)
def test_a_change_that_does_not_fit_is_an_error(change: MemberChange) -> None:
    with pytest.raises(ProtocolError):
        with_members(table_of(3), change, {5: HASHES[:2]})


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ring"])
def test_every_other_grouping_chooses_among_members_by_their_place(kind: str) -> None:
    """Who takes a place gets the same records as whose place it was."""
    before = table_of(3)
    after = with_members(before, MemberChange(replaces=((1, 3),)), {})
    first, second = (BY_KIND[kind]().create(table, 0) for table in (before, after))
    chosen, replaced = first.choose(HASHES), second.choose(HASHES)
    np.testing.assert_array_equal(replaced, np.where(chosen == 1, 3, chosen))
    assert not np.any(second.may_process(1, HASHES)) and np.all(second.may_process(3, HASHES[replaced == 3]))


@pytest.mark.parametrize("options", POLICIES, ids=lambda options: options.strategy)
def test_tables_do_not_grow_with_the_reducers_that_there_have_been(options: BalanceOptions) -> None:
    policy, sizes = options.policy(BalancedStage(3)), []
    for number in range(3, 63, 2):
        policy.change_members(MemberChange(joins=(number,)))
        policy.change_members(MemberChange(replaces=((number, number + 1),)))
        policy.change_members(MemberChange(leaves=(number + 1,)))
        sizes.append(len(policy.table.positions) + len(policy.table.assignments))
    assert policy.table.reducers == 63 and sizes[-1] <= sizes[0]


def test_who_leaves_takes_no_key_of_others_with_it_where_arcs_become_one() -> None:
    before = joined(table_of(3), 3, 4)
    after = with_members(before, MemberChange(leaves=(1, 3)), {})
    owners, stay = before.owners_of(HASHES), np.isin(before.owners_of(HASHES), (0, 2, 4))
    assert len(after.positions) < len(before.positions)
    np.testing.assert_array_equal(after.owners_of(HASHES[stay]), owners[stay])
    following = np.array([_next_owner(before, int(hashed), {0, 2, 4}) for hashed in HASHES[:200]])
    np.testing.assert_array_equal(after.owners_of(HASHES[:200]), following)


def _next_owner(table: RoutingTable, hashed: int, stay: set[int]) -> int:
    """The first on the circle that stays, from a hash on."""
    behind = sorted(zip(table.positions.tolist(), table.sole_owners.tolist(), strict=True))
    in_order = [owner for position, owner in behind if position > hashed] + [owner for _, owner in behind]
    return next(owner for owner in in_order if owner in stay)
