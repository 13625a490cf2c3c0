"""Groupings of every sort on real Ray actors, some of which are slow, their results checked against Spark's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from executors_for_tests import SlowCounts
from observers_for_tests import Awaiting

from dpa import Flow, Job
from dpa.result import GroupingReport
from dpa.spark import compute
from dpa.telemetry.tracker import TrackedSnapshot
from jobs.paced import PacedCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("ray")

RECORDS = 6_000
OURS = {"kind": "consistent", "slot_seconds": 0.1, "proportional": True, "pooled": True}
"""Listens to signals. The paper's move one virtual worker at a time, for which this job is too short."""

KINDS = ("key", "partial_key", "random_choices", "w_choices")
"""One of each sort but the ring, which all other jobs have, and those that listen to signals, which are below."""


@pytest.fixture(scope="module")
def words() -> pa.Table:
    """Zipf-distributed words."""
    ranks = np.minimum(np.random.default_rng(3).zipf(1.4, RECORDS), 300)
    return pa.table({"word": [f"w{rank}" for rank in ranks]})


@pytest.fixture(scope="module")
def counts(words: pa.Table, spark: SparkSession) -> dict[str, int]:
    """What Spark counts."""
    return as_counts(compute(spark, {"input": words}, "SELECT word, count(*) AS count FROM input GROUP BY word"))


def as_counts(table: pa.Table) -> dict[str, int]:
    assert table.column_names == ["word", "count"]
    return dict(zip(*table.to_pydict().values(), strict=True))


def check(found: GroupingReport | None, kind: str, reducers: int) -> None:
    assert found is not None
    assert found.kind == kind
    assert found.replication is not None
    if kind == "key":
        assert found.replication == 1
    else:
        assert 1 < found.replication <= reducers


def test_the_result_of_a_grouping_is_that_of_spark(words: pa.Table, counts: dict[str, int]) -> None:
    """One source feeds a stage of each: they share its tasks, and what starts with a job."""
    flow = Flow("groupings", limits={"batch_records": 200, "in_flight_records": 800, "split_records": 600})
    rows = flow.read(words, parallelism=1)
    for kind in KINDS:
        options = {"grouping": kind, "parallelism": 2, "testing": {"slow_factor": [1, 4]}}
        rows.key_by("word", value=[]).reduce(PacedCounts(0.0001), name=kind, **options)
    result = flow.run()
    for kind in KINDS:
        assert as_counts(result.table(kind)) == counts
        check(result.report[kind].grouping, kind, 2)


def is_spared(snapshot: TrackedSnapshot) -> bool:
    """Whether the last of the reducers has got far fewer records, since signals said so."""
    sources, reducers = snapshot.stages
    *others, slow = [task.processed + task.queue for task in reducers.tasks]
    has_moved = sum(task.regrouped for task in sources.tasks) > 0
    return has_moved and sum(others) > RECORDS // 4 and slow < 0.7 * min(others)


def test_a_slow_reducer_gets_fewer_records_by_its_signals(
    words: pa.Table, counts: dict[str, int], tmp_path: Path
) -> None:
    go, times = tmp_path / "go", 12
    result = Job(
        input=pa.concat_tables([words] * times),
        key="word",
        value=[],
        reducer=SlowCounts(0.0005, str(go)),
        grouping=OURS,
        parallelism={"mappers": 2, "reducers": 3},
        testing={"slow_factor": [1, 1, 4]},
        limits={"batch_records": 60, "in_flight_records": 240, "quantum_seconds": 0.02, "split_records": 600},
    ).run(Awaiting(go, is_spared))
    report = result.report
    assert as_counts(result.table()) == {word: times * count for word, count in counts.items()}
    check(report.main.grouping, "consistent", 3)
    assert report.main.grouping.moved > 0
    assert go.exists()
