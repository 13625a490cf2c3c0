"""What runs of the simulator reach, and what is argued away because none does."""

from __future__ import annotations

import json

from experiments.coverage import APART, UNREACHED, Coverage, Triple, cells, pairs
from experiments.harness import RESULTS
from experiments.interleavings_coverage import cover

MEASURED = json.loads((RESULTS / "interleavings_coverage.json").read_text())["data"]


def measured(what: str) -> dict[Triple, int]:
    return {(one, other, where): times for one, other, where, times in MEASURED[what]}


def test_every_rule_in_every_state_and_every_pair_of_conversations_was_looked_for() -> None:
    assert measured("cells").keys() == set(cells())
    assert measured("pairs").keys() == set(pairs())


def test_what_no_run_reached_is_argued_away_and_nothing_else_is() -> None:
    assert {cell for cell, times in measured("cells").items() if not times} == UNREACHED.keys()
    assert {pair for pair, times in measured("pairs").items() if not times} == APART.keys()


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
