"""The simulation of sources, and reducers with unbounded queues, against plain arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.bounded import RandomChoicesGrouping
from dpa.routing.groupings.by_capacity import ConsistentGrouping
from dpa.routing.groupings.options import SignalOptions
from dpa.routing.groupings.plain import KeyGrouping, ShuffleGrouping
from experiments.queues import Arrivals, QueueSetup, simulate
from experiments.replication import Replication

HASHES = np.arange(7, dtype=np.uint32) * np.uint32(2_654_435_761)
SLOT = 10.0


def arrivals(slots: list[list[tuple[float, int]]]) -> list[Arrivals]:
    """Slots of ten seconds: for each a list of (seconds into it, key), by time."""
    made = []
    for number, records in enumerate(slots):
        in_order = sorted(records)
        times = np.array([number * SLOT + at for at, _ in in_order])
        made.append(Arrivals(np.array([key for _, key in in_order], dtype=np.int32), times, (number + 1) * SLOT))
    return made


slots = st.lists(
    st.lists(st.tuples(st.floats(0, 9.75, width=32), st.integers(0, 6)), max_size=12), min_size=1, max_size=5
)


@given(slots, st.integers(1, 3), st.integers(1, 3), st.floats(0.05, 3))
@settings(max_examples=60)
def test_every_reducer_serves_its_records_in_order_one_after_the_other(
    given_slots: list[list[tuple[float, int]]], reducers: int, sources: int, capacity: float
) -> None:
    capacities = np.arange(1, reducers + 1) * capacity
    setup = QueueSetup(HASHES, lambda source: ShuffleGrouping(reducers, source), sources, ((0, capacities),))
    history = simulate(setup, arrivals(given_slots))
    end = len(given_slots) * SLOT
    groupings = [ShuffleGrouping(reducers, source) for source in range(sources)]
    free, latencies, left = [0.0] * reducers, [], [0] * reducers
    number = 0
    for slot in arrivals(given_slots):
        for key, at in zip(slot.keys, slot.times.tolist(), strict=True):
            reducer = int(groupings[number % sources].choose(HASHES[[key]])[0])
            free[reducer] = max(free[reducer], at) + 1 / capacities[reducer]
            if free[reducer] <= end:
                latencies.append(free[reducer] - at)
            else:
                left[reducer] += 1
            number += 1
    assert history.queues[-1].tolist() == left
    assert int(np.sum(history.served)) == len(latencies)
    assert history.records == number
    if latencies:
        assert history.longest == pytest.approx(max(latencies))
        waited = np.nansum(np.array(history.latencies) * np.array(history.served))
        assert waited == pytest.approx(sum(latencies))
        middle = sorted(latencies)[(len(latencies) - 1) // 2]
        assert history.latency_quantile(0.5) == pytest.approx(middle, rel=0.03, abs=2e-6) or len(latencies) % 2 == 0


def test_what_is_queued_is_done_at_the_capacity_of_the_day() -> None:
    slow, fast = np.array([0.1]), np.array([10.0])
    setup = QueueSetup(HASHES, lambda source: KeyGrouping(1), 1, ((0, slow), (5, fast)))
    history = simulate(setup, arrivals([[(float(at), 0) for at in range(5)], [], [(0.0, 0)]]))
    assert [queue.tolist() for queue in history.queues] == [[4], [0], [0]]
    assert [rates.tolist() for rates in history.capacities] == [[0.1], [10.0], [10.0]]


def test_sources_that_hear_of_a_slow_reducer_send_it_less() -> None:
    def grouping(source: int) -> Grouping:
        return ConsistentGrouping(2, RandomChoicesGrouping(20), proportional=True)

    watch = SignalOptions(slot_seconds=SLOT, theta_busy=0.85)
    steady = arrivals([[(at / 10, at % 7) for at in range(100)] for _ in range(20)])
    history = simulate(QueueSetup(HASHES, grouping, 3, ((0, np.array([2.5, 10.0])),), watch), steady)
    assert abs(int(history.arrived[0][0]) - 50) <= 6
    assert abs(int(history.arrived[-1][0]) - 20) <= 6
    assert history.moved[-1] > 0


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 129)), max_size=80), st.integers(0, 80))
def test_replication_counts_each_pair_of_key_and_reducer_once(pairs: list[tuple[int, int]], cut: int) -> None:
    replication = Replication(7, 130)
    for part in (pairs[:cut], pairs[cut:]):
        keys, reducers = ([pair[place] for pair in part] for place in (0, 1))
        replication.note(np.array(keys, dtype=np.int32), np.array(reducers, dtype=np.int32))
    assert replication.states == len(set(pairs))
    assert replication.keys == len({key for key, _ in pairs})
