"""Stages whose number of tasks follows their work, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.elastic import ElasticOptions
from dpa.balance.options import NoBalancingOptions
from dpa.driver.summary import stage_report
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.result import StageReport
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulated_jobs.random_jobs import Collect, CollectAlone
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network, SimulatedRun

MODES: dict[str, dict[str, Any]] = {"merge": {"consistency": "merge"}, "migrate": {"consistency": "migrate"}}
SERVICE = 0.02


def due_of(load: Callable[[float], float], seconds: float) -> list[float]:
    """When each record is due, where what is due would keep so many tasks busy."""
    at = np.arange(0.0, seconds, 0.01)
    made = np.cumsum([load(moment) * 0.01 / SERVICE for moment in at])
    return list(np.interp(np.arange(1, int(made[-1]) + 1), made, at))


def run(
    due: list[float],
    reducers: int,
    elastic: ElasticOptions | None,
    start_seconds: float = 2.0,
    network: Network | None = None,
    **options: Any,
) -> SimulatedRun:
    """A job whose records come when they are due, each of another key of 50 in turn; checks its result."""
    records = len(due)
    table = pa.table({"key": [f"key {number % 50}" for number in range(records)], "number": range(records)})
    reducer = CollectAlone() if options.get("consistency") == "migrate" else Collect()
    job = map_reduce_job(
        memory_splits(table, records),
        map_task(None, reducer, values=("number",), batch_records=20),
        mappers=1,
        reducers=reducers,
        map_seconds=0.0001,
        service_seconds=lambda index: SERVICE,
        ticks=None,
        balance=NoBalancingOptions(),
        elastic=elastic,
        **{"in_flight_records": 100_000, "quantum_records": 5, **options},
    )
    job = replace(
        job,
        due=lambda stage, index, made: due[made - 1] if made else 0.0,
        start_seconds=start_seconds,
        network=network or job.network,
    )
    made = SimulatedCluster(job, seed=1).run()
    rows = [row for share in made.shares[REDUCER] for row in share.table.to_pylist()]
    assert sorted(number for row in rows for number in row["records"]) == list(range(records))
    assert len(rows) == 50
    return made


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
    found = run(due, 1, ElasticOptions(max_tasks=16), queue_seconds=queue_seconds, **MODES[mode])
    (number,) = counts(found, 1)[1:]
    assert 5 <= number <= 7
    (step,) = found.snapshot.steps
    assert 10 < step.at < 12 and "records/s offered" in step.reason
    assert "at a bound" not in found.snapshot[REDUCER].scaling_counts


def test_an_idle_stage_gets_fewer_tasks_in_one_change() -> None:
    due = due_of(lambda at: 4.0 if at < 5 else 0.6, 40)
    assert counts(run(due, 6, ElasticOptions(max_tasks=6), queue_seconds=0.5), 6) == [6, 1]


def test_a_stage_grows_though_its_tasks_are_not_busy_where_each_piece_of_work_waits_for_messages() -> None:
    """Twenty records at a time, and a network that takes longer than they do: they wait at the source."""
    due, slow = due_of(lambda at: 0.6, 45), Network(0.5, 0.6)
    found = run(due, 1, ElasticOptions(max_tasks=4), network=slow, in_flight_records=10, queue_seconds=None)
    stage = found.snapshot[REDUCER]
    assert stage.tasks[0].busy_seconds < 0.5 * found.snapshot.at
    assert max(counts(found, 1)) > 1


@pytest.mark.parametrize("mode", MODES)
def test_shares_of_tasks_that_come_are_of_the_time_that_each_took_part(mode: str) -> None:
    due = due_of(lambda at: 3.5, 20)
    found = run(due, 1, ElasticOptions(max_tasks=6), 0.0, queue_seconds=0.5, **MODES[mode])
    report = stage_report(StageReport(REDUCER, "operator"), found.snapshot, found.snapshot.at, (), {})
    assert len(report.tasks) > 1 and report.changes
    assert report.load.busy <= report.load.busiest <= 1.0
    assert sum(task.even_share for task in report.tasks) == pytest.approx(1.0)
    throughout = [task.even_share for task in report.tasks if task.lived_seconds == found.snapshot.at]
    others = [task.even_share for task in report.tasks if task.lived_seconds < found.snapshot.at]
    assert min(throughout) > max(others)


def test_a_source_gets_the_tasks_whose_rows_the_stage_that_it_feeds_can_take() -> None:
    table = pa.table({"key": [f"key {number % 50}" for number in range(6_000)], "number": range(6_000)})
    job = map_reduce_job(
        memory_splits(table, 50),
        map_task(None, Collect(), values=("number",), batch_records=20),
        mappers=1,
        reducers=4,
        map_seconds=0.01,
        service_seconds=lambda index: SERVICE,
        ticks=None,
        balance=NoBalancingOptions(),
        queue_seconds=0.5,
        in_flight_records=100_000,
    )
    source = replace(job.graph[MAPPER], elastic=ElasticOptions(max_tasks=8))
    graph = replace(job.graph, stages=(source, job.graph[REDUCER]))
    found = SimulatedCluster(replace(job, graph=graph), seed=1).run().snapshot
    assert [len(step.started) for step in found.steps if step.stage == MAPPER] == [1]  # 4 reducers take 200 a second
