"""Times: of a record, of a task at work and held back, and of rows that wait for the end of their epoch."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.measure.timing import BusyTime, RowWaits, ServicePace, ServiceTime, Supply, Waited


def test_the_service_time_is_the_mean_of_what_was_measured_of_late() -> None:
    service = ServiceTime(half_life=1.0)
    assert (service.seconds, service.evidence) == (None, 0.0)
    service.observe(3, 60.0)
    assert (service.seconds, service.evidence) == (20.0, 3.0)
    service.observe(100, 1.0)
    assert (service.seconds, service.evidence) == (0.01, 100.0), "the first one warms up"
    service.observe(10, 1.0)
    assert service.seconds == pytest.approx((0.5 * 1.0 + 1.0) / (0.5 * 100 + 10))
    for _ in range(30):
        service.observe(10, 1.0)
    assert service.seconds == pytest.approx(0.1)
    for seconds in (0.0, 1e-9, 1e9):
        service = ServiceTime(half_life=1e-3)
        for _ in range(3):
            service.observe(4, seconds)
        assert service.seconds == pytest.approx(seconds / 4)


def test_of_one_measurement_nobody_knows_how_far_it_is_off_and_those_that_agree_leave_no_doubt() -> None:
    service = ServiceTime(half_life=1e9)
    assert service.error == math.inf
    service.observe(1, 1.0)
    service.observe(10, 0.1)
    assert service.error == math.inf, "the first one warms up"
    for records in (10, 20, 40):
        service.observe(records, records * 0.01)
    assert service.error == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("number", [8, 32, 128])
def test_the_error_is_as_large_as_means_really_differ(number: int) -> None:
    """Of many means of as many measurements, each of records that take 0.01 s give or take a third."""
    random = np.random.default_rng(number)
    means, errors = [], []
    for _ in range(300):
        service = ServiceTime(half_life=1e9)
        for seconds in random.uniform(0.005, 0.015, number + 1).tolist():
            service.observe(10, 10 * seconds)
        means.append(service.seconds)
        errors.append(service.error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.25)


def test_a_stale_past_adds_no_certainty() -> None:
    """However long it has run, the error is that of the measurements within a half-life or two."""
    random = np.random.default_rng(0)
    errors = []
    for number in (100, 1_000):
        service = ServiceTime(half_life=1.0)
        for seconds in random.uniform(0.005, 0.015, number).tolist():
            service.observe(10, 10 * seconds)
        errors.append(service.error)
    assert errors[1] > 0.5 * errors[0]


spans = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=20)


def test_a_task_is_idle_without_work_and_its_waiting_is_a_part_of_its_work_and_never_more() -> None:
    busy = BusyTime()
    assert busy.report(0.0) == (0.0, 0.0)
    busy.arrived(0.0)
    assert busy.report(1.0) == (0.0, 0.0)
    busy = BusyTime()
    busy.began(0.0)
    busy.ended(2.0, 0.5)
    assert busy.report(4.0) == (0.5, 0.25)
    busy.began(4.0)
    busy.report(5.9)
    busy.ended(6.0, 1.5)  # of all of it, of which the last report had the greater part
    assert busy.report(6.1)[1] == 1.0


@given(spans, st.lists(st.integers(0, 900), min_size=1, max_size=9, unique=True))
def test_reports_add_up_to_the_time_worked(spans: list[tuple[int, int]], moments: list[int]) -> None:
    """Each span is work and then a pause; the clock ticks in whole seconds, for exact sums."""
    busy, now, events = BusyTime(), 0, []
    for work, pause in spans:
        events += [(now, busy.began, ()), (now + work, busy.ended, (0.0,))]
        now += work + pause
    reports = sorted({*moments, now})
    events += [(moment, None, ()) for moment in reports if moment <= now]
    worked, last = 0.0, 0
    for moment, act, arguments in sorted(events, key=lambda event: event[0]):
        if act is None:
            worked += busy.report(moment)[0] * (moment - last)
            last = moment
        else:
            act(moment, *arguments)
    assert worked == pytest.approx(sum(work for work, _ in spans))


def pace(*quanta: tuple[int, float, float]) -> float | None:
    found = ServicePace()
    for records, seconds, waited in quanta:
        found.observe(records, seconds, waited)
    return found.seconds


def test_it_is_the_time_of_a_record_where_that_is_long_and_not_what_a_quantum_costs_whatever_its_records() -> None:
    assert pace() is None
    assert pace(*[(50, 0.1, 0.0)] * 5) == pytest.approx(0.002, rel=0.01)
    small = pace((10, 0.0003, 0.0))
    assert small is not None and small < 0.00001  # 30 us each, were it theirs


def test_a_moment_of_waiting_says_little_and_much_of_it_counts() -> None:
    work = pace((1_000, 0.005, 0.0))
    waiting = pace((1_000, 0.020, 0.015))
    assert work is not None and waiting is not None
    assert waiting < 1.5 * work
    always = pace(*[(1_000, 0.020, 0.015)] * 100)
    assert always is not None and 3 * work < always < 4.5 * work


def overhead(*quanta: tuple[int, float]) -> float:
    found = ServicePace()
    for records, seconds in quanta:
        found.observe(records, seconds, 0.0)
    return found.overhead


def test_two_quanta_of_different_sizes_show_what_one_takes_whatever_its_records() -> None:
    assert overhead((100, 0.31)) == 0.0, "of one nobody knows"
    assert overhead((100, 0.31), (199, 0.319)) == 0.0, "nor of two that are about alike"
    assert overhead((100, 0.31), (200, 0.32)) == pytest.approx(0.3)
    assert overhead((200, 0.32), (100, 0.31)) == pytest.approx(0.3)
    assert overhead((100, 0.0102), (200, 0.0202)) == 0.0, "0.2 ms is little"
    assert overhead((1, 0.3), (2, 0.6)) == 0.0, "it is all of the records"
    pairs = [(100, 0.31), (200, 0.32)] * 3
    assert overhead(*pairs, (100, 5.0), (200, 0.32)) == pytest.approx(0.3), "one odd quantum spoils two measurements"


def test_a_record_takes_what_the_quantum_takes_for_it_and_quanta_of_one_size_are_to_differ_at_last() -> None:
    found = ServicePace()
    for records in (16, 100, 1_000, *[1_000] * 15):
        assert not found.is_due
        found.observe(records, 0.3 + records / 10_000, 0.0)
    assert found.seconds == pytest.approx(1 / 10_000, rel=0.3)
    found.observe(1_000, 0.4, 0.0)
    assert found.is_due
    found.observe(2_000, 0.5, 0.0)
    assert not found.is_due


def test_a_change_of_pace_is_learnt_in_a_few_quanta_and_what_is_long_now_and_then_counts_in_the_mean() -> None:
    found = pace(*[(10_000, 0.1, 0.0)] * 20, (100, 0.2, 0.0), *[(50, 0.1, 0.0)] * 20)
    assert found == pytest.approx(0.002, rel=0.2)
    found = pace(*[(35_000, 0.0009, 0.0)] * 30, *[(35_000, 0.35, 0.0)] * 4)
    assert found == pytest.approx(0.00001, rel=0.4)
    found = pace(*[(100, 0.0015, 0.0), *[(100, 0.0006, 0.0)] * 9, (100, 0.05, 0.0)] * 50)
    assert found == pytest.approx((0.001 + 9 * 0.0001 + 0.0495) / 1_100, rel=0.3)


def test_one_long_quantum_is_shared_by_the_records_around_it() -> None:
    usual = [(35_000, 0.0009, 0.0)] * 30
    found = pace(*usual, (35_000, 0.055, 0.0))  # states of a million records are folded
    all_records = 31 * 35_000
    assert found is not None
    assert found < 2 * (30 * 0.0004 + 0.055) / all_records
    afterwards = pace(*usual, (35_000, 0.055, 0.0), *usual)
    assert afterwards is not None and 0.0004 / 35_000 < afterwards < found


steps = st.lists(st.tuples(st.integers(0, 1_000), st.floats(0, 100)), max_size=20)


def waits_of(found: list[tuple[int, float]]) -> RowWaits:
    waits = RowWaits()
    for rows, at in found:
        waits.read(rows, at)
    return waits


def test_rows_wait_from_the_step_that_read_them() -> None:
    waits = waits_of([(2, 1.0), (0, 1.5), (3, 4.0)])
    assert waits.taken(5.0) == Waited(rows=5, seconds=2 * 4.0 + 3 * 1.0, longest=4.0)
    assert waits.taken(9.0) == Waited(), "they are taken once"
    waits.read(1, 8.0)
    assert waits.taken(10.0) == Waited(1, 2.0, 2.0)
    epoch, step = 1_800_000_000.0, 0.0625  # sums are exact late in the day of many rows
    waits = waits_of([(100_000, epoch + number * step) for number in range(1_000)])
    assert waits.taken(epoch + 1_000 * step).seconds == 100_000 * step * sum(range(1, 1_001))


@given(steps, st.floats(100, 200))
def test_the_sum_is_that_of_all_rows(found: list[tuple[int, float]], now: float) -> None:
    found = sorted(found, key=lambda step: step[1])
    taken = waits_of(found).taken(now)
    assert taken.rows == sum(rows for rows, _ in found)
    assert taken.seconds == pytest.approx(sum(rows * (now - at) for rows, at in found))
    assert taken.longest == max((now - at for rows, at in found if rows), default=0.0)


def begun() -> Supply:
    supply = Supply()
    supply.begin(0.0)
    return supply


def steady(supply: Supply, rate: float, seconds: float, start: float = 0.0) -> float:
    """Ten steps a second; returns when it ends."""
    for step in range(1, round(10 * seconds) + 1):
        supply.made(round(rate / 10), start + step / 10)
    return start + seconds


def test_what_is_made_without_a_hold_is_followed_within_a_moment() -> None:
    supply = begun()
    assert supply.rate is None
    now = steady(supply, 100, 2.0)
    assert supply.rate == pytest.approx(100)
    now = steady(supply, 400, 0.6, now)
    assert supply.rate == pytest.approx(400)
    steady(supply, 0, 0.6, now)  # of rows that a filter drops, a step makes none
    assert supply.rate == 0.0


def test_a_hold_does_not_count() -> None:
    """A source at a pace that does not catch up: a step takes what it takes, and then waits."""
    supply = Supply()
    for step in range(200):
        supply.begin(1.0 * step)
        supply.made(50, 1.0 * step + 0.1)
        supply.hold(1.0 * step + 0.1)
    assert supply.rate == pytest.approx(500)


def test_what_makes_up_for_a_hold_is_not_believed_for_what_comes() -> None:
    """A source of 400 records a second that is held to 100: what is due meanwhile is read in a moment."""
    supply = begun()
    now = steady(supply, 400, 0.5)
    for _ in range(200):
        supply.hold(now)
        supply.begin(now + 0.1)
        now += 0.101
        supply.made(10, now)
    assert supply.rate == pytest.approx(400)


def test_the_last_stretch_before_a_hold_counts_even_if_it_is_short() -> None:
    supply = begun()
    now = steady(supply, 100, 3.0)
    supply.made(30, now + 0.06)
    supply.hold(now + 0.06)
    assert supply.rate == pytest.approx(500)


def test_a_step_that_a_hold_overtakes_does_not_count_without_its_records() -> None:
    supply = begun()
    supply.made(20, 0.1)
    supply.hold(0.18)
    assert supply.rate == pytest.approx(200)
    supply.made(20, 0.2)
    supply.begin(0.5)
    supply.hold(0.9)
    assert supply.rate == pytest.approx(200)


def test_the_time_in_which_there_is_nothing_to_read_and_a_moment_without_a_record_do_not_count() -> None:
    supply = begun()
    supply.made(10, 0.1)
    supply.end(0.1)
    supply.begin(9.0)
    supply.made(10, 9.1)
    supply.end(9.1)
    assert supply.rate == pytest.approx(100)
    supply.begin(9.1)
    supply.end(9.2)
    assert supply.rate == pytest.approx(100)
