"""Profiles of earlier runs, and what is done to graphs and clusters before they are allocated."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from placement_samples import pipeline

from dpa.errors import PlacementError
from dpa.placement import scores
from dpa.placement.allocators.top_down import TopDownAllocator
from dpa.placement.model import Cluster, GroupEdge, Node, Placement, TaskGraph, TaskGroup
from dpa.placement.profile import Profile
from dpa.placement.relaxations import balanced, divided


def report() -> dict[str, Any]:
    """What matters of a report: a source and a skewed reducer, four seconds of stream."""
    return {
        "schema": "dpa-report-2",
        "seconds": {"stream": 4.0},
        "stages": [
            {"name": "mapper", "tasks": [{"cpu_seconds": 2.0}, {"cpu_seconds": 2.0}]},
            {"name": "reducer", "tasks": [{"cpu_seconds": 0.4}, {"cpu_seconds": 3.2}]},
        ],
        "traffic": [
            {"source": "mapper", "target": "reducer", "bytes": 4_000},
            {"source": "reducer", "target": "mapper", "bytes": 400},
            {"source": "reducer", "target": "reducer", "bytes": 99},
        ],
    }


def test_costs_and_traffic_are_those_of_a_second_of_the_stream_and_a_stage_of_the_same_size_keeps_its_skew() -> None:
    graph = Profile.of_document(report()).graph({"mapper": 2, "reducer": 3}).graph
    assert [(group.name, group.tasks, group.cost) for group in graph.groups] == [
        ("mapper", 2, 1.0),
        ("reducer", 3, pytest.approx(0.9)),
    ]
    assert [(edge.upstream, edge.downstream, edge.traffic) for edge in graph.edges] == [("mapper", "reducer", 1_100.0)]
    division = Profile.of_document(report()).graph({"mapper": 2, "reducer": 2})
    assert division.tasks["reducer/0"] == (("reducer", 1),)
    alike = Profile.of_document(report()).graph({"mapper": 2, "reducer": 2}, divide=False)
    assert [group.name for group in alike.graph.groups] == ["mapper", "reducer"]


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    path, idle = tmp_path / "report.json", report()
    for stage in idle["stages"]:
        for task in stage["tasks"]:
            task["cpu_seconds"] = 0.0
    with pytest.raises(PlacementError, match=r"no profile at .*: No such file"):
        Profile.of_report(path)
    for document, why in (
        ({}, r"is not the report\.json of a run that ended"),
        ({**report(), "seconds": {"stream": 0.0}}, "its stream took no time"),
        (
            {**report(), "schema": "dpa-report-1"},
            "its schema is 'dpa-report-1', and this dpa reads 'dpa-report-2'; run the",
        ),
        ({**report(), "traffic": []}, "it has no `traffic`; run the job again on Ray"),
        (idle, "no task has used any processor time"),
    ):
        path.write_text(json.dumps(document))
        with pytest.raises(PlacementError, match=why):
            Profile.of_report(path)
    path.write_text(json.dumps(report()))
    with pytest.raises(PlacementError, match="no cost of stage 'sort', only of mapper, reducer"):
        Profile.of_report(path).graph({"sort": 1})


def test_balanced_nodes_get_their_share_whatever_they_have() -> None:
    graph = pipeline((40, 40), cost=1.0)
    cluster = Cluster((Node("small", 4.0), Node("large", 8.0)))
    placement = TopDownAllocator().allocate(graph, balanced(graph, cluster, 1.05))
    shares = scores.task_costs(graph) @ placement.counts / scores.rooms(cluster)
    assert shares.max() <= 1.05 * 2 / 12 + 1e-9
    assert scores.overloaded(placement) == []
    assert balanced(graph, cluster, 20.0) == cluster  # a tolerance beyond the capacity changes nothing


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


def test_equal_tasks_stay_one_group_and_idle_ones_divide_traffic_by_their_number() -> None:
    graph = divided(pipeline((3,), cost=1.0), {"stage 0": [0.30, 0.33, 0.32]}).graph
    assert [(group.name, group.tasks) for group in graph.groups] == [("stage 0", 3)]
    assert graph.cost == pytest.approx(0.95)
    graph = TaskGraph((TaskGroup("a", 2, 0.0), TaskGroup("b", 1, 0.0)), (GroupEdge("a", "b", 8.0),))
    assert divided(graph, {"a": [0.0, 0.0]}).graph.edges[0].traffic == pytest.approx(8.0)


def test_costs_of_what_is_not_there_and_names_of_other_groups_are_refused() -> None:
    with pytest.raises(PlacementError, match="given for 'sort'; the task groups are stage 0"):
        divided(pipeline((3,)), {"sort": [1.0]})
    with pytest.raises(PlacementError, match="2 costs are given for the 3 tasks of 'stage 0'"):
        divided(pipeline((3,)), {"stage 0": [1.0, 2.0]})
    with pytest.raises(PlacementError, match="must be above 0"):
        balanced(pipeline((3,)), Cluster.alike(1, 1.0), 0.0)
    graph = TaskGraph((TaskGroup("a", 2, 1.0), TaskGroup("a/0", 1, 1.0)))
    with pytest.raises(PlacementError, match="another group's name: a, a/0"):
        divided(graph, {"a": [0.1, 0.9]})
