"""What the experiment on moving states makes of what reducers have noted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.migration import RATE, Setup, Watched, _watched, moving
from experiments.watching import noted, stream
from jobs.watched import Scheduled, WatchedCount


def test_a_tenth_of_the_keys_moves() -> None:
    assert moving(Setup(20_000)).mean() == pytest.approx(0.1, abs=0.02)


def test_records_are_due_at_an_even_pace() -> None:
    due = stream(10, 0.5, RATE, seed=0)["due"].to_numpy()
    assert len(due) == RATE // 2 and np.allclose(np.diff(due), 1 / RATE)


def test_delays_count_from_when_records_were_due(tmp_path: Path) -> None:
    """Two reducers; the second is silent for 3 s after the move."""
    rows = {"1": [(100.5, 100.0, 0), (108.5, 108.0, 0)], "2": [(107.9, 107.0, 1), (110.9, 108.5, 1)]}
    for name, of_process in rows.items():
        np.array(of_process).tofile(tmp_path / f"{name}.times")
    (tmp_path / "began").write_text("100.0")
    found = _watched(noted(tmp_path), setup=Setup(keys=2, seconds=16.0, at=8.0))
    assert found.due.tolist() == pytest.approx([0.0, 7.0, 8.0, 8.5])
    assert found.delay.tolist() == pytest.approx([0.5, 0.9, 0.5, 2.4])
    assert found.silent(7.75, 10.0) == pytest.approx(3.0) and found.silent(8.0, 10.0) == 0.0


def test_the_least_rate_is_that_of_the_worst_window() -> None:
    due = np.arange(0, 2, 1 / RATE)
    held = np.where((due >= 1.0) & (due < 1.25), 0.25, 0.0)
    still = np.zeros(len(due), dtype=bool)
    assert Watched(due, held, still, ()).rate(0.5, 2.0) == pytest.approx(0.0, abs=0.01)
    assert Watched(due, 0 * held, still, 0.0).rate(0.5, 2.0) == pytest.approx(1.0, abs=0.01)


def test_a_count_notes_only_what_was_due_at_a_moment(tmp_path: Path) -> None:
    count = WatchedCount(str(tmp_path))
    [(key, first)] = Scheduled(str(tmp_path)).map({"key": 7, "due": None, "count": 3})
    (tmp_path / "began").write_text("5.0")
    [(_, second)] = Scheduled(str(tmp_path)).map({"key": 7, "due": 1.5, "count": 1})
    state = count.reduce(count.reduce(count.zero(), first), second)
    assert (key, count.finish(state)) == (7, {"count": 4})
    [file] = tmp_path.glob("*.times")
    assert np.fromfile(file).reshape(-1, 3)[:, 1:].tolist() == [[6.5, 7.0]]
