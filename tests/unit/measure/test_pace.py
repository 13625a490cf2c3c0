"""How long a record takes now, as windows are sized by it."""

from __future__ import annotations

import pytest

from dpa.measure.timing import ServicePace


def pace(*quanta: tuple[int, float, float]) -> float | None:
    found = ServicePace()
    for records, seconds, waited in quanta:
        found.observe(records, seconds, waited)
    return found.seconds


def test_before_the_first_quantum_nothing_is_known() -> None:
    assert pace() is None


def test_it_is_the_time_of_a_record_where_that_is_long() -> None:
    assert pace(*[(50, 0.1, 0.0)] * 5) == pytest.approx(0.002, rel=0.01)


def test_what_a_quantum_costs_whatever_its_records_is_not_the_records() -> None:
    small = pace((10, 0.0003, 0.0))
    assert small is not None and small < 0.00001  # 30 us each, were it theirs


def test_a_moment_of_waiting_says_little_and_much_of_it_counts() -> None:
    work = pace((1_000, 0.005, 0.0))
    waiting = pace((1_000, 0.020, 0.015))
    assert work is not None and waiting is not None
    assert waiting < 1.5 * work
    always = pace(*[(1_000, 0.020, 0.015)] * 100)
    assert always is not None and 3 * work < always < 4.5 * work


def test_a_change_of_pace_is_learnt_in_a_few_quanta() -> None:
    found = pace(*[(10_000, 0.1, 0.0)] * 20, *[(50, 0.1, 0.0)] * 20)
    assert found == pytest.approx(0.002, rel=0.2)


def test_one_long_quantum_is_shared_by_the_records_around_it() -> None:
    usual = [(35_000, 0.0009, 0.0)] * 30
    found = pace(*usual, (35_000, 0.055, 0.0))  # states of a million records are folded
    all_records = 31 * 35_000
    assert found is not None
    assert found < 2 * (30 * 0.0004 + 0.055) / all_records
    afterwards = pace(*usual, (35_000, 0.055, 0.0), *usual)
    assert afterwards is not None and 0.0004 / 35_000 < afterwards < found


def test_long_quanta_one_after_another_are_a_change_of_pace() -> None:
    found = pace(*[(35_000, 0.0009, 0.0)] * 30, *[(35_000, 0.35, 0.0)] * 4)
    assert found == pytest.approx(0.00001, rel=0.4)


def test_what_is_long_now_and_then_counts_in_the_mean() -> None:
    found = pace(*[(100, 0.0015, 0.0), *[(100, 0.0006, 0.0)] * 9, (100, 0.05, 0.0)] * 50)
    assert found == pytest.approx((0.001 + 9 * 0.0001 + 0.0495) / 1_100, rel=0.3)
