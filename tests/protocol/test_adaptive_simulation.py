"""The adaptive strategy on whole simulated jobs: the paper's workloads, unequal reducers, and a hot key that cools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from builders import map_task

from dpa.balance.options import AdaptiveOptions, BalanceOptions, NoBalancingOptions
from dpa.measure.skew import skew
from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.metrics import StageSnapshot
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulated_jobs.random_jobs import Collect
from experiments.simulation.cluster import SimulatedCluster
from jobs.letters import WORKLOADS

SEEDS = range(4)
RING: dict[str, Any] = {"token_format": "{node}-{token}", "hash_seed": 1}
"""The ring of the paper's code."""


def run(
    keys: Sequence[str],
    seed: int,
    *,
    balance: BalanceOptions | None = None,
    service_seconds: float = 0.2,
    slowness: Sequence[float] = (1, 1, 1, 1),
    batch: int = 1,
    in_flight: int = 100,
    map_seconds: float = 0.002,
) -> tuple[float, StageSnapshot]:
    """Seconds of the stream, and the reduce stage; its task `i` takes `slowness[i]` times as long for a record."""
    table = pa.table({"key": pa.array(keys), "number": range(len(keys))})
    job = map_reduce_job(
        memory_splits(table, batch),
        map_task(None, Collect(), values=("number",), batch_records=batch, seed=1),
        balance=balance or AdaptiveOptions(check_seconds=0, **RING),
        in_flight_records=in_flight,
        quantum_records=batch,
        map_seconds=map_seconds,
        service_seconds=lambda reducer: service_seconds * slowness[reducer],
        ticks=None,
    )
    cluster = SimulatedCluster(job, seed)
    stage = cluster.run().snapshot[REDUCER]
    assert sum(reducer.processed for reducer in stage.tasks) == len(keys)
    began, ended = cluster.coordinator.started_at, cluster.coordinator.stream_ended_at
    assert began is not None and ended is not None
    return ended - began, stage


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_workload_of_the_paper_ends_even(workload: str, seed: int) -> None:
    seconds, stage = run(WORKLOADS[workload], seed)
    assert skew([reducer.processed for reducer in stage.tasks]) <= 0.05
    assert seconds <= 6.2  # 5 s of work each, give or take a fifth
    if workload in ("wl1", "wl2"):
        assert stage.version == 0, "it is balanced, and stays as it is"
    if workload == "wl3":
        first = next(decision for decision in stage.decisions if decision.version)
        assert "split key 'a' over 4 tasks" in first.reason, "its one key is split over all reducers at once"
        assert (first.split, first.moved) == (pytest.approx(0.75, abs=0.01), 0)
        [only] = stage.hottest or ()
        assert (only.key, only.share, only.high, only.split) == ("a", 1.0, 1.0, True) and only.low > 0.5


def test_a_reducer_that_is_five_times_slower_gets_fewer_records_and_all_end_together() -> None:
    keys = [f"k{number * 7919 % 400}" for number in range(4_000)]
    slow: dict[str, Any] = {"service_seconds": 0.005, "slowness": (1, 1, 1, 5), "batch": 10, "in_flight": 300}
    ideal = 4_000 * 0.005 / (3 + 1 / 5)
    seconds, stage = run(keys, 0, **slow)
    assert seconds < 1.15 * ideal
    assert stage.tasks[3].processed < 400
    unbalanced, _ = run(keys, 0, balance=NoBalancingOptions(**RING), **slow)
    assert unbalanced > 2 * ideal


def test_a_key_is_unsplit_when_it_is_below_the_threshold() -> None:
    hot = ["hot" if number % 5 else f"k{number % 97}" for number in range(6_000)]
    cool = [f"k{number % 97}" for number in range(14_000)]
    steady: dict[str, Any] = {"service_seconds": 0.002, "batch": 10, "in_flight": 200}
    _, stage = run(hot + cool, 0, balance=AdaptiveOptions(check_seconds=0, **RING), **steady)
    reasons = [decision.reason for decision in stage.decisions if decision.version]
    assert any("split key 'hot' over" in reason for reason in reasons)
    assert any("which is below the unsplit threshold" in reason for reason in reasons)
