"""A reducer's watch over itself: what it finds at the end of a time slot, in each of the three ways."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.delegation import Delegation, DelegationOptions, Utilisation
from dpa.routing.groupings.signal import Signal, Wish

WAYS: tuple[Utilisation, ...] = ("queue", "busy", "demand")
every_way = pytest.mark.parametrize("way", WAYS)


def delegation(way: Utilisation = "demand", **changes: Any) -> Delegation:
    fields = {"slot_seconds": 1.0, "theta_busy": 0.9, "theta_idle": 0.75, "queue_records": 100}
    return Delegation(DelegationOptions(utilisation=way, **{**fields, **changes}))


def a_slot(watch: Delegation, since: float = 0.0) -> Signal | None:
    """A slot of one second in which 60 records come and 50 are processed, at 10 ms each."""
    watch.at(since, 0)
    watch.arrived(60)
    watch.at(since + 0.5, 60)
    watch.worked(50, 0.5)
    watch.at(since + 1.0, 10)
    return watch.signal


@pytest.mark.parametrize(("way", "found"), [("queue", 0.35), ("busy", 0.5), ("demand", 0.6)])
def test_the_utilisations_are_what_can_be_computed_by_hand(way: Utilisation, found: float) -> None:
    signal = a_slot(delegation(way))
    assert signal == Signal(0, pytest.approx(found), Wish.INCREASE, 60, pytest.approx(0.01))


@pytest.mark.parametrize(
    ("records", "wish"),
    [(0, "increase"), (74, "increase"), (75, "keep"), (90, "keep"), (91, "decrease"), (500, "decrease")],
)
def test_a_reducer_wants_less_above_one_threshold_and_more_below_the_other(records: int, wish: str) -> None:
    watch = delegation("queue")
    watch.at(0.0, 0)
    watch.at(1.0, records)
    assert watch.signal is not None
    assert (watch.signal.utilisation, watch.signal.wish) == (records / 100, Wish(wish))


@every_way
def test_nothing_is_told_before_a_first_whole_slot_has_been_watched(way: Utilisation) -> None:
    watch = delegation(way)
    watch.worked(1, 0.001)
    for now in (0.9, 0.95, 1.0, 1.5, 1.85):
        watch.at(now, 1)
        assert watch.signal is None
    watch.at(2.0, 1)
    assert watch.signal is not None


def test_a_moment_at_the_end_of_a_slot_is_not_taken_for_a_slot() -> None:
    watch = delegation()
    a_slot(watch)
    first = watch.signal
    watch.at(1.999, 10)  # nothing has happened since 1.0, so this is where the slot is seen to have begun
    watch.at(2.999, 10)
    watch.arrived(1_000)
    watch.at(3.0, 1_010)
    assert watch.signal is not None
    assert watch.signal is not first
    assert watch.signal.utilisation < 20
    watch.at(4.0, 1_010)
    assert watch.signal == Signal(2, pytest.approx(10, rel=0.01), Wish.DECREASE, 1_000, pytest.approx(0.01))


@every_way
def test_time_that_stands_still_changes_nothing(way: Utilisation) -> None:
    once, often = delegation(way), delegation(way)
    for watch, times in ((once, 1), (often, 5)):
        for _ in range(times):
            watch.at(0.0, 0)
        watch.arrived(60)
        for _ in range(times):
            watch.at(0.5, 60)
        watch.worked(50, 0.5)
        for _ in range(times):
            watch.at(1.0, 10)
    assert once.signal == often.signal


@pytest.mark.parametrize(("way", "found"), [("queue", 0.1), ("busy", 0.0), ("demand", 0.0)])
def test_a_slot_without_records_is_idle_and_keeps_the_service_time(way: Utilisation, found: float) -> None:
    watch = delegation(way)
    a_slot(watch)
    watch.at(2.0, 10)
    assert watch.signal == Signal(1, pytest.approx(found), Wish.INCREASE, 0, pytest.approx(0.01))


@pytest.mark.parametrize(("way", "found"), [("queue", 0.1 + 0.25 / 10), ("busy", 0.05), ("demand", 0.06)])
def test_a_gap_of_many_slots_is_judged_as_one(way: Utilisation, found: float) -> None:
    watch = delegation(way)
    watch.at(0.0, 0)
    watch.arrived(60)
    watch.at(0.5, 60)
    watch.worked(50, 0.5)
    watch.at(10.0, 10)
    assert watch.signal is not None
    assert (watch.signal.slot, watch.signal.records) == (0, 60)
    assert watch.signal.utilisation == pytest.approx(found)
    a_slot(watch, since=10.0)
    assert watch.signal.slot == 10


def test_demand_is_not_judged_before_a_service_time_is_known() -> None:
    watch = delegation()
    watch.at(0.0, 0)
    watch.arrived(300)
    for now in (1.1, 2.1, 3.1):
        watch.at(now, 300)  # more came, and the first slice is still in user code: by no means idle
        assert watch.signal is None
        watch.arrived(50)
    watch.worked(300, 4.0)
    watch.at(4.0, 450)
    assert watch.signal is not None
    assert (watch.signal.wish, watch.signal.records) == (Wish.DECREASE, 450)
    assert watch.signal.utilisation == pytest.approx(450 * 4 / 300 / 4)


@given(
    st.sampled_from(WAYS),
    st.floats(0, 1e10),
    st.floats(0.01, 60),
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 500), st.integers(0, 500)), max_size=40),
)
def test_irregular_calls_give_finite_signals_of_growing_slots(
    way: Utilisation, start: float, slot_seconds: float, steps: list[tuple[float, int, int]]
) -> None:
    watch, now, queue, told = delegation(way, slot_seconds=slot_seconds), start, 0, []
    for seconds, arrived, done in steps:
        now += seconds
        if done:
            watch.worked(min(done, queue), seconds if queue else 0.0)
        watch.at(now, queue)
        queue = queue - min(done, queue) + arrived
        watch.arrived(arrived)
        if watch.signal is not None and watch.signal not in told:
            told.append(watch.signal)
    slots = [signal.slot for signal in told]
    assert slots == sorted(set(slots))
    assert all(slot <= now // slot_seconds for slot in slots)
    assert all(math.isfinite(signal.utilisation) and signal.utilisation >= 0 for signal in told)
