"""The adaptive strategy on whole simulated jobs: the paper's workloads, unequal reducers, and a hot key that cools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.skew import skew
from dpa.protocol.assembly import AdaptiveSettings, BalanceOptions
from dpa.protocol.metrics import Snapshot
from dpa.simulation.cluster import SimulatedCluster, SimulatedJob
from dpa.simulation.random_jobs import Collect
from dpa.splits import memory_splits
from jobs.letters import WORKLOADS

SEEDS = range(4)


def run(
    keys: Sequence[str],
    seed: int,
    *,
    strategy: str = "adaptive",
    service_seconds: float = 0.2,
    slowness: Sequence[float] = (1, 1, 1, 1),
    batch: int = 1,
    in_flight: int = 100,
    map_seconds: float = 0.002,
    **options: Any,
) -> tuple[float, Snapshot]:
    """Seconds of the stream and what came of it; reducer `i` takes `slowness[i]` times as long for a record."""
    table = pa.table({"key": pa.array(keys), "number": range(len(keys))})
    job = SimulatedJob(
        splits=tuple(memory_splits(table, batch)),
        task=map_task(None, Collect(), values=("number",), batch_records=batch, seed=1),
        mappers=4,
        balance=BalanceOptions(strategy, check_seconds=0, token_format="{node}-{token}", hash_seed=1, **options),
        in_flight_records=in_flight,
        slice_records=batch,
        map_seconds=map_seconds,
        service_seconds=lambda reducer: service_seconds * slowness[reducer],
        ticks=None,
    )
    cluster = SimulatedCluster(job, seed)
    snapshot = cluster.run().snapshot
    assert sum(reducer.processed for reducer in snapshot.reducers) == len(keys)
    assert cluster.coordinator.stream_ended_at is not None
    return cluster.coordinator.stream_ended_at, snapshot


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_workload_of_the_paper_ends_even(workload: str, seed: int) -> None:
    seconds, snapshot = run(WORKLOADS[workload], seed)
    assert skew([reducer.processed for reducer in snapshot.reducers]) <= 0.05
    assert seconds <= 6.2  # 5 s of work each, give or take a fifth


@pytest.mark.parametrize("workload", ["wl1", "wl2"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_balanced_job_stays_as_it_is(workload: str, seed: int) -> None:
    _, snapshot = run(WORKLOADS[workload], seed)
    assert snapshot.epoch == 0
    assert not any(reducer.forwarded for reducer in snapshot.reducers)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_one_key_of_workload_3_is_spread_over_all_reducers_at_once(seed: int) -> None:
    _, snapshot = run(WORKLOADS["wl3"], seed)
    first = next(decision for decision in snapshot.decisions if decision.epoch)
    assert "spread key 'a' over 4 reducers" in first.reason
    assert first.spread == pytest.approx(0.75, abs=0.01)
    assert first.moved == 0


def test_a_reducer_that_is_five_times_slower_gets_fewer_records_and_all_end_together() -> None:
    keys = [f"k{number * 7919 % 400}" for number in range(4_000)]
    slow: dict[str, Any] = {"service_seconds": 0.005, "slowness": (1, 1, 1, 5), "batch": 10, "in_flight": 300}
    ideal = 4_000 * 0.005 / (3 + 1 / 5)
    seconds, snapshot = run(keys, 0, **slow)
    assert seconds < 1.15 * ideal
    assert snapshot.reducers[3].processed < 400
    unbalanced, _ = run(keys, 0, strategy="none", **slow)
    assert unbalanced > 2 * ideal


def test_the_spread_of_a_key_ends_when_it_has_cooled() -> None:
    hot = ["hot" if number % 5 else f"k{number % 97}" for number in range(6_000)]
    cool = [f"k{number % 97}" for number in range(14_000)]
    steady: dict[str, Any] = {"service_seconds": 0.002, "batch": 10, "in_flight": 200}
    _, snapshot = run(hot + cool, 0, adaptive=AdaptiveSettings(half_life=0.5), **steady)
    reasons = [decision.reason for decision in snapshot.decisions if decision.epoch]
    assert any("spread key 'hot' over" in reason for reason in reasons)
    assert any("end the spread of key 'hot', which has cooled" in reason for reason in reasons)
