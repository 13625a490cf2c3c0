"""Every grouping on real Ray actors, one of which is slow, its result checked by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from dpa import Job
from dpa.result import Report
from dpa.routing.groupings.options import BY_KIND, RING
from jobs.paced import PacedCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS, REDUCERS = 6_000, 3
OURS = {"proportional": True, "pooled": True}
"""The paper's signals move one virtual worker at a time, for which this job is too short to tell."""


@pytest.fixture(scope="module")
def words() -> pa.Table:
    """Zipf-distributed words."""
    ranks = np.minimum(np.random.default_rng(3).zipf(1.4, RECORDS), 300)
    return pa.table({"word": [f"w{rank}" for rank in ranks]})


def run(words: pa.Table, **grouping: object) -> Report:
    """A count by word, the last reducer being slow."""
    job = Job(
        input=words,
        key="word",
        value=[],
        reducer=PacedCounts(0.0002),
        grouping=grouping,
        parallelism={"mappers": 2 if "slot_seconds" in grouping else 1, "reducers": REDUCERS},
        testing={"slow_factor": [1, 1, 4]},
        limits={"batch_records": 60, "in_flight_records": 240, "quantum_seconds": 0.02, "split_records": 600},
        reference={"sql": "SELECT word, count(*) AS count FROM input GROUP BY word", "baseline": False},
    )
    return job.run().report


@pytest.mark.parametrize(("kind", "ours"), [*((kind, {}) for kind in BY_KIND), ("consistent", OURS)])
def test_the_result_of_every_grouping_is_that_of_spark(
    kind: str, ours: dict[str, bool], words: pa.Table, ray: None, spark: SparkSession
) -> None:
    slots = {"slot_seconds": 0.1} if BY_KIND[kind]().signals else {}
    report = run(words, kind=kind, **slots, **ours)
    assert report.status == "ok"
    assert report.reference.matches is True
    assert report.grouping.kind == kind
    assert report.grouping.replication is not None
    if kind == "key":
        assert report.grouping.replication == 1
    elif kind != RING:
        assert 1 < report.grouping.replication <= REDUCERS
    if kind == "weighted_w_choices" or ours:
        assert report.grouping.moved > 0
        slow = report.reducers[-1].processed
        assert slow < 0.7 * min(reducer.processed for reducer in report.reducers[:-1])
