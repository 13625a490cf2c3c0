"""Plans and their difference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_samples import moved, pipeline

from dpa.errors import PlacementError
from dpa.placement._moves import Plan, aligned
from dpa.placement.model import Cluster, Placement

COUNTS = st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=2)


def placed(counts: list[list[int]], totals: tuple[int, int]) -> Placement:
    """A placement of two groups on three nodes; what is missing is on the last."""
    table = np.array(counts)
    table[:, 2] = np.array(totals) - table[:, :2].sum(axis=1)
    return Placement(pipeline(totals), Cluster.alike(3, 9.0), table)


@settings(max_examples=50)
@given(before=COUNTS, after=COUNTS)
def test_as_few_tasks_move_as_the_counts_allow(before: list[list[int]], after: list[list[int]]) -> None:
    old, new = placed(before, (7, 8)), placed(after, (7, 8))
    plan = Plan.first(old)
    following = plan.next(new)
    assert (plan.number, following.number) == (0, 1)
    assert len(moved(plan, following)) == np.maximum(new.counts - old.counts, 0).sum()
    assert Placement.of_tasks(new.graph, new.cluster, following.nodes) == new


@settings(max_examples=50)
@given(before=COUNTS, after=COUNTS)
def test_exchanging_equal_nodes_moves_no_more(before: list[list[int]], after: list[list[int]]) -> None:
    old, new = placed(before, (7, 8)), placed(after, (7, 8))
    plan, exchanged = Plan.first(old), aligned(new, old)
    assert sorted(exchanged.counts.T.tolist()) == sorted(new.counts.T.tolist())
    if sorted(old.counts.T.tolist()) == sorted(new.counts.T.tolist()):
        assert moved(plan, plan.next(exchanged)) == []


def test_a_plan_follows_another_whatever_its_tasks_cost_by_now() -> None:
    first = placed([[7, 0, 0], [8, 0, 0]], (7, 8))
    dearer = Placement(first.graph.scaled(2.0), first.cluster, first.counts.copy())
    assert Plan.first(first).next(dearer).number == 1
    with pytest.raises(PlacementError, match="the same task groups on the same nodes"):
        aligned(Placement(first.graph, Cluster.alike(4, 9.0), np.array([[7, 0, 0, 0], [8, 0, 0, 0]])), first)


def test_a_plan_is_of_one_graph_and_cluster() -> None:
    plan = Plan.first(placed([[7, 0, 0], [8, 0, 0]], (7, 8)))
    with pytest.raises(PlacementError, match="the same task groups on the same nodes"):
        plan.next(Placement(pipeline((7,)), Cluster.alike(3, 9.0), np.array([[7, 0, 0]])))
