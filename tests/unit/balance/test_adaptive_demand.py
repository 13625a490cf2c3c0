"""What reducers have measured of themselves and senders of their keys, put together, and how far it is believed."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from dpa.balance.adaptive._known_loads import Waiting
from dpa.balance.adaptive.demand import Demand, Expected, smoothed
from dpa.measure.load import KeySample, Load
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.table import RoutingTable


def table() -> RoutingTable:
    """Arcs up to 10, 20 and 30, of three reducers; the last is split over 0 and 1."""
    unsplit = RoutingTable.unsplit(0, np.array([10, 20, 30], np.uint32), np.array([0, 1, 2], np.int32), 3)
    return TableChange.of(unsplit, {30: KeySplit((0, 1), (0.75, 0.25), (1.0, 0.0), 1)}).apply(unsplit)


def sample(records: Mapping[int, float]) -> KeySample:
    hashes = sorted(records)
    return KeySample(np.array(hashes, np.uint32), np.array([records[one] for one in hashes]), 100.0)


def load(queued: Mapping[int, float], *, service: float | None = 0.1, **more) -> Load:
    return Load(round(sum(queued.values())), 1, service, evidence=100.0, queued=sample(queued), **more)


def expected(records: Mapping[int, float], names: Mapping[int, str] | None = None) -> Expected:
    """As many records of each hash as are given."""
    return Expected(sum(records.values()), sample(records), names or {})


NOTHING = expected({})


def test_records_count_where_they_are_queued_or_sent_and_those_of_a_split_key_by_weight() -> None:
    demand = Demand.of(table(), {0: load({15: 8.0}), 1: load({15: 1.0})}, expected({15: 8.0}))
    assert demand.loads.tolist() == [0.0, 17.0, 0.0]
    assert demand.arriving == 8.0
    # the queue of a split key counts where it is
    demand = Demand.of(table(), {1: load({25: 8.0})}, expected({25: 4.0}))
    assert demand.parts == {2: {0: 3.0, 1: 9.0}}
    assert demand.records.tolist() == [0.0, 0.0, 0.0]
    # but not at a reducer that is none of its own
    demand = Demand.of(table(), {2: load({25: 8.0})}, NOTHING)
    assert demand.parts == {2: {0: 6.0, 1: 2.0}}


def test_a_key_at_two_reducers_and_at_senders_is_one_key_and_hot_only_while_something_is_left_of_it() -> None:
    loads = {0: load({25: 2.0}), 1: load({25: 2.0})}
    demand = Demand.of(table(), loads, expected({25: 6.0}, {25: "a"}))
    assert (demand.keys[25].key, demand.keys[25].records) == ("a", 10.0)
    assert Demand.of(table(), {0: load({25: 2.0})}, expected({15: 6.0}, {7: "gone", 15: "b"})).keys.keys() == {15}


def test_what_is_offered_has_the_sampled_keys_but_is_no_more_than_can_be_done_in_the_horizon() -> None:
    """Credit lets no more in: what is offered beyond it waits at the senders, in the same proportions."""
    loads = {reducer: load({}) for reducer in range(3)}  # 30 records a second together
    demand = Demand.of(table(), loads, expected({5: 100.0, 15: 300.0}), horizon=2.0)
    assert demand.arriving == pytest.approx(60.0)
    assert demand.loads.tolist() == pytest.approx([15.0, 45.0, 0.0])
    demand = Demand.of(table(), {}, Expected(400.0, sample({5: 1.0, 15: 3.0}), {}))
    assert demand.loads.tolist() == pytest.approx([100.0, 300.0, 0.0])
    # without any service time speeds are equal, and nothing is cut to what they can do
    demand = Demand.of(table(), {0: load({}, service=0.0)}, expected({5: 100.0}), horizon=2.0)
    assert demand.loads.tolist() == [100.0, 0.0, 0.0]
    assert len(set(demand.speeds.tolist())) == 1


def test_a_load_without_keys_is_known_by_its_speed_alone_and_those_without_a_time_are_as_fast_as_the_median() -> None:
    demand = Demand.of(table(), {0: replace(load({5: 3.0}), queued=None)}, NOTHING)
    assert demand.loads.tolist() == [0.0, 0.0, 0.0]
    assert demand.speeds.tolist() == pytest.approx([10.0] * 3)
    assert demand.unreported == {1, 2}
    demand = Demand.of(table(), {0: load({}, service=None), 1: load({}), 2: load({}, service=0.1)}, NOTHING)
    assert demand.speeds.tolist() == pytest.approx([10.0] * 3)
    slow = load({5: 2.0}, service=0.5, usual_seconds=0.1, costs={5: 10.0})  # a dear key makes no reducer slow
    assert Demand.of(table(), {0: slow, 1: load({})}, NOTHING).speeds.tolist() == pytest.approx([10.0] * 3)


def test_the_records_of_a_dear_key_count_by_what_they_cost_wherever_they_are_by_the_median_of_reducers() -> None:
    loads = {0: load({5: 2.0}, costs={5: 10.0}), 1: load({5: 1.0, 15: 4.0})}
    demand = Demand.of(table(), loads, expected({5: 3.0, 15: 1.0}, {5: "dear"}))
    assert demand.loads.tolist() == pytest.approx([60.0, 5.0, 0.0])
    assert demand.keys[5].records == pytest.approx(60.0)
    assert demand.arriving == pytest.approx(31.0)
    loads = {reducer: load({5: 1.0}, costs={5: cost}) for reducer, cost in enumerate((9.0, 10.0, 50.0))}
    assert Demand.of(table(), loads, NOTHING).loads.tolist() == pytest.approx([30.0, 0.0, 0.0])


def usual(loads: Mapping[int, Load]) -> list[float | None]:
    return [load.usual_seconds for load in smoothed(loads).values()]


def test_a_single_measurement_counts_as_far_as_it_is_no_hiccup_and_of_none_nothing_changes() -> None:
    many = Load(1, 0, 0.002, error=1e-5, evidence=10_000.0)
    hiccup, long = (Load(1, 0, seconds, error=np.inf, evidence=16.0) for seconds in (0.0025, 0.011))
    first, second, third, unknown = usual({0: hiccup, 1: long, 2: many, 3: Load(0, 0)})
    assert unknown < first < 0.0022
    assert 0.009 < second < 0.011
    assert third == pytest.approx(0.002, rel=0.01) == unknown
    loads = {0: Load(1, 0, 0.002, error=np.inf, evidence=500.0), 1: Load(1, 0, 0.004, error=np.inf, evidence=500.0)}
    assert usual(loads) == pytest.approx([0.002, 0.004], rel=0.05)
    loads = {0: Load(1, 0), 1: Load(0, 0)}
    assert smoothed(loads) == loads


def test_a_dear_key_takes_the_time_that_was_measured_and_a_reducer_that_is_five_times_slower_is_believed() -> None:
    """Beside a key that takes nearly all the time, that of the other records is hardly known."""
    quick = Load(1, 0, 1e-6, error=1e-8, evidence=1e5)
    loads = {0: Load(1, 0, 2e-3, usual_seconds=1e-9, costs={5: 1e7}, error=1e-3, evidence=500.0), 1: quick, 2: quick}
    believed = smoothed(loads)[0]
    assert believed.usual_seconds == pytest.approx(1e-6, rel=0.01)
    assert believed.costs[5] * believed.usual_seconds == pytest.approx(1e-2)
    three = [Load(1, 0, 0.002, error=0.0001, evidence=500.0)] * 3
    slow = Load(1, 0, 0.010, error=0.0005, evidence=100.0)
    found = usual(dict(enumerate([*three, slow])))
    assert found[3] / found[0] == pytest.approx(5.0, rel=0.15)


def test_a_queued_record_counts_less_than_one_to_come_where_it_is_said_so() -> None:
    """A table that is made for a backlog has to be undone when that has passed."""
    loads = {0: load({5: 8.0}), 1: load({15: 2.0})}
    assert Demand.of(table(), loads, expected({5: 1.0, 15: 1.0}), backlog=0.5).loads.tolist() == [5.0, 2.0, 0.0]
    assert Demand.of(table(), loads, NOTHING, backlog=0.5).loads.tolist() == [8.0, 2.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
def test_what_chance_explains_is_not_taken_for_a_difference_in_speed(seed: int) -> None:
    """Service times are as far apart as their standard error says: most of that is taken back."""
    random = np.random.default_rng(seed)
    error = 0.05 * 0.002
    loads = {one: Load(1, 0, random.normal(0.002, error), error=error, evidence=500.0) for one in range(8)}
    spread = np.std([load.service_seconds for load in loads.values()])
    assert np.std(usual(loads)) < 0.35 * spread


QUARTER = 0.25


def reported(waited: np.ndarray) -> Waiting:
    """After reports a quarter of a second apart; `waited` has shape (reports, reducers)."""
    waiting = Waiting(report_seconds=QUARTER)
    for number, shares in enumerate(waited.tolist()):
        for reducer, share in enumerate(shares):
            waiting.add(reducer, Load(1, 0, busy=1.0, waited=share), QUARTER * number)
    return waiting


def test_who_was_never_busy_is_expected_to_wait_as_the_others_do() -> None:
    waiting = Waiting(QUARTER)
    assert (waiting.measured(0), waiting.believed()) == (0.0, {}), "before anything is reported nobody waits"
    waiting = reported(np.full((8, 1), 0.4))
    waiting.add(1, Load(0, 0), 2.0)
    assert waiting.measured(1) == 0.0
    assert waiting.believed() == pytest.approx({0: 0.4, 1: 0.4})


def test_a_wait_of_a_second_of_work_ago_counts_half_and_a_crowded_machine_is_believed() -> None:
    waited = np.repeat([[0.8], [0.0]], [40, 4], axis=0)
    assert reported(waited).measured(0) == pytest.approx(0.4, abs=0.01)
    shares = np.random.default_rng(0).normal([0.0, 0.0, 0.0, 0.6], 0.03, (20, 4))
    believed = reported(np.clip(shares, 0, 1)).believed()
    assert believed.pop(3) > 0.5
    assert max(believed.values()) < 0.1
