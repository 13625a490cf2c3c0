"""Profiles of earlier runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpa.errors import PlacementError
from dpa.placement.profile import Profile


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


def test_costs_and_traffic_are_those_of_a_second_of_the_stream() -> None:
    graph = Profile.of_document(report()).graph({"mapper": 2, "reducer": 3}).graph
    assert [(group.name, group.tasks, group.cost) for group in graph.groups] == [
        ("mapper", 2, 1.0),
        ("reducer", 3, pytest.approx(0.9)),
    ]
    assert [(edge.upstream, edge.downstream, edge.traffic) for edge in graph.edges] == [("mapper", "reducer", 1_100.0)]


def test_a_stage_of_the_same_size_keeps_its_skew() -> None:
    division = Profile.of_document(report()).graph({"mapper": 2, "reducer": 2})
    assert division.tasks["reducer/0"] == (("reducer", 1),)
    alike = Profile.of_document(report()).graph({"mapper": 2, "reducer": 2}, divide=False)
    assert [group.name for group in alike.graph.groups] == ["mapper", "reducer"]


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(PlacementError, match=r"no profile at .*: No such file"):
        Profile.of_report(path)
    path.write_text("{}")
    with pytest.raises(PlacementError, match=r"is not the report\.json of a run that ended"):
        Profile.of_report(path)
    path.write_text(json.dumps({**report(), "seconds": {"stream": 0.0}}))
    with pytest.raises(PlacementError, match="its stream took no time"):
        Profile.of_report(path)
    path.write_text(json.dumps({**report(), "schema": "dpa-report-1"}))
    with pytest.raises(
        PlacementError, match="its schema is 'dpa-report-1', and this dpa reads 'dpa-report-2'; run the"
    ):
        Profile.of_report(path)
    path.write_text(json.dumps({**report(), "traffic": []}))
    with pytest.raises(PlacementError, match="it has no `traffic`; run the job again on Ray"):
        Profile.of_report(path)
    for stage in (idle := report())["stages"]:
        for task in stage["tasks"]:
            task["cpu_seconds"] = 0.0
    path.write_text(json.dumps(idle))
    with pytest.raises(PlacementError, match="no task has used any processor time"):
        Profile.of_report(path)
    path.write_text(json.dumps(report()))
    with pytest.raises(PlacementError, match="no cost of stage 'sort', only of mapper, reducer"):
        Profile.of_report(path).graph({"sort": 1})
