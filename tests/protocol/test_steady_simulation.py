"""The adaptive strategy's defaults on streams of some seconds in virtual time: how near to the ideal they end, and how
often the table is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from builders import map_task

from dpa.aggregates import Count
from dpa.balance.options import AdaptiveOptions, BalanceOptions, NoBalancingOptions
from dpa.execution.block import Block
from dpa.measure.skew import skew
from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.metrics import StageSnapshot
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulation.cluster import SimulatedCluster

REDUCERS = 4
SERVICE_SECONDS = 0.002
RECORDS = 8_000
"""Four seconds of work for all reducers."""

KEYS = 200
SEEDS = range(2)


class Run(NamedTuple):
    """A stream.

    Attributes:
        to_ideal: what it took, in units of what it would if all reducers were busy all the time.
        changes: of the table.
        forwarded: the share of the records that were forwarded.
        stage: the reduce stage.
    """

    to_ideal: float
    changes: int
    forwarded: float
    stage: StageSnapshot

    @property
    def latency_p99(self) -> float:
        """In seconds."""
        assert self.stage.latency is not None
        return self.stage.latency.quantile(0.99)


def simulate(
    keys: Sequence[str],
    seed: int = 0,
    *,
    balance: BalanceOptions | None = None,
    credit: int = 100_000,
    slowness: Sequence[float] = (1, 1, 1, 1),
    costs: dict[str, float] | None = None,
) -> Run:
    """Two mappers that are much faster than the reducers. A record costs as many usual ones as `costs` says."""
    of_key = costs or {}
    job = map_reduce_job(
        memory_splits(pa.table({"key": pa.array(keys), "number": range(len(keys))}), 100),
        map_task(None, Count(), values=("number",), batch_records=min(500, credit), seed=0),
        mappers=2,
        reducers=REDUCERS,
        balance=balance or AdaptiveOptions(),
        in_flight_records=credit,
        queue_seconds=0.5,
        quantum_records=10_000,
        map_seconds=1e-5,
        service_seconds=lambda reducer: SERVICE_SECONDS * slowness[reducer],
        ticks=None,
    )

    def work_of(stage: str, block: Block) -> float:
        if stage != REDUCER or not of_key:
            return block.rows
        of_each = zip(block.keys.to_pylist(), block.counts().tolist(), strict=True)
        return sum(of_key.get(key, 1.0) * records for key, records in of_each)

    cluster = SimulatedCluster(replace(job, work_of=work_of), seed)
    stage = cluster.run().snapshot[REDUCER]
    began, ended = cluster.coordinator.started_at, cluster.coordinator.stream_ended_at
    assert began is not None and ended is not None
    work = sum(of_key.get(key, 1.0) for key in keys) * SERVICE_SECONDS
    forwarded = sum(task.forwarded for task in stage.tasks) / len(keys)
    return Run((ended - began) / (work / sum(1 / slow for slow in slowness)), stage.version, forwarded, stage)


def stream(hot: Sequence[tuple[str, float]] = (), records: int = RECORDS, seed: int = 1) -> list[str]:
    """Even keys, of which in each of the equal parts of the stream one has a share besides."""
    random = np.random.default_rng(seed)
    keys = np.array([f"key {number}" for number in random.integers(0, KEYS, records)], dtype=object)
    for part, (key, share) in zip(np.array_split(np.arange(records), len(hot)), hot, strict=True) if hot else ():
        keys[part[random.random(len(part)) < share]] = key
    return keys.tolist()


seeds = pytest.mark.parametrize("seed", SEEDS)


# --- keys that stay


@seeds
def test_even_keys_are_left_alone_but_for_what_the_ring_makes_of_them(seed: int) -> None:
    run = simulate(stream(), seed)
    assert run.to_ideal < 1.15
    assert run.changes <= 3
    assert run.forwarded < 0.05


@seeds
@pytest.mark.parametrize("share", [0.4, 0.6])
def test_a_hot_key_is_split_at_once_and_left_like_that(share: float, seed: int) -> None:
    run = simulate(stream([("hot", share)]), seed)
    assert run.to_ideal < 1.2
    assert run.changes <= 4
    assert run.forwarded < 0.1
    assert run.latency_p99 < 1.5
    first = next(decision for decision in run.stage.decisions if decision.version)
    assert "split key 'hot' over" in first.reason
    assert first.at < 1.0


def test_without_balancing_the_same_stream_takes_twice_as_long() -> None:
    """So what the others hold is due to the strategy."""
    assert simulate(stream([("hot", 0.6)], RECORDS // 2), balance=NoBalancingOptions()).to_ideal > 2.0


@seeds
def test_short_queues_do_not_hide_a_hot_key(seed: int) -> None:
    run = simulate(stream([("hot", 0.6)]), seed, credit=50)
    assert run.to_ideal < 1.35
    assert 1 <= run.changes <= 4


# --- keys that do not


@seeds
def test_a_hot_key_that_drifts_is_followed(seed: int) -> None:
    run = simulate(stream([(f"hot {part}", 0.6) for part in range(4)]), seed)
    assert run.to_ideal < 1.2
    assert run.changes <= 12
    assert run.forwarded < 0.2


def test_sorted_input_is_not_chased() -> None:
    run = simulate(sorted(stream()))
    assert run.to_ideal < 1.3
    assert run.changes <= 8
    assert run.forwarded < 0.15


# --- unequal work


@seeds
def test_a_key_whose_records_are_dear_moves_by_its_time(seed: int) -> None:
    """A key of 5 % that is ten times dearer is a third of the work."""
    run = simulate(stream([("dear", 0.05)]), seed, costs={"dear": 10.0})
    assert run.to_ideal < 1.25
    assert run.changes <= 5


@seeds
def test_a_slow_reducer_gets_as_much_as_it_can_do(seed: int) -> None:
    run = simulate(stream(), seed, slowness=(1, 1, 1, 5))
    assert run.to_ideal < 1.3
    assert run.changes <= 6


# --- cores shared


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("share", [0.0, 0.4], ids=["even", "hot"])
def test_tables_settle_where_tasks_share_cores_and_wait_for_each_other(share: float, seed: int) -> None:
    """Who waits for whom changes all the time: reducers looked faster and slower by turns, and keys went to and fro to
    the last second."""
    keys = stream([("hot", share)], 800_000, seed)
    job = map_reduce_job(
        memory_splits(pa.table({"key": pa.array(keys), "number": range(len(keys))}), 50_000),
        map_task(None, Count(), values=("number",), batch_records=50_000, seed=0),
        mappers=1,
        reducers=REDUCERS,
        balance=AdaptiveOptions(),
        in_flight_records=1_000_000,
        queue_seconds=0.5,
        quantum_records=10_000,
        map_seconds=3e-6,
        service_seconds=lambda reducer: 2e-5,
        ticks=None,
    )
    cluster = SimulatedCluster(replace(job, cores=2), seed)
    stage = cluster.run().snapshot[REDUCER]
    applied = [decision for decision in stage.decisions if decision.version]
    assert len(applied) <= 3
    assert all(decision.at - applied[0].at < 5.0 for decision in applied)
    assert sum(task.forwarded for task in stage.tasks) < 0.1 * len(keys)
    assert skew([task.processed for task in stage.tasks]) < 0.1
