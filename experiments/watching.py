"""Jobs on Ray whose reducers note when each record of a paced stream was processed (`jobs.watched`): what experiments
with states and tasks that move have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dpa.job import Job
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.plan import RunHooks, RunPlan
from dpa.protocol.wire.metrics import Snapshot
from dpa.sources.splits import memory_splits
from experiments.harness import actors, progress
from jobs.watched import Scheduled, WatchedCount, began_at

if TYPE_CHECKING:
    from ray.actor import ActorHandle

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Noted:
    """What reducers noted of all records, in the order in which they were due; times in seconds since the stream began.

    Attributes:
        due, done: when each record was due, and when it was processed; shape (records,).
        keys: their keys, shape (records,).
    """

    due: Floats
    done: Floats
    keys: Integers


def stream(keys: int, seconds: float, rate: float, seed: int) -> pa.Table:
    """The records that are counted, a row each, in the order in which they are due."""
    due = np.arange(0, seconds, 1 / rate)
    drawn = np.random.default_rng(seed).integers(0, keys, len(due))
    return pa.table({"key": drawn, "due": due, "count": np.ones(len(due), dtype=np.int64)})


def states(counts: pa.Table) -> pa.Table:
    """A record for each state, due at once."""
    return pa.table({"key": counts["key"], "due": pa.nulls(len(counts), pa.float64()), "count": counts["count"]})


def one_of_each(keys: int) -> pa.Table:
    """The count of each key before the stream."""
    return pa.table({"key": np.arange(keys), "count": np.ones(keys, dtype=np.int64)})


def plan_of(records: pa.Table, first: pa.Table, reducer: WatchedCount, reducers: int, **options: Any) -> RunPlan:
    """The plan of a job that counts the records after it has made the states; `options` are the job's."""
    job = Job(
        input=records,
        mapper=Scheduled(reducer.directory),
        reducer=reducer,
        parallelism={"mappers": 1, "reducers": reducers},
        **options,
    )
    table = pa.concat_tables([states(first), records])
    return job.spec.plan({MAPPER: tuple(memory_splits(table, len(table)))}, {MAPPER: table.schema})


Look = Callable[["ActorHandle", Snapshot, float], None]
"""What is called a few times a second with the coordinator, what it knows, and the seconds since the stream began."""


def counts_of(plan: RunPlan, directory: str, meanwhile: Look | None = None) -> pa.Table:
    """Run a plan; returns the counts of all keys."""
    with actors(len(plan.graph.addresses)) as launched:

        def observe(snapshot: Snapshot) -> None:
            began = began_at(directory)
            if meanwhile is not None and began is not None:
                meanwhile(launched.coordinator, snapshot, time.time() - began)

        outcome = launched.run(plan, RunHooks(observe, progress))
    return pa.concat_tables(rows for share in outcome.outputs[REDUCER] for rows in share.staged.values())


def counts_with_stops(
    parts: Sequence[pa.Table], first: pa.Table, plan: Callable[[pa.Table, pa.Table], RunPlan], directory: str
) -> pa.Table:
    """The counts of a stream whose job stops after each part of it: its states are written to a file, and the next job
    begins with them. `plan` makes the plan of a part, and of the states that it begins with."""
    counted, snapshot = first, Path(directory) / "states.parquet"
    for part in parts:
        counted = counts_of(plan(part, counted), directory)
        pq.write_table(counted, snapshot)
        counted = pq.read_table(snapshot)
    return counted


def check_counts(counted: pa.Table, records: pa.Table, keys: int, what: str) -> None:
    """Check the counts of all keys, each of which had been counted once before the stream.

    Raises:
        AssertionError: one is wrong.
    """
    right = np.zeros(keys, dtype=np.int64)
    right[counted["key"].to_numpy()] = counted["count"].to_numpy()
    expected = 1 + np.bincount(records["key"].to_numpy(), minlength=keys)
    assert np.array_equal(right, expected), f"{what}: wrong counts"


def noted(directory: Path) -> Noted:
    """What the reducers of a run noted."""
    began = began_at(directory)
    assert began is not None
    rows = np.concatenate([np.fromfile(path).reshape(-1, 3) for path in sorted(directory.glob("*.times"))])
    rows = rows[np.argsort(rows[:, 1], kind="stable")]
    return Noted(rows[:, 1] - began, rows[:, 0] - began, rows[:, 2].astype(np.int64))
