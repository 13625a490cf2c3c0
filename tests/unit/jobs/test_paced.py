"""Work that is nothing but waiting, or nothing but work: that it takes its time, with a clock of the test's own."""

from __future__ import annotations

import pytest

import jobs.costs
import jobs.paced
from dpa.testing import check_reducer_laws
from jobs.costs import BusyCount
from jobs.paced import Work


class Clock:
    """Stands for the module `time`; every sleep lasts a little too long."""

    def __init__(self, too_long: float = 0.0) -> None:
        self.now = 100.0
        self._too_long = too_long

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self._too_long


@pytest.mark.parametrize("block_seconds", [0.0002, 0.003, 0.05])
@pytest.mark.parametrize("factor", [1.0, 10 / 3])
def test_work_that_is_slowed_down_takes_so_many_times_as_long(
    block_seconds: float, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(jobs.paced, "time", clock)
    work, began = Work(), clock.now
    for _ in range(100):
        before = clock.now
        work.spend(block_seconds)
        clock.now += (factor - 1) * (clock.now - before)  # as `dpa.runtime.actors._task` does
    assert clock.now - began == pytest.approx(100 * block_seconds * factor)


def test_a_sleep_that_lasts_too_long_shortens_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(too_long=0.0007)
    monkeypatch.setattr(jobs.paced, "time", clock)
    work, began = Work(), clock.now
    for _ in range(1_000):
        work.spend(0.0005)
    assert clock.now - began == pytest.approx(0.5, abs=0.002)


def test_a_busy_count_spends_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(jobs.costs, "time", clock)
    counted, began = BusyCount(20.0), clock.now
    assert counted.finish(counted.reduce(counted.reduce(counted.zero(), None), None)) == {"count": 2}
    assert clock.now - began == pytest.approx(2 * 20e-6, abs=5e-6)
    check_reducer_laws(BusyCount(0.0), [1, 2])
