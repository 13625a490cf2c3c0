"""Tasks that move to other nodes by what was measured, in virtual time on nodes whose tasks share cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.options import NoBalancingOptions
from dpa.errors import ExecutorError
from dpa.placement.model import Cluster, OnlineOptions
from dpa.placement.online import Look, OnlinePlacement
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.events import Rescale, TaskRequest
from dpa.protocol.wire.nodes import Placed
from dpa.sources.splits import memory_splits
from experiments.otd.methods import METHODS, OTD
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulated_jobs.random_jobs import Collect, CollectAlone
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedRun
from experiments.simulation.violation import InvariantViolationError

MODES: dict[str, dict[str, Any]] = {"merge": {"consistency": "merge"}, "migrate": {"consistency": "migrate"}}
CROWDED = {MAPPER: ["a", "a"], REDUCER: ["a", "a", "a", "a"]}
"""Node `b` has nothing to do."""


def run(
    online: OnlineOptions | None,
    *,
    records: int = 4_000,
    nodes: tuple[str, ...] = ("a", "b"),
    requests: tuple[tuple[float, TaskRequest], ...] = (),
    **stage: Any,
) -> SimulatedRun:
    """A job of 50 keys, whose tasks are all on one node of one core at first; checks its result."""
    placement = None if online is None else OnlinePlacement(online, Cluster.alike(2, 1.0), nodes, "top_down", 1.2)
    table = pa.table({"key": [f"key {number % 50}" for number in range(records)], "number": range(records)})
    reducer = CollectAlone() if stage.get("consistency") == "migrate" else Collect()
    job = map_reduce_job(
        memory_splits(table, 100),
        map_task(None, reducer, values=("number",), batch_records=20),
        mappers=2,
        reducers=4,
        service_seconds=lambda reducer: 0.004,
        ticks=None,
        balance=NoBalancingOptions(),
        **stage,
    )
    made = SimulatedCluster(replace(job, cores=1, placed=Placed(CROWDED, placement), requests=requests), seed=1).run()
    rows = [row for share in made.shares[REDUCER] for row in share.table.to_pylist()]
    assert sorted(number for row in rows for number in row["records"]) == list(range(records))
    return made


@pytest.mark.parametrize(
    ("policy", "mode"),
    [("improve", "merge"), ("improve", "migrate"), (METHODS[OTD].policy, "merge"), ("replan", "migrate")],
)
def test_tasks_of_a_crowded_node_move_to_the_other_and_the_job_ends_earlier(policy: Any, mode: str) -> None:
    still = run(None, **MODES[mode])
    moved = run(OnlineOptions(policy=policy, seconds=1.0), **MODES[mode])
    assert {step.stage for step in moved.snapshot.steps} <= {MAPPER, REDUCER}
    assert all(step.moved and step.reason for step in moved.snapshot.steps)
    assert len({use.node for use in moved.snapshot.use.values()}) == 2
    assert moved.seconds < 0.75 * still.seconds


class Raising:
    def __init__(self, online: OnlinePlacement) -> None:
        pass

    def look(self, deployment: object) -> Look:
        raise OSError("no licence")


def test_a_policy_of_the_users_that_raises_is_named_with_its_key() -> None:
    said = r"Raising.look failed on .*`placement.online.policy`: OSError: no licence"
    with pytest.raises(InvariantViolationError, match=said) as error:
        run(OnlineOptions(policy=f"{__name__}:Raising", seconds=1.0))
    assert isinstance(error.value.__cause__, ExecutorError)


def test_improved_once_it_stays_and_says_so() -> None:
    found = run(OnlineOptions(seconds=1.0))
    assert len(found.snapshot.steps) == 1, "all tasks that move do so at once"
    assert found.snapshot.placement_counts["no better placement"] >= 3


def test_who_asks_has_an_answer_beside_a_placement_that_is_looked_at() -> None:
    requests = ((1.0, Rescale(7, REDUCER, 5)), (5.0, Rescale(8, REDUCER, 3)))
    found = run(OnlineOptions(seconds=1.0), requests=requests)
    assert found.answers.keys() == {7, 8}
    assert found.snapshot.steps[0].at == pytest.approx(1.0, abs=0.1) and not found.answers[7].refused


def test_a_task_on_a_node_that_is_none_of_the_placement_keeps_others_where_they_are() -> None:
    found = run(OnlineOptions(seconds=1.0), nodes=("x", "b"))
    assert not found.snapshot.steps
    assert found.snapshot.placement_counts["on a node that may not be used"] >= 3


def test_nothing_moves_in_the_last_moments() -> None:
    found = run(OnlineOptions(seconds=1.0), records=500)
    assert not found.snapshot.steps
