"""Tasks that come, go and move while records flow, in virtual time: stages whose number of tasks follows their work,
tasks that move to other nodes by what was measured, and tasks that take very long to start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from wires import job_of

from dpa.balance.elastic import ElasticOptions
from dpa.balance.options import NoBalancingOptions
from dpa.driver.summary import stage_report
from dpa.errors import ExecutorError
from dpa.placement.model import Cluster, OnlineOptions
from dpa.placement.online import Look, OnlinePlacement
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.events import MoveTasks, Rescale, TaskRequest
from dpa.protocol.wire.nodes import Placed
from dpa.result import StageReport
from experiments.otd.methods import METHODS, OTD
from experiments.simulated_jobs.random_jobs import Collect, CollectAlone
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network, SimulatedJob, SimulatedRun
from experiments.simulation.violation import InvariantViolationError

SERVICE = 0.02


def collecting(records: int, split: int, **options: Any) -> SimulatedJob:
    """Records of 50 keys in turn; without balancing."""
    keys = [f"key {number % 50}" for number in range(records)]
    reducer = CollectAlone() if options.get("consistency") == "migrate" else Collect()
    return job_of(keys, split, 20, reducer, ticks=None, balance=NoBalancingOptions(), **options)


def run(job: SimulatedJob) -> SimulatedRun:
    """Its result is checked."""
    made = SimulatedCluster(job, seed=1).run()
    rows = [row for share in made.shares[REDUCER] for row in share.table.to_pylist()]
    records = sum(split.rows for split in job.graph[MAPPER].input.splits)
    assert sorted(number for row in rows for number in row["records"]) == list(range(records))
    assert len(rows) == 50
    return made


# --- stages whose number of tasks follows their work


def due_of(load: Callable[[float], float], seconds: float) -> list[float]:
    """When each record is due, where what is due would keep so many tasks busy."""
    at = np.arange(0.0, seconds, 0.01)
    made = np.cumsum([load(moment) * 0.01 / SERVICE for moment in at])
    return list(np.interp(np.arange(1, int(made[-1]) + 1), made, at))


def elastic_run(
    due: list[float],
    reducers: int,
    elastic: ElasticOptions,
    start_seconds: float = 2.0,
    network: Network | None = None,
    **options: Any,
) -> SimulatedRun:
    """A job whose records come when they are due."""
    job = collecting(
        len(due),
        len(due),
        mappers=1,
        reducers=reducers,
        map_seconds=0.0001,
        service_seconds=lambda index: SERVICE,
        elastic=elastic,
        **{"in_flight_records": 100_000, "quantum_records": 5, **options},
    )

    def is_due(stage: str, index: int, made: int) -> float:
        return due[made - 1] if made else 0.0

    return run(replace(job, due=is_due, start_seconds=start_seconds, network=network or job.network))


def counts(found: SimulatedRun, first: int) -> list[int]:
    """The number of reducers, from change to change."""
    numbers = [first]
    for step in found.snapshot.steps:
        numbers.append(numbers[-1] + len(step.started) - len(step.stopped))
    return numbers


@pytest.mark.parametrize(("mode", "queue_seconds"), [("merge", 0.5), ("migrate", None)])
def test_a_step_is_answered_by_one_change_to_the_number_that_it_asks_for(
    mode: str, queue_seconds: float | None
) -> None:
    due = due_of(lambda at: 0.7 if at < 8 else 4.5, 35)
    found = elastic_run(due, 1, ElasticOptions(max_tasks=16), queue_seconds=queue_seconds, consistency=mode)
    (number,) = counts(found, 1)[1:]
    assert 5 <= number <= 7
    (step,) = found.snapshot.steps
    assert 10 < step.at < 12 and "records/s offered" in step.reason
    assert "at a bound" not in found.snapshot[REDUCER].scaling_counts


def test_an_idle_stage_gets_fewer_tasks_in_one_change() -> None:
    due = due_of(lambda at: 4.0 if at < 5 else 0.6, 40)
    assert counts(elastic_run(due, 6, ElasticOptions(max_tasks=6), queue_seconds=0.5), 6) == [6, 1]


def test_a_stage_grows_though_its_tasks_are_not_busy_where_each_piece_of_work_waits_for_messages() -> None:
    """Twenty records at a time, and a network that takes longer than they do: they wait at the source."""
    due, slow = due_of(lambda at: 0.6, 45), Network(0.5, 0.6)
    found = elastic_run(due, 1, ElasticOptions(max_tasks=4), network=slow, in_flight_records=10, queue_seconds=None)
    stage = found.snapshot[REDUCER]
    assert stage.tasks[0].busy_seconds < 0.5 * found.snapshot.at
    assert max(counts(found, 1)) > 1


@pytest.mark.parametrize("mode", ["merge", "migrate"])
def test_shares_of_tasks_that_come_are_of_the_time_that_each_took_part(mode: str) -> None:
    due = due_of(lambda at: 3.5, 20)
    found = elastic_run(due, 1, ElasticOptions(max_tasks=6), 0.0, queue_seconds=0.5, consistency=mode)
    report = stage_report(StageReport(REDUCER, "operator"), found.snapshot, found.snapshot.at, (), {})
    assert len(report.tasks) > 1 and report.changes
    assert report.load.busy <= report.load.busiest <= 1.0
    assert sum(task.even_share for task in report.tasks) == pytest.approx(1.0)
    throughout = [task.even_share for task in report.tasks if task.lived_seconds == found.snapshot.at]
    others = [task.even_share for task in report.tasks if task.lived_seconds < found.snapshot.at]
    assert min(throughout) > max(others)


def test_a_source_gets_the_tasks_whose_rows_the_stage_that_it_feeds_can_take() -> None:
    job = collecting(
        6_000,
        50,
        mappers=1,
        reducers=4,
        map_seconds=0.01,
        service_seconds=lambda index: SERVICE,
        queue_seconds=0.5,
        in_flight_records=100_000,
    )
    source = replace(job.graph[MAPPER], elastic=ElasticOptions(max_tasks=8))
    graph = replace(job.graph, stages=(source, job.graph[REDUCER]))
    found = SimulatedCluster(replace(job, graph=graph), seed=1).run().snapshot
    assert [len(step.started) for step in found.steps if step.stage == MAPPER] == [1]  # 4 reducers take 200 a second


# --- tasks that move to other nodes

CROWDED = {MAPPER: ["a", "a"], REDUCER: ["a", "a", "a", "a"]}
"""Node `b` has nothing to do."""


def placed_run(
    online: OnlineOptions | None,
    *,
    records: int = 4_000,
    nodes: tuple[str, ...] = ("a", "b"),
    requests: tuple[tuple[float, TaskRequest], ...] = (),
    mode: str = "merge",
) -> SimulatedRun:
    """Tasks are all on one node of one core at first."""
    placement = None if online is None else OnlinePlacement(online, Cluster.alike(2, 1.0), nodes, "top_down", 1.2)
    job = collecting(records, 100, mappers=2, reducers=4, service_seconds=lambda reducer: 0.004, consistency=mode)
    return run(replace(job, cores=1, placed=Placed(CROWDED, placement), requests=requests))


@pytest.mark.parametrize(
    ("policy", "mode"),
    [("improve", "merge"), ("improve", "migrate"), (METHODS[OTD].policy, "merge"), ("replan", "migrate")],
)
def test_tasks_of_a_crowded_node_move_to_the_other_and_the_job_ends_earlier(policy: Any, mode: str) -> None:
    still = placed_run(None, mode=mode)
    moved = placed_run(OnlineOptions(policy=policy, seconds=1.0), mode=mode)
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
        placed_run(OnlineOptions(policy=f"{__name__}:Raising", seconds=1.0))
    assert isinstance(error.value.__cause__, ExecutorError)


def test_improved_once_it_stays_and_says_so() -> None:
    found = placed_run(OnlineOptions(seconds=1.0))
    assert len(found.snapshot.steps) == 1, "all tasks that move do so at once"
    assert found.snapshot.placement_counts["no better placement"] >= 3


def test_who_asks_has_an_answer_beside_a_placement_that_is_looked_at() -> None:
    requests = ((1.0, Rescale(7, REDUCER, 5)), (5.0, Rescale(8, REDUCER, 3)))
    found = placed_run(OnlineOptions(seconds=1.0), requests=requests)
    assert found.answers.keys() == {7, 8}
    assert found.snapshot.steps[0].at == pytest.approx(1.0, abs=0.1) and not found.answers[7].refused


def test_a_task_on_a_node_that_is_none_of_the_placement_keeps_others_where_they_are() -> None:
    found = placed_run(OnlineOptions(seconds=1.0), nodes=("x", "b"))
    assert not found.snapshot.steps
    assert found.snapshot.placement_counts["on a node that may not be used"] >= 3


def test_nothing_moves_in_the_last_moments() -> None:
    found = placed_run(OnlineOptions(seconds=1.0), records=500)
    assert not found.snapshot.steps


# --- tasks that take very long to start

RECORDS, VERY_LONG = 400, 3600.0


def short(consistency: str) -> SimulatedJob:
    """Two mappers and two reducers, which are busy for about half a second."""
    return collecting(RECORDS, 20, mappers=2, reducers=2, map_seconds=0.002, consistency=consistency)


@cache
def undisturbed(consistency: str) -> SimulatedRun:
    return SimulatedCluster(short(consistency), 0).run()


def asked(consistency: str, *requests: TaskRequest, **options: float) -> SimulatedRun:
    """A run that is asked for changes when it has read 60 % of its input."""
    at = 0.6 * undisturbed(consistency).seconds
    slow = replace(short(consistency), requests=tuple((at, request) for request in requests), start_seconds=VERY_LONG)
    return SimulatedCluster(replace(slow, **options), 0).run()


@pytest.mark.parametrize("consistency", ["merge", "migrate"])
@pytest.mark.parametrize(
    "request_", [Rescale(1, REDUCER, 4), MoveTasks(1, REDUCER, (0,)), Rescale(1, MAPPER, 3), MoveTasks(1, MAPPER, (1,))]
)
def test_a_stage_with_nothing_left_to_process_waits_for_no_task_that_never_came_up(
    request_: TaskRequest, consistency: str
) -> None:
    run = asked(consistency, request_, Rescale(2, request_.stage, 5))
    assert sum(task.processed for task in run.snapshot[REDUCER].tasks) == RECORDS
    assert run.seconds < undisturbed(consistency).seconds + 1.0
    assert not run.snapshot.steps
    what = {REDUCER: "reducer has processed all its records", MAPPER: "mapper has read all its input"}[request_.stage]
    assert [run.answers[number].refused for number in (1, 2)] == [True, True]
    assert run.answers[1].text == f"nothing was changed: {what}"
    assert run.answers[2].text == f"nothing was changed: {what}"
