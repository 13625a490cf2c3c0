"""A reducer's delegation over itself: what it finds at the end of a time slot, in each of the three ways."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.delegation import Delegation
from dpa.routing.groupings.base import CapacityRequest, Signal
from dpa.routing.groupings.options import SignalOptions, Utilisation

WAYS: tuple[Utilisation, ...] = ("queue", "busy", "demand")
every_way = pytest.mark.parametrize("way", WAYS)


def delegation_of(way: Utilisation = "demand", queue_seconds: float | None = None, slot: float = 1.0) -> Delegation:
    return Delegation(SignalOptions(utilisation=way, slot_seconds=slot), 100, queue_seconds)


def a_slot(delegation: Delegation, since: float = 0.0, seconds: float = 1.0, times: int = 1) -> Signal | None:
    """A slot in which 60 records come and 50 are processed, at 10 ms each; each moment comes `times` times."""
    for moment, queued in ((0.0, 0), (0.5, 60), (seconds, 10)):
        if moment == seconds:
            delegation.worked(50, 0.5)
        for _ in range(times):
            delegation.advance(since + moment, queued)
        if not moment:
            delegation.arrived(60)
    return delegation.signal


@pytest.mark.parametrize(("way", "found", "idle"), [("queue", 0.35, 0.1), ("busy", 0.5, 0.0), ("demand", 0.6, 0.0)])
def test_the_utilisations_are_what_can_be_computed_by_hand(way: Utilisation, found: float, idle: float) -> None:
    delegation = delegation_of(way)
    service = pytest.approx(0.01)
    assert a_slot(delegation) == Signal(0, pytest.approx(found), CapacityRequest.INCREASE, 60, service)
    delegation.advance(2.0, 10)  # a slot without records is idle and keeps the service time
    assert delegation.signal == Signal(1, pytest.approx(idle), CapacityRequest.INCREASE, 0, service)


@pytest.mark.parametrize(
    ("records", "wanted"),
    [(0, "increase"), (74, "increase"), (75, "keep"), (90, "keep"), (91, "decrease"), (500, "decrease")],
)
def test_a_reducer_wants_less_above_one_threshold_and_more_below_the_other(records: int, wanted: str) -> None:
    delegation = delegation_of("queue")
    delegation.advance(0.0, 0)
    delegation.advance(1.0, records)
    assert delegation.signal is not None
    assert (delegation.signal.utilisation, delegation.signal.request) == (records / 100, CapacityRequest(wanted))


@pytest.mark.parametrize(
    ("queue_seconds", "full"), [(None, 100), (0.2, 20), (0.5, 50), (1.0, 100), (60.0, 100), (0.001, 1)]
)
def test_a_queue_is_full_at_the_delay_where_senders_hold_it(queue_seconds: float | None, full: int) -> None:
    signal = a_slot(delegation_of("queue", queue_seconds))  # a mean queue of 35 records of 10 ms
    assert signal is not None
    assert signal.utilisation == pytest.approx(35 / full)
    assert signal.request is CapacityRequest("decrease" if full < 35 else "increase")
    for way in ("busy", "demand"):  # the delay changes nothing where the queue is not judged
        assert a_slot(delegation_of(way, queue_seconds)) == a_slot(delegation_of(way))


def test_before_a_service_time_is_known_a_queue_is_full_at_its_bound_in_records() -> None:
    delegation = delegation_of("queue", queue_seconds=0.001)
    delegation.advance(0.0, 0)
    delegation.arrived(50)
    delegation.advance(1.0, 50)
    assert delegation.signal == Signal(0, 0.5, CapacityRequest.INCREASE, 50, None)


@every_way
def test_nothing_is_told_before_a_first_whole_slot_has_been_watched(way: Utilisation) -> None:
    delegation = delegation_of(way)
    delegation.worked(1, 0.001)
    for now in (0.9, 0.95, 1.0, 1.5, 1.85):
        delegation.advance(now, 1)
        assert delegation.signal is None
    delegation.advance(2.0, 1)
    assert delegation.signal is not None


def test_a_moment_at_the_end_of_a_slot_is_not_taken_for_a_slot() -> None:
    delegation = delegation_of()
    first = a_slot(delegation)
    delegation.advance(1.999, 10)  # nothing has happened since 1.0, so this is where the slot is seen to have begun
    delegation.advance(2.999, 10)
    delegation.arrived(1_000)
    delegation.advance(3.0, 1_010)
    assert delegation.signal is not None and delegation.signal is not first
    assert delegation.signal.utilisation < 20
    delegation.advance(4.0, 1_010)
    utilisation = pytest.approx(10, rel=0.01)
    assert delegation.signal == Signal(2, utilisation, CapacityRequest.DECREASE, 1_000, pytest.approx(0.01))


@every_way
def test_time_that_stands_still_changes_nothing(way: Utilisation) -> None:
    assert a_slot(delegation_of(way)) == a_slot(delegation_of(way), times=5)


@pytest.mark.parametrize(("way", "found"), [("queue", 0.1 + 0.25 / 10), ("busy", 0.05), ("demand", 0.06)])
def test_a_gap_of_many_slots_is_judged_as_one(way: Utilisation, found: float) -> None:
    delegation = delegation_of(way)
    signal = a_slot(delegation, seconds=10.0)
    assert signal is not None
    assert (signal.slot, signal.records, signal.utilisation) == (0, 60, pytest.approx(found))
    a_slot(delegation, since=10.0)
    assert delegation.signal.slot == 10


def test_demand_is_not_judged_before_a_service_time_is_known() -> None:
    delegation = delegation_of()
    delegation.advance(0.0, 0)
    delegation.arrived(300)
    for now in (1.1, 2.1, 3.1):
        delegation.advance(now, 300)  # more came, and the first slice is still in user code: by no means idle
        assert delegation.signal is None
        delegation.arrived(50)
    delegation.worked(300, 4.0)
    delegation.advance(4.0, 450)
    assert delegation.signal is not None
    assert (delegation.signal.request, delegation.signal.records) == (CapacityRequest.DECREASE, 450)
    assert delegation.signal.utilisation == pytest.approx(450 * 4 / 300 / 4)


@given(
    st.sampled_from(WAYS),
    st.floats(0, 1e10),
    st.floats(0.01, 60),
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 500), st.integers(0, 500)), max_size=40),
)
def test_irregular_calls_give_finite_signals_of_growing_slots(
    way: Utilisation, start: float, slot_seconds: float, steps: list[tuple[float, int, int]]
) -> None:
    delegation, now, queue, signals = delegation_of(way, slot=slot_seconds), start, 0, []
    for seconds, arrived, done in steps:
        now += seconds
        if done:
            delegation.worked(min(done, queue), seconds if queue else 0.0)
        delegation.advance(now, queue)
        queue = queue - min(done, queue) + arrived
        delegation.arrived(arrived)
        if delegation.signal is not None and delegation.signal not in signals:
            signals.append(delegation.signal)
    slots = [signal.slot for signal in signals]
    assert slots == sorted(set(slots))
    assert all(slot <= now // slot_seconds for slot in slots)
    assert all(math.isfinite(signal.utilisation) and signal.utilisation >= 0 for signal in signals)
