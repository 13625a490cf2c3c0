"""What is done to graphs and clusters before they are allocated."""

from __future__ import annotations

import numpy as np
import pytest
from placement_samples import pipeline

from dpa.errors import PlacementError
from dpa.placement import scores
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Cluster, GroupEdge, Node, Placement, TaskGraph, TaskGroup
from dpa.placement.relaxations import balanced, divided


def test_balanced_nodes_get_their_share_whatever_they_have() -> None:
    graph = pipeline((40, 40), cost=1.0)
    cluster = Cluster((Node("small", 4.0), Node("large", 8.0)))
    placement = TopDownAllocator().allocate(graph, balanced(graph, cluster, 1.05))
    shares = scores.task_costs(graph) @ placement.counts / scores.rooms(cluster)
    assert shares.max() <= 1.05 * 2 / 12 + 1e-9
    assert scores.overloaded(placement) == []


def test_a_tolerance_beyond_the_capacity_changes_nothing() -> None:
    cluster = Cluster.alike(2, 1.0)
    assert balanced(pipeline((2,), cost=1.9), cluster, 1.2) == cluster


def test_a_skewed_group_becomes_groups_of_about_equal_tasks() -> None:
    graph = TaskGraph((TaskGroup("read", 2, 0.4), TaskGroup("count", 4, 1.2)), (GroupEdge("read", "count", 120.0),))
    division = divided(graph, {"count": [0.1, 0.8, 0.11, 0.1]})
    result = division.graph
    assert [(group.name, group.tasks) for group in result.groups] == [("read", 2), ("count/0", 1), ("count/1", 3)]
    assert result.cost == pytest.approx(0.4 + 1.11)
    assert result.traffic == pytest.approx(120.0)
    assert result.edges[0].traffic == pytest.approx(120.0 * 0.8 / 1.11)
    placement = Placement(result, Cluster.alike(2, 2.0), np.array([[1, 1], [0, 1], [3, 0]]))
    assert division.nodes(placement) == {"read": [0, 1], "count": [0, 1, 0, 0]}  # task 1 is the dear one


def test_equal_tasks_stay_one_group() -> None:
    graph = divided(pipeline((3,), cost=1.0), {"stage 0": [0.30, 0.33, 0.32]}).graph
    assert [(group.name, group.tasks) for group in graph.groups] == [("stage 0", 3)]
    assert graph.cost == pytest.approx(0.95)


def test_costs_of_what_is_not_there_are_refused() -> None:
    with pytest.raises(PlacementError, match="given for 'sort'; the task groups are stage 0"):
        divided(pipeline((3,)), {"sort": [1.0]})
    with pytest.raises(PlacementError, match="2 costs are given for the 3 tasks of 'stage 0'"):
        divided(pipeline((3,)), {"stage 0": [1.0, 2.0]})
    with pytest.raises(PlacementError, match="must be above 0"):
        balanced(pipeline((3,)), Cluster.alike(1, 1.0), 0.0)


def test_a_part_does_not_take_the_name_of_another_group() -> None:
    graph = TaskGraph((TaskGroup("a", 2, 1.0), TaskGroup("a/0", 1, 1.0)))
    with pytest.raises(PlacementError, match="another group's name: a, a/0"):
        divided(graph, {"a": [0.1, 0.9]})


def test_idle_tasks_divide_traffic_by_their_number() -> None:
    graph = TaskGraph((TaskGroup("a", 2, 0.0), TaskGroup("b", 1, 0.0)), (GroupEdge("a", "b", 8.0),))
    assert divided(graph, {"a": [0.0, 0.0]}).graph.edges[0].traffic == pytest.approx(8.0)
