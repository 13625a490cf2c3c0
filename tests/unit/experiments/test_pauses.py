"""How long work takes that pauses interrupt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.simulated_jobs.pauses import Pauses


def test_pauses_that_overlap_are_one_and_those_that_end_before_they_begin_are_none() -> None:
    assert Pauses.of([(5.0, 8.0), (1.0, 3.0), (2.0, 5.0), (9.0, 9.0), (12.0, 10.0)]) == Pauses(((1.0, 8.0),))
    assert Pauses().lasting(1.0, 2.0) == 2.0


times = st.floats(0, 50)


@given(st.lists(st.tuples(times, times), max_size=5), times, st.floats(0.01, 20))
def test_parts_without_a_pause_add_up_to_the_work(
    intervals: list[tuple[float, float]], begin: float, seconds: float
) -> None:
    pauses = Pauses.of(intervals)
    parts = pauses.working(begin, begin + pauses.lasting(begin, seconds))
    assert sum(until - since for since, until in parts) == pytest.approx(seconds)
    for since, until in parts:
        assert all(over <= since or pause >= until for pause, over in pauses.intervals)
