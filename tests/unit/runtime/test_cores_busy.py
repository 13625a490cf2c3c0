"""How busy a node is, from what Linux counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpa.runtime.actors._process import CoresBusy


def test_idle_time_and_waiting_for_a_disk_are_not_busy(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 70 0\ncpu0 1 2 3\n")
    cores = CoresBusy(stat)
    stat.write_text("cpu  140 10 70 815 55 2 3 5 999 0\n")  # 80 busy, 20 not; guests' time is in others' already
    assert cores.since_last() == pytest.approx(0.8)
    assert cores.since_last() == 0.0  # no time has passed


@pytest.mark.parametrize("content", [None, "", "cpu what is this"], ids=["no file", "empty", "other words"])
def test_where_nothing_is_said_nothing_is_busy(content: str | None, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    if content is not None:
        stat.write_text(content)
    cores = CoresBusy(stat)
    assert cores.since_last() == 0.0
