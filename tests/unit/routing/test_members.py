"""Reducers that join, leave, and take the places of others."""

import numpy as np
import pytest
from builders import rings, seeds, tables
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.options import AdaptiveOptions, BalanceOptions, DoublingOptions, HalvingOptions
from dpa.balance.policy import BalancedStage
from dpa.errors import ProtocolError
from dpa.routing.assignment import KeySplit, Single
from dpa.routing.change import TableChange
from dpa.routing.groupings.options import BY_KIND, KINDS
from dpa.routing.members import MemberChange, left_by, moves, with_members
from dpa.routing.table import RoutingTable

HASHES = np.random.default_rng(0).integers(0, 2**32, 4_000, dtype=np.uint32)
POLICIES: list[BalanceOptions] = [AdaptiveOptions(), HalvingOptions(), DoublingOptions()]


def table_of(members: int) -> RoutingTable:
    return AdaptiveOptions().ring(members).snapshot(0)


def changed(table: RoutingTable, change: MemberChange) -> RoutingTable:
    tokens = {reducer: AdaptiveOptions().positions(reducer) for reducer in change.joins}
    return with_members(table, change, tokens)


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
    sizes = []  # tables do not grow with the reducers that there have been
    for number in range(5, 65, 2):
        policy.change_members(MemberChange(joins=(number,)))
        policy.change_members(MemberChange(replaces=((number, number + 1),)))
        policy.change_members(MemberChange(leaves=(number + 1,)))
        sizes.append(len(policy.table.positions) + len(policy.table.assignments))
    assert policy.table.reducers == 65 and sizes[-1] <= sizes[0]


@given(st.integers(1, 6), st.integers(1, 4))
def test_who_joins_takes_a_fair_part_and_others_get_nothing(members: int, new: int) -> None:
    before = table_of(members)
    after = changed(before, MemberChange(joins=tuple(range(members, members + new))))
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
def test_a_split_key_stays_with_who_stays(
    reducers: tuple[int, ...], change: MemberChange, left: tuple[int, ...]
) -> None:
    before = split(table_of(3), *reducers)
    found = changed(before, change).assignment_of(int(before.positions[5]) - 1)
    assert found.reducers == left
    assert isinstance(found, Single) or sum(found.weights) == pytest.approx(1.0)


def test_all_may_leave_while_others_join() -> None:
    after = changed(split(table_of(2), 0, 1), MemberChange(leaves=(0, 1), joins=(2, 3)))
    assert after.members == (2, 3) and set(after.owners_of(HASHES).tolist()) == {2, 3}


def test_a_change_that_does_not_fit_is_an_error() -> None:
    for change in (
        MemberChange(joins=(5,)),
        MemberChange(leaves=(3,)),
        MemberChange(leaves=(0, 1, 2)),
        MemberChange(replaces=((0, 4),)),
    ):
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


def test_who_leaves_takes_no_key_of_others_with_it_where_arcs_become_one() -> None:
    before = changed(table_of(3), MemberChange(joins=(3, 4)))
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
    assert moves(old, old) == frozenset()


@given(table=tables().filter(lambda table: bool(table.splits)))
def test_a_table_that_splits_keys_is_refused(table: RoutingTable) -> None:
    whole = RoutingTable.unsplit(0, table.positions, np.zeros(len(table.positions), np.int32), table.reducers)
    for old, new in ((whole, table), (table, whole)):
        with pytest.raises(ProtocolError, match="table 9 splits keys of a stage whose states migrate"):
            moves(old, new)
