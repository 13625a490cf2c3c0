"""Stages whose number of tasks follows their work, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.elastic import ElasticOptions
from dpa.balance.options import NoBalancingOptions
from dpa.driver.stage_summary import StageOutcome, stage_report
from dpa.protocol.graph import REDUCER
from dpa.simulation.cluster import SimulatedCluster
from dpa.simulation.job import SimulatedRun, map_reduce_job
from dpa.simulation.random_jobs import Collect, CollectAlone
from dpa.sources.splits import memory_splits

MODES: dict[str, dict[str, Any]] = {"merge": {"consistency": "merge"}, "migrate": {"consistency": "migrate"}}


def run(
    records: int,
    reducers: int,
    service_seconds: Callable[[int], float],
    elastic: ElasticOptions | None,
    map_seconds: float = 0.0001,
    **options: Any,
) -> SimulatedRun:
    """A job whose records come from 50 keys; checks its result."""
    table = pa.table({"key": [f"key {number % 50}" for number in range(records)], "number": range(records)})
    reducer = CollectAlone() if options.get("consistency") == "migrate" else Collect()
    job = map_reduce_job(
        memory_splits(table, 100),
        map_task(None, reducer, values=("number",), batch_records=20),
        mappers=2,
        reducers=reducers,
        map_seconds=map_seconds,
        service_seconds=service_seconds,
        ticks=None,
        balance=NoBalancingOptions(),
        elastic=elastic,
        **options,
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


@pytest.mark.parametrize("mode", MODES)
def test_a_busy_stage_gets_more_tasks_and_ends_earlier(mode: str) -> None:
    still = run(6_000, 1, lambda index: 0.01, None, **MODES[mode])
    grown = run(6_000, 1, lambda index: 0.01, ElasticOptions(max_tasks=4), **MODES[mode])
    assert counts(grown, 1)[:2] == [1, 2] and max(counts(grown, 1)) == 4
    assert grown.seconds < 0.5 * still.seconds
    assert grown.snapshot.steps[0].reason.startswith("busy 100% of the time for 2.")


@pytest.mark.parametrize("mode", MODES)
def test_an_idle_stage_gets_fewer_tasks_and_no_more_of_them(mode: str) -> None:
    options = ElasticOptions(min_tasks=1, max_tasks=6)
    found = run(1_500, 6, lambda index: 0.005, options, map_seconds=0.02, **MODES[mode])
    assert counts(found, 6)[0] > counts(found, 6)[-1] >= 1
    assert counts(found, 6) == sorted(counts(found, 6), reverse=True), "it goes one way"
    assert set(found.snapshot[REDUCER].scaling_counts) <= {"not for long enough", "within bounds", "at a bound"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("reducers", "map_seconds"), [(1, 0.0001), (6, 0.02)], ids=["more", "fewer"])
def test_shares_of_tasks_that_come_and_go_are_of_the_time_that_each_took_part(
    mode: str, reducers: int, map_seconds: float
) -> None:
    found = run(3_000, reducers, lambda index: 0.008, ElasticOptions(max_tasks=6), map_seconds, **MODES[mode])
    report = stage_report(REDUCER, found.snapshot, StageOutcome(), found.snapshot.at, {})
    assert len(report.tasks) > reducers or report.changes
    assert report.load.busy <= report.load.busiest <= 1.0
    assert sum(task.even_share for task in report.tasks) == pytest.approx(1.0)
    throughout = [task.even_share for task in report.tasks if task.lived_seconds == found.snapshot.at]
    others = [task.even_share for task in report.tasks if task.lived_seconds < found.snapshot.at]
    assert min(throughout) > max(others)
    assert report.skew is not None and report.skew.dpa < 0.05, "each got what it could in its time"


def test_nothing_is_started_for_the_last_moments() -> None:
    found = run(600, 1, lambda index: 0.01, ElasticOptions(max_tasks=4))
    assert counts(found, 1) == [1]
    assert "not worth it" in found.snapshot[REDUCER].scaling_counts
