"""Rebalances of the adaptive strategy, judged by what their tables make of known keys."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_samples import demand_of, loads_of, table_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.balance.adaptive.rebalance import RebalanceOptions, compacted, rebalance
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable

LAST = 2**32 - 1
hashes = st.one_of(st.integers(0, LAST), st.sampled_from([0, 1, LAST - 1, LAST]))
key_loads = st.dictionaries(hashes, st.floats(0.5, 1e6), min_size=1, max_size=30)
speed_lists = st.lists(st.sampled_from([1.0, 2.0, 10.0, 100.0]), min_size=1, max_size=6)


@given(key_loads, speed_lists, st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_known_keys_are_evened_out_to_the_tolerance_and_never_made_worse(
    keys: dict[int, float], speeds: list[float], tokens: int
) -> None:
    table = TokenRing(len(speeds), tokens).snapshot(0)
    base = frozenset(table.positions.tolist())
    plan = rebalance(demand_of(table, keys, speeds), RebalanceOptions(), base=base)
    after = float((loads_of(plan.table, keys) / np.array(speeds)).max())
    assert after == pytest.approx(plan.after, rel=1e-6)
    assert after <= max(plan.mean * 1.05, 0.0) * (1 + 1e-6)
    assert (np.diff(plan.table.positions.astype(np.int64)) > 0).all()
    assert base <= set(plan.table.positions.tolist())
    least = np.maximum(loads_of(table, keys) - plan.mean * np.array(speeds), 0).sum() / sum(keys.values())
    assert plan.moved + plan.split <= least + 1e-6


@given(key_loads, speed_lists)
@settings(max_examples=40, deadline=None)
def test_planning_again_on_the_result_does_nothing(keys: dict[int, float], speeds: list[float]) -> None:
    table = TokenRing(len(speeds), 4).snapshot(0)
    once = rebalance(demand_of(table, keys, speeds), RebalanceOptions())
    assert rebalance(demand_of(once.table, keys, speeds), RebalanceOptions()).steps == ""


@given(key_loads, speed_lists)
@settings(max_examples=40, deadline=None)
def test_without_splitting_no_key_has_two_owners_and_nothing_gets_worse(
    keys: dict[int, float], speeds: list[float]
) -> None:
    table = TokenRing(len(speeds), 4).snapshot(0)
    plan = rebalance(demand_of(table, keys, speeds), RebalanceOptions(may_split=False))
    assert plan.table.splits == {}
    before, after = (loads_of(one, keys) / np.array(speeds) for one in (table, plan.table))
    assert after.max() <= before.max() * (1 + 1e-6)


@pytest.mark.parametrize("where", [0, 1, LAST])
@pytest.mark.parametrize("tokens", [[5], [0, 5], [0, 1, LAST]])
def test_one_key_with_everything_is_split_evenly_wherever_it_lies(where: int, tokens: list[int]) -> None:
    table = table_of(tokens, [0] * len(tokens), 4)
    plan = rebalance(demand_of(table, {where: 100.0}, [1.0] * 4), RebalanceOptions())
    assert loads_of(plan.table, {where: 100.0}).tolist() == pytest.approx([25.0] * 4, rel=0.06)
    assert plan.split == pytest.approx(0.75, abs=0.02)
    [split] = plan.table.splits.values()
    assert split.before == (1.0, 0.0, 0.0, 0.0)


def test_a_donor_that_is_stuck_does_not_keep_its_receiver_from_the_next() -> None:
    """The receiver that a stuck donor was offered was lost to all donors after it."""
    keys = {5: 100.0} | dict.fromkeys(range(100, 160), 1.0)
    table = table_of([10, 200, 300], [0, 1, 2], 3)
    plan = rebalance(demand_of(table, keys, [1.0] * 3), RebalanceOptions(may_split=False))
    assert loads_of(plan.table, keys)[2] >= 4


def split_over_four() -> tuple[RoutingTable, dict[int, float]]:
    table = table_of([10, 11, 20, 30, 40], [0, 0, 1, 2, 3], 4)
    hot = {10: 300.0, 5: 25.0, 15: 25.0, 25: 25.0, 35: 25.0}
    return rebalance(demand_of(table, hot, [1.0] * 4), RebalanceOptions()).table, hot


def test_a_split_that_need_not_change_is_the_same_one_in_the_next_table() -> None:
    table, hot = split_over_four()
    plan = rebalance(demand_of(table, {**hot, 11: 8.0, 12: 8.0, 13: 8.0}, [1.0] * 4), RebalanceOptions(may_split=False))
    assert plan.steps
    [split] = plan.table.splits.values()
    assert [split] == list(table.splits.values())
    assert split.since == 1


def test_a_key_that_is_unsplit_gets_one_owner() -> None:
    table, _ = split_over_four()
    cool = {10: 1.0, 5: 25.0, 15: 25.0, 25: 25.0, 35: 25.0}
    [token] = table.splits
    plan = rebalance(demand_of(table, cool, [1.0] * 4), RebalanceOptions(), unsplit=[token])
    assert plan.table.splits == {}
    assert plan.moved == pytest.approx(0.75 / 101, rel=0.1)


def test_a_key_that_is_split_over_more_reducers_than_it_needs_keeps_fewer() -> None:
    """A key that was unsplit could not be split again, so it kept all of its reducers or one."""
    table, _ = split_over_four()
    cooler = {10: 50.0, 5: 10.0, 15: 40.0, 25: 40.0, 35: 40.0}
    [token] = table.splits
    plan = rebalance(demand_of(table, cooler, [1.0] * 4), RebalanceOptions(), unsplit=[token])
    after = loads_of(plan.table, cooler)
    assert after.max() <= after.mean() * 1.06
    assert all(len(split.reducers) < 4 for split in plan.table.splits.values())


def two_splits(owner_between: int) -> RoutingTable:
    """Keys 10 and 20, each split over reducers 0 and 1."""
    split = KeySplit((0, 1), (0.5, 0.5), (1.0, 0.0), since=1)
    unsplit = table_of([10, 11, 20, 21, 40], [0, 0, owner_between, 0, 1], 2)
    return TableChange.of(unsplit, {11: split, 21: split}).apply(unsplit)


@pytest.mark.parametrize("owner_between", [0, 1])
@pytest.mark.parametrize("first", [10.0, 22.0, 34.0, 54.0])
@pytest.mark.parametrize("second", [10.0, 20.0, 35.0])
def test_two_keys_can_be_unsplit_at_once(owner_between: int, first: float, second: float) -> None:
    """The second was still among the ranges of its reducer as a part, and planning failed, and the job with it."""
    table, keys = two_splits(owner_between), {10: 10.0, 20: second, 5: first, 25: 30.0}
    plan = rebalance(demand_of(table, keys, [1.0] * 2), RebalanceOptions(), unsplit=[1, 3])
    after = loads_of(plan.table, keys)
    assert after.max() == pytest.approx(plan.after)
    assert after.max() <= max(loads_of(table, keys).max(), after.mean() * 1.06)


def test_a_split_key_of_which_one_reducer_is_left_stays_with_it() -> None:
    """Compaction took its arc for idle, and gave the key to the reducer of the next arc."""
    unsplit = table_of([10, 11, 40], [0, 0, 2], 3)
    table = TableChange.of(unsplit, {11: KeySplit((0, 1), (0.5, 0.5), (1.0, 0.0), since=1)}).apply(unsplit)
    keys = {5: 12.0, 10: 12.0, 25: 12.0}
    plan = rebalance(demand_of(table, keys, [1.0] * 3), RebalanceOptions())
    assert plan.table.splits == {}
    assert loads_of(plan.table, keys).tolist() == [12.0, 12.0, 12.0]


def test_only_the_reducer_that_was_named_is_relieved() -> None:
    table = table_of([10, 20, 30, 40], [0, 1, 2, 3], 4)
    keys = {5: 50.0, 6: 50.0, 15: 50.0, 16: 50.0}
    plan = rebalance(demand_of(table, keys, [1.0] * 4), RebalanceOptions(), only=1)
    after = loads_of(plan.table, keys)
    assert after[0] == 100.0
    assert after[1] == pytest.approx(50.0)


def test_no_work_at_all_is_no_reason_for_steps() -> None:
    assert rebalance(demand_of(table_of([10, 20], [0, 1], 2), {5: 0.0}, [1.0, 1.0]), RebalanceOptions()).steps == ""


def test_three_hundred_reducers_are_evened_out() -> None:
    table = TokenRing(300, 4).snapshot(0)
    keys = {int(where): 1.0 for where in np.random.default_rng(1).integers(0, LAST, 600)} | {77: 300.0}
    plan = rebalance(demand_of(table, keys, [1.0] * 300), RebalanceOptions())
    after = loads_of(plan.table, keys)
    assert after.max() <= after.mean() * 1.05 * (1 + 1e-6)


@given(
    st.lists(hashes, min_size=2, max_size=20, unique=True),
    st.lists(st.integers(0, 2), min_size=20, max_size=20),
    key_loads,
)
@settings(max_examples=40, deadline=None)
def test_compaction_drops_tokens_and_changes_no_owner_of_work(
    positions: list[int], owners: list[int], keys: dict[int, float]
) -> None:
    table = table_of(sorted(positions), owners[: len(positions)], 3)
    base = frozenset(positions[:1])
    smaller, moved = compacted(table, demand_of(table, keys, [1.0] * 3), base, {}, negligible=1e-9)
    assert moved == 0.0
    assert base <= set(smaller.positions.tolist()) <= set(positions)
    probes = np.array(sorted(keys), np.uint32)
    assert smaller.owners_of(probes).tolist() == table.owners_of(probes).tolist()


def test_an_idle_arc_returns_and_leaves_no_token_behind() -> None:
    table = table_of([100, 200, 201, 300, 400], [0, 0, 1, 0, 1], 2)  # key 200 was taken from reducer 0 to reducer 1
    demand = demand_of(table, {50: 10.0, 150: 10.0, 250: 10.0, 350: 30.0, 200: 0.1}, [1.0] * 2)
    smaller, moved = compacted(table, demand, {100, 300, 400}, {}, negligible=0.5)
    assert (smaller.positions.tolist(), smaller.sole_owners.tolist()) == ([100, 300, 400], [0, 0, 1])
    assert moved == pytest.approx(0.1)


def test_the_arcs_of_a_reducer_that_has_not_reported_are_not_idle() -> None:
    table = table_of([100, 200, 201, 300, 400], [0, 0, 1, 0, 1], 2)
    demand = demand_of(table, {50: 10.0, 150: 10.0, 250: 10.0}, [1.0] * 2)
    smaller, moved = compacted(table, replace(demand, unreported=frozenset({1})), {100, 300, 400}, {}, negligible=0.5)
    assert (smaller.positions.tolist(), smaller.sole_owners.tolist()) == ([100, 200, 201, 300, 400], [0, 0, 1, 0, 1])
    assert moved == 0.0


def test_a_key_that_is_more_than_may_move_at_once_is_split_instead() -> None:
    table = table_of([100, 200, 300, 400], [0, 1, 2, 3], 4)
    plan = rebalance(demand_of(table, {50: 8.0, 60: 8.0, 150: 4.0}, [1.0] * 4), RebalanceOptions(max_moved=0.1))
    assert plan.moved <= 0.1
    assert plan.split > 0
    assert plan.after < plan.before


def test_a_key_stays_split_while_unsplitting_it_would_move_more_than_allowed() -> None:
    table = table_of([100, 200, 300, 400], [0, 1, 2, 3], 4)
    hot = rebalance(demand_of(table, {50: 40.0, 150: 5.0, 250: 5.0, 350: 5.0}, [1.0] * 4), RebalanceOptions()).table
    cool = demand_of(hot, {50: 8.0, 150: 10.0, 250: 10.0, 350: 10.0}, [1.0] * 4)
    ended = rebalance(cool, RebalanceOptions(), unsplit=list(cool.parts))
    assert ended.moved > 0.05
    kept = rebalance(cool, RebalanceOptions(max_moved=0.05), unsplit=list(cool.parts))
    assert (kept.steps, kept.moved, kept.table) == ("", 0.0, hot)


def test_no_more_is_moved_at_once_than_allowed() -> None:
    table = table_of([*range(5, 105, 5), 200, 300, 400], [0] * 20 + [1, 2, 3], 4)
    keys = dict.fromkeys(range(100), 1.0)
    plan = rebalance(demand_of(table, keys, [1.0] * 4), RebalanceOptions(max_moved=0.2))
    assert 0 < plan.moved <= 0.2
    assert "more than 20%" in plan.stuck
