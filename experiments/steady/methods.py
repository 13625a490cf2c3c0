"""The strategies and groupings that are compared, each with its defaults, and the job of a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from dpa.job import Job
from experiments.steady.scenarios import MAPPERS, REDUCERS, Load
from jobs.paced import CostedCounts, PacedSource

METHODS: Mapping[str, dict[str, Any]] = {
    "none": {"balance": "none"},
    "halving": {"balance": "halving"},
    "doubling": {"balance": "doubling"},
    "adaptive": {"balance": "adaptive"},
    "partial_key": {"grouping": "partial_key"},
    "w_choices": {"grouping": "w_choices"},
    "consistent": {"grouping": "consistent"},
}
"""What each sets in a job."""


def job_of(load: Load, method: str, service_seconds: float, *, paced: bool) -> Job:
    """The job of a load. Its reducer sleeps for `service_seconds` a record; its mapper, to keep the load's pace if it
    has one and `paced` says so."""
    scenario = load.scenario
    pace = PacedSource(load.rate / MAPPERS) if paced and load.rate is not None else None
    return Job(
        input=load.table,
        mapper=pace,
        key="key",
        value=None if pace else ["cost"],
        reducer=CostedCounts(service_seconds),
        parallelism={"mappers": MAPPERS, "reducers": REDUCERS},
        testing={"slow_factor": [scenario.slowness(reducer, 0.0) for reducer in range(REDUCERS)]},
        limits={**scenario.limits, "split_records": scenario.split or load.table.num_rows},
        **METHODS[method],
    )


def check_counts(load: Load, keys: Any, counts: Any) -> None:
    """Check a result: every key was counted as often as it came.

    Raises:
        AssertionError: one was not.
    """
    expected = load.table["key"].combine_chunks().value_counts()
    wanted = dict(zip(expected.field("values").to_pylist(), expected.field("counts").to_pylist(), strict=True))
    found = dict(zip(keys.to_pylist(), counts.to_pylist(), strict=True))
    assert found == wanted, f"{load.scenario.name}: {len(found)} keys, {pc.sum(counts)} records"
