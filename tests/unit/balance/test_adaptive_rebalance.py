"""Rebalances of the adaptive strategy, judged by what their tables make of known keys."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_samples import demand_of, loads_of, table_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.balance.adaptive._draft import HashRange, SortedRanges
from dpa.balance.adaptive.demand import Demand, Expected, KeyDemand
from dpa.balance.adaptive.rebalance import RebalanceOptions, compacted, is_spread, rebalance, spread
from dpa.balance.options import AdaptiveOptions
from dpa.measure.load import KeySample, Load
from dpa.routing.assignment import KeySplit, Single
from dpa.routing.change import TableChange
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable

LAST = 2**32 - 1
hashes = st.one_of(st.integers(0, LAST), st.sampled_from([0, 1, LAST - 1, LAST]))
key_loads = st.dictionaries(hashes, st.floats(0.5, 1e6), min_size=1, max_size=30)
speed_lists = st.lists(st.sampled_from([1.0, 2.0, 10.0, 100.0]), min_size=1, max_size=6)


@given(key_loads, speed_lists, st.integers(1, 8))
@settings(max_examples=60)
def test_known_keys_are_evened_out_to_the_tolerance(keys: dict[int, float], speeds: list[float], tokens: int) -> None:
    table = TokenRing(len(speeds), tokens).snapshot(0)
    base, demand = frozenset(table.positions.tolist()), demand_of(table, keys, speeds)
    plan = rebalance(demand, RebalanceOptions(), base=base)
    after = float((loads_of(plan.table, keys) / np.array(speeds)).max())
    assert after == pytest.approx(plan.after, rel=1e-6)
    assert after <= max(plan.mean * 1.05, 0.0) * (1 + 1e-6)
    assert (np.diff(plan.table.positions.astype(np.int64)) > 0).all()
    assert base <= set(plan.table.positions.tolist())
    least = np.maximum(loads_of(table, keys) - plan.mean * np.array(speeds), 0).sum() / sum(keys.values())
    assert plan.moved + plan.split <= least + 1e-6
    assert rebalance(demand_of(plan.table, keys, speeds), RebalanceOptions(), base=base).steps == ""
    whole = rebalance(demand, RebalanceOptions(may_split=False)).table
    before, after = (loads_of(one, keys) / np.array(speeds) for one in (table, whole))
    assert whole.splits == {}
    assert after.max() <= before.max() * (1 + 1e-6), "without splitting nothing gets worse"


@pytest.mark.parametrize("where", [0, 1, LAST])
@pytest.mark.parametrize("tokens", [[5], [0, 5], [0, 1, LAST]])
def test_one_key_with_everything_is_split_evenly_wherever_it_lies(where: int, tokens: list[int]) -> None:
    table = table_of(tokens, [0] * len(tokens), 4)
    plan = rebalance(demand_of(table, {where: 100.0}, [1.0] * 4), RebalanceOptions())
    assert loads_of(plan.table, {where: 100.0}).tolist() == pytest.approx([25.0] * 4, rel=0.06)
    assert plan.split == pytest.approx(0.75, abs=0.02)
    [split] = plan.table.splits.values()
    assert split.before == (1.0, 0.0, 0.0, 0.0)


def test_three_hundred_reducers_are_evened_out_and_a_stuck_donor_keeps_no_receiver_from_the_next() -> None:
    """The receiver that a stuck donor was offered was lost to all donors after it."""
    keys = {5: 100.0} | dict.fromkeys(range(100, 160), 1.0)
    table = table_of([10, 200, 300], [0, 1, 2], 3)
    plan = rebalance(demand_of(table, keys, [1.0] * 3), RebalanceOptions(may_split=False))
    assert loads_of(plan.table, keys)[2] >= 4
    table = TokenRing(300, 4).snapshot(0)
    keys = {int(where): 1.0 for where in np.random.default_rng(1).integers(0, LAST, 600)} | {77: 300.0}
    plan = rebalance(demand_of(table, keys, [1.0] * 300), RebalanceOptions())
    after = loads_of(plan.table, keys)
    assert after.max() <= after.mean() * 1.05 * (1 + 1e-6)


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


def test_a_key_that_is_unsplit_gets_one_owner_or_as_few_as_it_needs() -> None:
    table, _ = split_over_four()
    cool = {10: 1.0, 5: 25.0, 15: 25.0, 25: 25.0, 35: 25.0}
    [token] = table.splits
    plan = rebalance(demand_of(table, cool, [1.0] * 4), RebalanceOptions(), unsplit=[token])
    assert plan.table.splits == {}
    assert plan.moved == pytest.approx(0.75 / 101, rel=0.1)
    cooler = {10: 50.0, 5: 10.0, 15: 40.0, 25: 40.0, 35: 40.0}
    plan = rebalance(demand_of(table, cooler, [1.0] * 4), RebalanceOptions(), unsplit=[token])
    after = loads_of(plan.table, cooler)
    assert after.max() <= after.mean() * 1.06
    assert all(len(split.reducers) < 4 for split in plan.table.splits.values())


@pytest.mark.parametrize("owner_between", [0, 1])
@pytest.mark.parametrize("first", [10.0, 22.0, 34.0, 54.0])
@pytest.mark.parametrize("second", [10.0, 20.0, 35.0])
def test_two_keys_can_be_unsplit_at_once(owner_between: int, first: float, second: float) -> None:
    """The second was still among the ranges of its reducer as a part, and planning failed, and the job with it."""
    split = KeySplit((0, 1), (0.5, 0.5), (1.0, 0.0), since=1)
    unsplit = table_of([10, 11, 20, 21, 40], [0, 0, owner_between, 0, 1], 2)
    table = TableChange.of(unsplit, {11: split, 21: split}).apply(unsplit)
    keys = {10: 10.0, 20: second, 5: first, 25: 30.0}
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


def test_only_the_reducer_that_was_named_is_relieved_and_none_where_there_is_no_work() -> None:
    table = table_of([10, 20, 30, 40], [0, 1, 2, 3], 4)
    keys = {5: 50.0, 6: 50.0, 15: 50.0, 16: 50.0}
    plan = rebalance(demand_of(table, keys, [1.0] * 4), RebalanceOptions(), only=1)
    after = loads_of(plan.table, keys)
    assert after[0] == 100.0
    assert after[1] == pytest.approx(50.0)
    assert rebalance(demand_of(table_of([10, 20], [0, 1], 2), {5: 0.0}, [1.0, 1.0]), RebalanceOptions()).steps == ""


@given(
    st.lists(hashes, min_size=2, max_size=20, unique=True),
    st.lists(st.integers(0, 2), min_size=20, max_size=20),
    key_loads,
)
@settings(max_examples=40)
def test_compaction_changes_no_owner_of_work(positions: list[int], owners: list[int], keys: dict[int, float]) -> None:
    table = table_of(sorted(positions), owners[: len(positions)], 3)
    base = frozenset(positions[:1])
    smaller, moved = compacted(table, demand_of(table, keys, [1.0] * 3), base, {}, negligible=1e-9)
    assert moved == 0.0
    assert base <= set(smaller.positions.tolist()) <= set(positions)
    probes = np.array(sorted(keys), np.uint32)
    assert smaller.owners_of(probes).tolist() == table.owners_of(probes).tolist()


def test_an_idle_arc_returns_and_leaves_no_token_behind_unless_its_reducer_has_not_reported() -> None:
    table = table_of([100, 200, 201, 300, 400], [0, 0, 1, 0, 1], 2)  # key 200 was taken from reducer 0 to reducer 1
    demand = demand_of(table, {50: 10.0, 150: 10.0, 250: 10.0, 350: 30.0, 200: 0.1}, [1.0] * 2)
    smaller, moved = compacted(table, demand, {100, 300, 400}, {}, negligible=0.5)
    assert (smaller.positions.tolist(), smaller.sole_owners.tolist()) == ([100, 300, 400], [0, 0, 1])
    assert moved == pytest.approx(0.1)
    silent = replace(demand_of(table, {50: 10.0, 150: 10.0, 250: 10.0}, [1.0] * 2), unreported=frozenset({1}))
    same, moved = compacted(table, silent, {100, 300, 400}, {}, negligible=0.5)
    assert (same.positions.tolist(), moved) == (table.positions.tolist(), 0.0)
    assert same.sole_owners.tolist() == table.sole_owners.tolist()


def test_no_more_is_moved_at_once_than_allowed_and_a_key_that_is_more_is_split_instead() -> None:
    table = table_of([100, 200, 300, 400], [0, 1, 2, 3], 4)
    plan = rebalance(demand_of(table, {50: 8.0, 60: 8.0, 150: 4.0}, [1.0] * 4), RebalanceOptions(max_moved=0.1))
    assert plan.moved <= 0.1
    assert plan.split > 0
    assert plan.after < plan.before
    table = table_of([*range(5, 105, 5), 200, 300, 400], [0] * 20 + [1, 2, 3], 4)
    keys = dict.fromkeys(range(100), 1.0)
    plan = rebalance(demand_of(table, keys, [1.0] * 4), RebalanceOptions(max_moved=0.2))
    assert 0 < plan.moved <= 0.2
    assert "more than 20%" in plan.stuck


def test_a_key_stays_split_while_unsplitting_it_would_move_more_than_allowed() -> None:
    table = table_of([100, 200, 300, 400], [0, 1, 2, 3], 4)
    hot = rebalance(demand_of(table, {50: 40.0, 150: 5.0, 250: 5.0, 350: 5.0}, [1.0] * 4), RebalanceOptions()).table
    cool = demand_of(hot, {50: 8.0, 150: 10.0, 250: 10.0, 350: 10.0}, [1.0] * 4)
    ended = rebalance(cool, RebalanceOptions(), unsplit=list(cool.parts))
    assert ended.moved > 0.05
    kept = rebalance(cool, RebalanceOptions(max_moved=0.05), unsplit=list(cool.parts))
    assert (kept.steps, kept.moved, kept.table) == ("", 0.0, hot)


edges = st.one_of(st.integers(0, LAST), st.sampled_from([0, 1, LAST]))


@given(edges, edges, st.lists(st.tuples(st.integers(0, LAST), st.floats(1, 100)), max_size=5), st.floats(0.01, 0.99))
def test_the_parts_of_a_range_cover_it(start: int, stop: int, some: list[tuple[int, float]], share: float) -> None:
    whole = HashRange(start, stop, 0.0)
    placed = {(start + offset % whole.width) % 2**32: records for offset, records in some}
    keys = tuple(KeyDemand("k", where, records) for where, records in sorted(placed.items(), key=lambda key: -key[1]))
    split = HashRange(start, stop, sum(placed.values()) + 10.0, keys)
    if split.single:
        return
    parts = split.split(share * split.records)
    assert sum(part.width for part in parts) == split.width
    assert sum(part.records for part in parts) == pytest.approx(split.records)
    assert sorted(key.hash for part in parts for key in part.keys) == sorted(placed)
    for part in parts:
        assert all((key.hash - part.start) % 2**32 < part.width for key in part.keys)
        assert all(part.stop != other.stop for other in parts if other is not part)
    assert stop in [part.stop for part in parts]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20), st.floats(0, 11))
def test_ranges_find_the_largest_that_fits_and_the_smallest_that_does_not(records: list[float], fit: float) -> None:
    ranges = SortedRanges([HashRange(0, 5, size) for size in records])
    small, large = ranges.largest_within(fit), ranges.smallest_above(fit)
    assert (small.records if small else None) == max((size for size in records if size <= fit), default=None)
    assert (large.records if large else None) == min((size for size in records if size > fit), default=None)


def test_of_equal_ranges_the_very_one_is_removed_and_a_long_key_is_cut_where_people_read_it() -> None:
    equal = [HashRange(where, where + 1, 1.0) for where in range(3)]
    ranges = SortedRanges(equal)
    ranges.remove(equal[0])
    ranges.remove(equal[2])
    assert ranges.largest_within(1.0) is equal[1]
    assert KeyDemand("a", 7, 1.0).name == "key 'a'"
    assert KeyDemand(None, 7, 1.0).name == "key None"
    assert HashRange(7, 8, 1.0, (KeyDemand("x" * 10**6, 7, 1.0),)).name == "key '" + "x" * 59 + "..."


TABLE = AdaptiveOptions(initial_tokens=8).ring(3).snapshot(0)
SOME = np.sort(np.random.default_rng(0).integers(0, 2**32, 1_000, dtype=np.uint32))
EXPECTED = Expected(1_000.0, KeySample(SOME, np.ones(len(SOME)), len(SOME)), {})


def demand_of_all(table: RoutingTable, *, slow: int | None = None, silent: tuple[int, ...] = ()) -> Demand:
    """What is expected of three reducers, of which one may be half as fast and some have not reported."""
    seconds = {one: 0.002 if one == slow else 0.001 for one in range(3) if one not in silent}
    loads = {one: Load(0, 0, each, evidence=100.0, error=0.0) for one, each in seconds.items()}
    return Demand.of(table, loads, EXPECTED)


def test_every_arc_goes_to_all_reducers_by_their_speeds_and_states_stay_with_the_owner_of_before() -> None:
    demand = demand_of_all(TABLE, slow=2)
    proposal = spread(demand)
    assert not is_spread(demand) and is_spread(demand_of_all(proposal.table))
    assert proposal.table.version == 1
    for split in proposal.table.splits.values():
        weights = dict(zip(split.reducers, split.weights, strict=True))
        assert weights == pytest.approx({0: 0.4, 1: 0.4, 2: 0.2})
    assert 0 < proposal.split < 1 and proposal.moved == 0
    assert demand_of_all(proposal.table, slow=2).seconds == pytest.approx([0.4, 0.4, 0.4])
    assert np.array_equal(proposal.table.owners_of(SOME), TABLE.owners_of(SOME))
    again = spread(demand_of_all(proposal.table, slow=2)).table
    assert list(again.splits.values()) == list(proposal.table.splits.values())
    assert is_spread(demand_of_all(again))


def test_who_has_not_reported_gets_nothing_and_who_is_alone_or_without_work_has_nothing_to_split() -> None:
    proposal = spread(demand_of_all(TABLE, silent=(1,)))
    silent = {one.reducer for one in proposal.table.assignments if isinstance(one, Single)}
    assert silent == {1}
    assert all(1 not in split.reducers for split in proposal.table.splits.values())
    assert is_spread(demand_of_all(proposal.table, silent=(1,))), "and there is no more to spread until it reports"
    assert not is_spread(demand_of_all(proposal.table))
    assert is_spread(demand_of_all(TABLE, silent=(1, 2)))
    loads = {one: Load(0, 0, 0.001, evidence=100.0, error=0.0) for one in range(3)}
    assert is_spread(Demand.of(TABLE, loads, Expected(0.0, EXPECTED.sample, {})))
