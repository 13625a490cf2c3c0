"""The job files with `stages:` over small inputs, one of them on Ray, against their references in Spark."""

from __future__ import annotations

import pytest
from topologies import TOPOLOGIES, Topology

from dpa.testing import LocalBackend

ON_RAY = "bargains"
"""A join of a source with a stage. A chain is on Ray in `test_feeds`, and stages of one source in `test_runtime`."""


def quick(topology: Topology) -> list[str]:
    """Settings that save time: two tasks for the skewed step or, failing that, for the result; one for any other; no
    baseline."""
    two = topology.skewed or topology.result
    steps = [step.name for step in topology.job().spec.steps if step.is_stage]
    return [
        *(f"stages.{name}.parallelism={2 if name == two else 1}" for name in steps),
        f"stages.{topology.result}.reference.baseline=false",
    ]


@pytest.mark.usefixtures("ray", "spark")
@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_the_result_of_a_job_file_with_stages_equals_sparks(topology: Topology) -> None:
    backend = "ray" if topology.name == ON_RAY else LocalBackend()
    result = topology.job(*quick(topology)).run(backend=backend)
    report = result.report
    assert report[topology.result].reference.checked
    assert report.reference.matches, report.reference.differences
    assert report[topology.result].reference.rows == result.table(topology.result).num_rows > 0
