"""Every arc split over all reducers, for keys that come and go."""

from __future__ import annotations

import numpy as np
import pytest

from dpa.balance.adaptive.demand import Demand, Expected
from dpa.balance.adaptive.rebalance import is_spread, spread
from dpa.balance.options import AdaptiveOptions
from dpa.measure.load import KeySample, Load
from dpa.routing.assignment import Single
from dpa.routing.table import RoutingTable

TABLE = AdaptiveOptions(initial_tokens=8).ring(3).snapshot(0)
HASHES = np.sort(np.random.default_rng(0).integers(0, 2**32, 1_000, dtype=np.uint32))
EXPECTED = Expected(1_000.0, KeySample(HASHES, np.ones(len(HASHES)), len(HASHES)), {})


def load(service_seconds: float) -> Load:
    return Load(0, 0, service_seconds, evidence=100.0, error=0.0)


def demand_of(table: RoutingTable, among: tuple[int, ...] = (0, 1, 2)) -> Demand:
    return Demand.of(table, {one: load(0.001) for one in among}, EXPECTED)


def test_every_arc_goes_to_all_reducers_by_their_speeds() -> None:
    demand = Demand.of(TABLE, {0: load(0.001), 1: load(0.001), 2: load(0.002)}, EXPECTED)
    proposal = spread(demand)
    assert not is_spread(demand) and is_spread(demand_of(proposal.table))
    assert proposal.table.version == 1
    for split in proposal.table.splits.values():
        weights = dict(zip(split.reducers, split.weights, strict=True))
        assert weights == pytest.approx({0: 0.4, 1: 0.4, 2: 0.2})
    assert 0 < proposal.split < 1 and proposal.moved == 0
    assert Demand.of(
        proposal.table, {0: load(0.001), 1: load(0.001), 2: load(0.002)}, EXPECTED
    ).seconds == pytest.approx([0.4, 0.4, 0.4])


def test_states_stay_with_the_owner_of_before() -> None:
    table = spread(Demand.of(TABLE, {one: load(0.001) for one in range(3)}, EXPECTED)).table
    assert np.array_equal(table.owners_of(HASHES), TABLE.owners_of(HASHES))


def test_a_reducer_that_has_not_reported_is_left_as_it_is_and_gets_nothing() -> None:
    demand = Demand.of(TABLE, {0: load(0.001), 2: load(0.001)}, EXPECTED)
    proposal = spread(demand)
    silent = {one.reducer for one in proposal.table.assignments if isinstance(one, Single)}
    assert silent == {1}
    assert all(1 not in split.reducers for split in proposal.table.splits.values())
    assert is_spread(demand_of(proposal.table, among=(0, 2))), "and there is no more to spread until it reports"
    assert not is_spread(demand_of(proposal.table))


def test_a_reducer_that_has_reported_alone_has_nobody_to_share_with() -> None:
    assert is_spread(demand_of(TABLE, among=(0,)))


def test_where_no_work_is_ahead_there_is_nothing_to_split() -> None:
    nothing = Expected(0.0, EXPECTED.sample, {})
    assert is_spread(Demand.of(TABLE, {one: load(0.001) for one in range(3)}, nothing))


def test_a_key_that_is_split_already_stays_so() -> None:
    first = spread(Demand.of(TABLE, {one: load(0.001) for one in range(3)}, EXPECTED)).table
    again = spread(Demand.of(first, {one: load(0.001) for one in range(3)}, EXPECTED)).table
    assert list(again.splits.values()) == list(first.splits.values())
    assert is_spread(demand_of(again))
