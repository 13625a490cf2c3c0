"""How busy a task is between two reports, whatever lies across them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.measure.timing import BusyTime

spans = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=20)


def test_before_anything_came_nothing_is_known() -> None:
    assert BusyTime().report(100.0) == (0.0, 0.0)


def test_a_task_that_has_something_to_do_and_does_not_begin_is_idle() -> None:
    busy = BusyTime()
    busy.arrived(0.0)
    assert busy.report(1.0) == (0.0, 0.0)


def test_waiting_counts_as_a_part_of_the_work_and_never_as_more() -> None:
    busy = BusyTime()
    busy.began(0.0)
    busy.ended(2.0, 0.5)
    assert busy.report(4.0) == (0.5, 0.25)
    busy.began(4.0)
    busy.report(5.9)
    busy.ended(6.0, 1.5)  # of all of it, of which the last report had the greater part
    assert busy.report(6.1)[1] == 1.0


@given(spans, st.lists(st.integers(0, 900), min_size=1, max_size=9, unique=True))
def test_reports_add_up_to_the_time_worked_wherever_they_cut_it(
    spans: list[tuple[int, int]], moments: list[int]
) -> None:
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
