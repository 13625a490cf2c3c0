"""What all reducers have measured, put together."""

import numpy as np
import pytest

from dpa.balance.adaptive.demand import Demand, smoothed
from dpa.measure.load import KeyLoad, Load, TokenLoad
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable


def table() -> RoutingTable:
    unsplit = RoutingTable.unsplit(0, np.array([10, 20, 30], np.uint32), np.array([0, 1, 2], np.int32), 3)
    return TableChange.of(unsplit, {30: KeySplit((0, 1), (0.75, 0.25), (1.0, 0.0), 1)}).apply(unsplit)


def load(tokens: list[int], queued: list[float], rates: list[float], *hot: KeyLoad, service: float = 0.1) -> Load:
    measured = TokenLoad(np.array(tokens, np.uint32), np.array(queued), np.array(rates), tuple(hot))
    return Load(int(sum(queued)), 1, service, 100.0, by_token=measured)


def test_queued_records_count_where_the_table_sends_them() -> None:
    demand = Demand.of(table(), {0: load([20], [8.0], [0.0]), 1: load([20], [1.0], [4.0])}, 2.0)
    assert demand.loads.tolist() == [0.0, 17.0, 0.0]
    assert demand.arriving == 4.0


def test_the_queue_of_a_split_key_counts_where_it_is_and_its_arrivals_by_weight() -> None:
    demand = Demand.of(table(), {1: load([30], [8.0], [4.0])}, 1.0)
    assert demand.parts == {2: {0: 3.0, 1: 9.0}}


def test_records_of_a_split_key_at_a_reducer_that_is_not_one_of_its_own_count_by_weight() -> None:
    demand = Demand.of(table(), {2: load([30], [8.0], [0.0])}, 1.0)
    assert demand.parts == {2: {0: 6.0, 1: 2.0}}


def test_a_key_at_two_reducers_is_one_key() -> None:
    key = KeyLoad("a", 25, 2.0, 3.0, 3.0, 3.0)
    demand = Demand.of(table(), {0: load([30], [2.0], [3.0], key), 1: load([30], [2.0], [3.0], key)}, 1.0)
    assert demand.keys[25].records == 10.0


def test_a_reducer_without_a_service_time_is_as_fast_as_the_median() -> None:
    demand = Demand.of(table(), {0: load([], [], []), 1: load([], [], [], service=0.1)}, 1.0)
    assert demand.speeds.tolist() == pytest.approx([10.0, 10.0, 10.0])


def test_a_service_time_without_evidence_leans_on_that_of_all() -> None:
    few, many = Load(1, 0, 1.0, 1.0), Load(1, 0, 0.1, 999.0)
    steady = smoothed({0: few, 1: many, 2: Load(0, 0)})
    assert steady[0].service_seconds == pytest.approx((1.0 + 8 * 0.1009) / 9)
    assert steady[1].service_seconds == pytest.approx(0.1, rel=0.01)
    assert steady[2].service_seconds == pytest.approx(0.1009)
