"""How long a record takes now, as windows are sized by it."""

from __future__ import annotations

import pytest

from dpa.measure.pace import Pace


def pace(*quanta: tuple[int, float, float]) -> float | None:
    found = Pace()
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
