"""Simulated stages whose first table is planned: even from the first record, and merged in the end though no table
followed; what is called static stays the plain ring's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.options import AdaptiveOptions
from dpa.errors import ConfigError
from dpa.measure.load import KeySample
from dpa.measure.skew import skew
from dpa.protocol.graph import REDUCER, Stage
from dpa.protocol.wire.metrics import StageSnapshot
from dpa.routing.hashing import hash_column
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulated_jobs.random_jobs import Collect
from experiments.simulation.cluster import SimulatedCluster

KEYS = [f"key {number % 40}" if number % 2 else "hot" for number in range(400)]
BALANCE = AdaptiveOptions()
REDUCERS = 4


def planned_stage() -> Stage:
    names, counts = zip(*sorted(Counter(KEYS).items()), strict=True)
    hashes = hash_column(pa.array(names))
    order = np.argsort(hashes)
    sample = KeySample(hashes[order], np.array(counts, float)[order], len(KEYS))
    first = BALANCE.planned(REDUCERS, sample, dict(zip(hashes.tolist(), names, strict=True)))
    return Stage(REDUCER, REDUCERS, balance=BALANCE, first=first)


def run(seed: int, *, planned: bool) -> tuple[StageSnapshot, dict[str, list[int]]]:
    """The stage's last statistics, and the numbers of the records of each key."""
    table = pa.table({"key": pa.array(KEYS), "number": range(len(KEYS))})
    job = map_reduce_job(
        memory_splits(table, 20),
        map_task(None, Collect(), values=("number",), batch_records=20),
        reducers=REDUCERS,
        balance=BALANCE,
        service_seconds=lambda reducer: 0.0001,
        first=planned_stage().first if planned else None,
    )
    outcome = SimulatedCluster(job, seed).run()
    rows = [row for share in outcome.shares[REDUCER] for row in share.table.to_pylist()]
    assert len({row["key"] for row in rows}) == len(rows)
    return outcome.snapshot[REDUCER], {row["key"]: row["records"] for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_a_split_key_has_one_state_in_the_end_and_reducers_are_even(seed: int) -> None:
    stage, found = run(seed, planned=True)
    ring, expected = run(seed, planned=False)
    assert found == expected
    assert stage.version == 0
    assert skew([task.processed for task in stage.tasks]) <= 0.05
    assert stage.initial_load == ring.initial_load == tuple(task.processed for task in ring.tasks)
    assert skew(stage.initial_load) > 0.3


def test_states_that_migrate_are_not_split() -> None:
    with pytest.raises(ConfigError, match="cannot migrate by a first table that splits keys"):
        replace(planned_stage(), consistency="migrate")
