"""Tasks that take very long to start while records flow: a stage that has nothing left for them waits for none."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.options import BY_STRATEGY
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.events import MoveTasks, Rescale, TaskRequest
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulated_jobs.random_jobs import Collect
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, SimulatedRun

RECORDS, VERY_LONG = 400, 3600.0


def job(consistency: str) -> SimulatedJob:
    """Two mappers and two reducers, which are busy for about half a second."""
    table = pa.table({"key": [f"key {number % 7}" for number in range(RECORDS)], "number": range(RECORDS)})
    return map_reduce_job(
        memory_splits(table, 20),
        map_task(None, Collect(), values=("number",), batch_records=5),
        mappers=2,
        reducers=2,
        map_seconds=0.002,
        ticks=None,
        balance=BY_STRATEGY["none"](),
        consistency=consistency,
    )


@cache
def undisturbed(consistency: str) -> SimulatedRun:
    return SimulatedCluster(job(consistency), 0).run()


def asked(consistency: str, *requests: TaskRequest, **options: float) -> SimulatedRun:
    """A run that is asked for changes when it has read 60 % of its input."""
    at = 0.6 * undisturbed(consistency).seconds
    slow = replace(job(consistency), requests=tuple((at, request) for request in requests), start_seconds=VERY_LONG)
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
