"""What a task makes of its input while nothing holds it back."""

from __future__ import annotations

import pytest

from dpa.measure.timing import Supply


def steady(supply: Supply, rate: float, seconds: float, start: float) -> float:
    """Ten steps a second; returns when it ends."""
    for step in range(1, round(10 * seconds) + 1):
        supply.made(round(rate / 10), start + step / 10)
    return start + seconds


def test_before_anything_was_made_nothing_is_known() -> None:
    supply = Supply()
    supply.begin(0.0)
    assert supply.rate is None


def test_what_is_made_without_a_hold_is_followed_within_a_moment() -> None:
    supply = Supply()
    supply.begin(0.0)
    now = steady(supply, 100, 2.0, 0.0)
    assert supply.rate == pytest.approx(100)
    steady(supply, 400, 0.6, now)
    assert supply.rate == pytest.approx(400)


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
    supply = Supply()
    supply.begin(0.0)
    now = steady(supply, 400, 0.5, 0.0)
    for _ in range(200):
        supply.hold(now)
        supply.begin(now + 0.1)
        now += 0.101
        supply.made(10, now)
    assert supply.rate == pytest.approx(400)


def test_the_last_stretch_before_a_hold_counts_even_if_it_is_short() -> None:
    supply = Supply()
    supply.begin(0.0)
    now = steady(supply, 100, 3.0, 0.0)
    supply.made(30, now + 0.06)
    supply.hold(now + 0.06)
    assert supply.rate == pytest.approx(500)


def test_a_step_that_a_hold_overtakes_does_not_count_without_its_records() -> None:
    supply = Supply()
    supply.begin(0.0)
    supply.made(20, 0.1)
    supply.hold(0.18)
    assert supply.rate == pytest.approx(200)
    supply.made(20, 0.2)
    supply.begin(0.5)
    supply.hold(0.9)
    assert supply.rate == pytest.approx(200)


def test_the_time_in_which_there_is_nothing_to_read_does_not_count() -> None:
    supply = Supply()
    supply.begin(0.0)
    supply.made(10, 0.1)
    supply.end(0.1)
    supply.begin(9.0)
    supply.made(10, 9.1)
    supply.end(9.1)
    assert supply.rate == pytest.approx(100)


def test_a_source_whose_rows_make_no_records_any_more_supplies_nothing() -> None:
    """Of rows that a filter drops, a step makes none."""
    supply = Supply()
    supply.begin(0.0)
    now = steady(supply, 100, 2.0, 0.0)
    steady(supply, 0, 0.6, now)
    assert supply.rate == 0.0


def test_a_moment_without_a_record_says_nothing() -> None:
    supply = Supply()
    supply.begin(0.0)
    now = steady(supply, 100, 2.0, 0.0)
    supply.end(now)
    supply.begin(now)
    supply.end(now + 0.1)
    assert supply.rate == pytest.approx(100)
