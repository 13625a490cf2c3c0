"""What the placement experiment predicts for jobs with measured costs."""

import math

import pytest

from dpa.placement.allocators.even import EvenAllocator
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import GroupEdge, TaskGraph, TaskGroup
from experiments.placement.workloads import RATES, WORKLOADS, Comparison, features_kept, kept_at, kept_over_rates

GRAPH = TaskGraph(
    (TaskGroup("read", 4, 2.0), TaskGroup("count", 4, 2.0), TaskGroup("rank", 1, 0.1)),
    (GroupEdge("read", "count", 8e6), GroupEdge("count", "rank", 1e6)),
)


def test_more_room_keeps_more_inside_and_with_room_for_all_everything_but_without_room_nothing_is_known() -> None:
    kept = [kept_at([TopDownAllocator()], GRAPH, room) for room in (1.5, 2.0, 4.0)]
    assert kept == sorted(kept)
    assert kept[-1] == pytest.approx(1.0)
    assert math.isnan(kept_at([EvenAllocator()], GRAPH, 0.9))


def test_placed_anew_a_job_keeps_at_least_what_it_does_placed_once_and_features_are_compared_on_one_graph() -> None:
    kept = kept_over_rates(GRAPH)
    assert {len(line) for line in kept.values()} == {len(RATES)}
    assert all(a >= b - 1.0 for a, b in zip(kept["TD, placed anew"], kept["TD, placed once"], strict=True))
    kept = features_kept(GRAPH)
    assert kept["TD with search"] >= kept["TD by significance"] >= kept["even"] > 0


def test_a_comparison_says_how_far_td_is_ahead_and_how_far_runs_are_off() -> None:
    kept = {"TD": [math.nan, 0.6, 0.9], "even": [0.1, 0.3, math.nan]}
    found = Comparison(WORKLOADS[0], GRAPH, kept, {("even", 2.0): (0.3, 0.25), ("top_down", 2.0): (0.6, 0.62)})
    assert found.ahead_of("even") == pytest.approx(1.0)
    assert found.off == pytest.approx(0.05)
