"""Plans of the adaptive strategy, judged by what their tables make of known keys."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_samples import demand_of, loads_of, table_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.balance.adaptive.planner import PlanOptions, level
from dpa.balance.adaptive.tidying import tidied
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable, Spread

LAST = 2**32 - 1
hashes = st.one_of(st.integers(0, LAST), st.sampled_from([0, 1, LAST - 1, LAST]))
key_loads = st.dictionaries(hashes, st.floats(0.5, 1e6), min_size=1, max_size=30)
speed_lists = st.lists(st.sampled_from([1.0, 2.0, 10.0, 100.0]), min_size=1, max_size=6)


@given(key_loads, speed_lists, st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_known_keys_are_levelled_to_the_tolerance_and_never_made_worse(
    keys: dict[int, float], speeds: list[float], tokens: int
) -> None:
    table = TokenRing(len(speeds), tokens).snapshot(0)
    base = frozenset(table.positions.tolist())
    plan = level(demand_of(table, keys, speeds), PlanOptions(), base=base)
    after = float((loads_of(plan.table, keys) / np.array(speeds)).max())
    assert after == pytest.approx(plan.after, rel=1e-6)
    assert after <= max(plan.mean * 1.05, 0.0) * (1 + 1e-6)
    assert (np.diff(plan.table.positions.astype(np.int64)) > 0).all()
    assert base <= set(plan.table.positions.tolist())
    least = np.maximum(loads_of(table, keys) - plan.mean * np.array(speeds), 0).sum() / sum(keys.values())
    assert plan.moved + plan.spread <= least + 1e-6


@given(key_loads, speed_lists)
@settings(max_examples=40, deadline=None)
def test_planning_again_on_the_result_does_nothing(keys: dict[int, float], speeds: list[float]) -> None:
    table = TokenRing(len(speeds), 4).snapshot(0)
    once = level(demand_of(table, keys, speeds), PlanOptions())
    assert level(demand_of(once.table, keys, speeds), PlanOptions()).what == ""


@given(key_loads, speed_lists)
@settings(max_examples=40, deadline=None)
def test_without_spreading_no_key_has_two_owners_and_nothing_gets_worse(
    keys: dict[int, float], speeds: list[float]
) -> None:
    table = TokenRing(len(speeds), 4).snapshot(0)
    plan = level(demand_of(table, keys, speeds), PlanOptions(may_spread=False))
    assert plan.table.spreads == ()
    before, after = (loads_of(one, keys) / np.array(speeds) for one in (table, plan.table))
    assert after.max() <= before.max() * (1 + 1e-6)


@pytest.mark.parametrize("where", [0, 1, LAST])
@pytest.mark.parametrize("tokens", [[5], [0, 5], [0, 1, LAST]])
def test_one_key_with_everything_is_spread_evenly_wherever_it_lies(where: int, tokens: list[int]) -> None:
    table = table_of(tokens, [0] * len(tokens), 4)
    plan = level(demand_of(table, {where: 100.0}, [1.0] * 4), PlanOptions())
    assert loads_of(plan.table, {where: 100.0}).tolist() == pytest.approx([25.0] * 4, rel=0.06)
    assert plan.spread == pytest.approx(0.75, abs=0.02)
    assert plan.table.spreads[0].before == (1.0, 0.0, 0.0, 0.0)


def test_a_donor_that_is_stuck_does_not_keep_its_receiver_from_the_next() -> None:
    """The receiver that a stuck donor was offered was lost to all donors after it."""
    keys = {5: 100.0} | dict.fromkeys(range(100, 160), 1.0)
    table = table_of([10, 200, 300], [0, 1, 2], 3)
    plan = level(demand_of(table, keys, [1.0] * 3), PlanOptions(may_spread=False))
    assert loads_of(plan.table, keys)[2] >= 4


def spread_over_four() -> tuple[RoutingTable, dict[int, float]]:
    table = table_of([10, 11, 20, 30, 40], [0, 0, 1, 2, 3], 4)
    hot = {10: 300.0, 5: 25.0, 15: 25.0, 25: 25.0, 35: 25.0}
    return level(demand_of(table, hot, [1.0] * 4), PlanOptions()).table, hot


def test_a_spread_that_is_as_it_should_be_stays_the_same_one_in_the_next_table() -> None:
    table, hot = spread_over_four()
    plan = level(demand_of(table, {**hot, 11: 8.0, 12: 8.0, 13: 8.0}, [1.0] * 4), PlanOptions(may_spread=False))
    assert plan.what
    assert plan.table.spreads[0].since == table.spreads[0].since == 1


def test_a_spread_whose_key_has_cooled_gets_one_owner() -> None:
    table, _ = spread_over_four()
    cool = {10: 1.0, 5: 25.0, 15: 25.0, 25: 25.0, 35: 25.0}
    token = int(np.flatnonzero(table.places >= 4)[0])
    plan = level(demand_of(table, cool, [1.0] * 4), PlanOptions(), cooled=[token])
    assert plan.table.spreads == ()
    assert plan.moved == pytest.approx(0.75 / 101, rel=0.1)


def test_a_spread_that_is_wider_than_its_key_needs_shrinks() -> None:
    """A key that was gathered in could not be spread again, so a spread was as wide as ever or had to end."""
    table, _ = spread_over_four()
    cooler = {10: 50.0, 5: 10.0, 15: 40.0, 25: 40.0, 35: 40.0}
    token = int(np.flatnonzero(table.places >= 4)[0])
    plan = level(demand_of(table, cooler, [1.0] * 4), PlanOptions(), cooled=[token])
    after = loads_of(plan.table, cooler)
    assert after.max() <= after.mean() * 1.06
    assert len(plan.table.spreads) == 0 or len(plan.table.spreads[0].reducers) < 4


def two_spreads(owner_between: int) -> RoutingTable:
    """Keys 10 and 20, each spread over reducers 0 and 1."""
    spread = Spread((0, 1), (0.5, 0.5), (1.0, 0.0), since=1)
    positions, places = [10, 11, 20, 21, 40], [0, 2, owner_between, 3, 1]
    return RoutingTable(1, np.array(positions, np.uint32), np.array(places, np.int32), 2, 0, (spread, spread))


@pytest.mark.parametrize("owner_between", [0, 1])
@pytest.mark.parametrize("first", [10.0, 22.0, 34.0, 54.0])
@pytest.mark.parametrize("second", [10.0, 20.0, 35.0])
def test_two_spreads_that_have_cooled_at_once_are_gathered_in(owner_between: int, first: float, second: float) -> None:
    """The second was still in the pile of its reducer as a part, and planning failed, and the job with it."""
    table, keys = two_spreads(owner_between), {10: 10.0, 20: second, 5: first, 25: 30.0}
    plan = level(demand_of(table, keys, [1.0] * 2), PlanOptions(), cooled=[1, 3])
    after = loads_of(plan.table, keys)
    assert after.max() == pytest.approx(plan.after)
    assert after.max() <= max(loads_of(table, keys).max(), after.mean() * 1.06)


def test_a_spread_of_which_one_reducer_is_left_stays_with_it() -> None:
    """Tidying took its arc for idle, and gave the key to whoever had the next arc."""
    spread = Spread((0, 1), (0.5, 0.5), (1.0, 0.0), since=1)
    places = np.array([0, 3, 2], np.int32)
    table = RoutingTable(1, np.array([10, 11, 40], np.uint32), places, 3, 0, (spread,))
    keys = {5: 12.0, 10: 12.0, 25: 12.0}
    plan = level(demand_of(table, keys, [1.0] * 3), PlanOptions())
    assert plan.table.spreads == ()
    assert loads_of(plan.table, keys).tolist() == [12.0, 12.0, 12.0]


def test_only_the_reducer_that_was_named_is_relieved() -> None:
    table = table_of([10, 20, 30, 40], [0, 1, 2, 3], 4)
    keys = {5: 50.0, 6: 50.0, 15: 50.0, 16: 50.0}
    plan = level(demand_of(table, keys, [1.0] * 4), PlanOptions(), only=1)
    after = loads_of(plan.table, keys)
    assert after[0] == 100.0
    assert after[1] == pytest.approx(50.0)


def test_no_work_at_all_is_no_reason_for_steps() -> None:
    assert level(demand_of(table_of([10, 20], [0, 1], 2), {5: 0.0}, [1.0, 1.0]), PlanOptions()).what == ""


def test_three_hundred_reducers_are_levelled() -> None:
    table = TokenRing(300, 4).snapshot(0)
    keys = {int(where): 1.0 for where in np.random.default_rng(1).integers(0, LAST, 600)} | {77: 300.0}
    plan = level(demand_of(table, keys, [1.0] * 300), PlanOptions())
    after = loads_of(plan.table, keys)
    assert after.max() <= after.mean() * 1.05 * (1 + 1e-6)


@given(
    st.lists(hashes, min_size=2, max_size=20, unique=True),
    st.lists(st.integers(0, 2), min_size=20, max_size=20),
    key_loads,
)
@settings(max_examples=40, deadline=None)
def test_tidying_drops_tokens_and_changes_no_owner_of_work(
    positions: list[int], owners: list[int], keys: dict[int, float]
) -> None:
    table = table_of(sorted(positions), owners[: len(positions)], 3)
    base = frozenset(positions[:1])
    smaller, moved = tidied(table, demand_of(table, keys, [1.0] * 3), base, {}, crumb=1e-9)
    assert moved == 0.0
    assert base <= set(smaller.positions.tolist()) <= set(positions)
    probes = np.array(sorted(keys), np.uint32)
    assert smaller.owners_of(probes).tolist() == table.owners_of(probes).tolist()


def test_an_idle_arc_goes_back_and_leaves_no_token_behind() -> None:
    table = table_of([100, 200, 201, 300, 400], [0, 0, 1, 0, 1], 2)  # key 200 was taken from reducer 0 to reducer 1
    demand = demand_of(table, {50: 10.0, 150: 10.0, 250: 10.0, 350: 30.0, 200: 0.1}, [1.0] * 2)
    smaller, moved = tidied(table, demand, {100, 300, 400}, {}, crumb=0.5)
    assert (smaller.positions.tolist(), smaller.places.tolist()) == ([100, 300, 400], [0, 0, 1])
    assert moved == pytest.approx(0.1)


def test_the_arcs_of_a_reducer_without_a_word_are_not_idle() -> None:
    table = table_of([100, 200, 201, 300, 400], [0, 0, 1, 0, 1], 2)
    demand = demand_of(table, {50: 10.0, 150: 10.0, 250: 10.0}, [1.0] * 2)
    smaller, moved = tidied(table, replace(demand, silent=frozenset({1})), {100, 300, 400}, {}, crumb=0.5)
    assert (smaller.positions.tolist(), smaller.places.tolist()) == ([100, 200, 201, 300, 400], [0, 0, 1, 0, 1])
    assert moved == 0.0


def test_a_key_that_is_more_than_may_move_at_once_is_spread_instead() -> None:
    table = table_of([100, 200, 300, 400], [0, 1, 2, 3], 4)
    plan = level(demand_of(table, {50: 8.0, 60: 8.0, 150: 4.0}, [1.0] * 4), PlanOptions(most_moved=0.1))
    assert plan.moved <= 0.1
    assert plan.spread > 0
    assert plan.after < plan.before


def test_a_cooled_spread_stays_while_ending_it_would_move_more_than_allowed() -> None:
    table = table_of([100, 200, 300, 400], [0, 1, 2, 3], 4)
    hot = level(demand_of(table, {50: 40.0, 150: 5.0, 250: 5.0, 350: 5.0}, [1.0] * 4), PlanOptions()).table
    cool = demand_of(hot, {50: 8.0, 150: 10.0, 250: 10.0, 350: 10.0}, [1.0] * 4)
    ended = level(cool, PlanOptions(), cooled=list(cool.parts))
    assert ended.moved > 0.05
    kept = level(cool, PlanOptions(most_moved=0.05), cooled=list(cool.parts))
    assert (kept.what, kept.moved, kept.table) == ("", 0.0, hot)


def test_no_more_is_moved_at_once_than_allowed() -> None:
    table = table_of([*range(5, 105, 5), 200, 300, 400], [0] * 20 + [1, 2, 3], 4)
    keys = dict.fromkeys(range(100), 1.0)
    plan = level(demand_of(table, keys, [1.0] * 4), PlanOptions(most_moved=0.2))
    assert 0 < plan.moved <= 0.2
    assert "more than 20%" in plan.stuck
