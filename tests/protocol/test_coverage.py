"""What runs of the simulator reach, and what is argued away because none does."""

from __future__ import annotations

from dpa.simulation.coverage import APART, UNREACHED, Coverage, cells, pairs
from experiments.interleavings_coverage import cover


def test_runs_do_not_reach_what_is_argued_away() -> None:
    coverage = Coverage()
    cover(coverage, 44)
    assert coverage.wrong() == []
    assert sum(coverage.cells[cell] > 0 for cell in cells()) > 60, "it counts"
    assert sum(coverage.pairs[pair] > 0 for pair in pairs()) > 5


def test_what_is_reached_although_it_is_argued_away_is_told_and_so_is_what_no_longer_exists(monkeypatch) -> None:
    coverage = Coverage()
    assert coverage.wrong() == []
    [unreached, *_], [apart, *_] = UNREACHED, APART
    coverage.cells[unreached] += 1
    coverage.pairs[apart] += 1
    monkeypatch.setitem(UNREACHED, ("Machine", "Event", "gone"), "it was removed")
    assert coverage.wrong() == [unreached, ("Machine", "Event", "gone"), apart]
