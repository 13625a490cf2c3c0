"""Rows that wait for the end of their epoch: counted in steps, exact, and each once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.measure.timing import RowWaits, Waited

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


def test_sums_are_exact_late_in_the_day_of_many_rows() -> None:
    epoch, step = 1_800_000_000.0, 0.0625
    waits = waits_of([(100_000, epoch + number * step) for number in range(1_000)])
    found = waits.taken(epoch + 1_000 * step)
    assert found.seconds == 100_000 * step * sum(range(1, 1_001))


@given(steps, st.floats(100, 200))
def test_the_sum_is_that_of_all_rows(found: list[tuple[int, float]], now: float) -> None:
    found = sorted(found, key=lambda step: step[1])
    taken = waits_of(found).taken(now)
    assert taken.rows == sum(rows for rows, _ in found)
    assert taken.seconds == pytest.approx(sum(rows * (now - at) for rows, at in found))
    assert taken.longest == max((now - at for rows, at in found if rows), default=0.0)
