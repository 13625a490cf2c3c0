"""Latency on its way through the machines: where a record's time begins, what keeps it, where it ends."""

from __future__ import annotations

import pyarrow as pa
import pytest
from builders import REDUCER_TABLES, CoordinatorWire, ReducerWire, Wire, block_of, map_task, sent, table_giving
from builders import push as push_of

from dpa.balance.measure.latency import LatencySketch
from dpa.execution.mapping import Mapped
from dpa.protocol.assembly import BalanceOptions
from dpa.protocol.machine import FinishDone, Instruction, MapDone, ProcessDone, Start, Tick
from dpa.protocol.mapper import MapperMachine
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Ack,
    LastTable,
    Merge,
    Merged,
    Push,
    ReducerReport,
    SplitGrant,
    mapper,
    reducer,
)
from dpa.protocol.metrics import ReducerStats
from dpa.simulation.cluster import Network, SimulatedCluster, SimulatedJob
from dpa.simulation.random_jobs import Collect, run_random_job
from dpa.splits import MemorySplit, memory_splits

SPLIT = MemorySplit(pa.table({"key": ["a"]}))


def test_a_block_counts_from_the_step_that_made_it_however_long_it_waits_for_credit() -> None:
    machine = MapperMachine(0, table_giving({"a": 0, "b": 1}), 3)
    wire = Wire(machine)
    machine.handle(Start(), 0.0)
    wire(COORDINATOR, SplitGrant(SPLIT), 1.0)  # the first step begins

    def mapped(keys: str, now: float) -> list[Instruction]:
        return machine.handle(MapDone(Mapped(block_of(list(keys)), len(keys), len(keys))), now)

    def read_at(instructions: list[Instruction]) -> list[float]:
        return [push.read_at for _, push in sent(instructions, Push)]

    assert read_at(mapped("aab", 2.5)) == [1.0, 1.0]  # to both reducers; the second step begins
    assert read_at(mapped("a", 4.0)) == []  # no credit; the third begins
    assert read_at(mapped("b", 5.0)) == []
    assert read_at(wire(reducer(0), Ack(3), 9.0)) == [2.5, 4.0]


def test_blocks_that_one_step_has_mapped_together_count_from_that_step() -> None:
    """A batch mapper makes several blocks of the rows that it reads at once; only the first step tells of the rows."""
    machine = MapperMachine(0, table_giving({"a": 0}), 1)
    wire = Wire(machine)
    machine.handle(Start(), 0.0)
    wire(COORDINATOR, SplitGrant(SPLIT), 1.0)
    found = []
    for now, read in ((2.0, 3), (3.0, 0), (4.0, 0), (6.0, 3), (8.0, 0)):
        found += sent(machine.handle(MapDone(Mapped(block_of(["a"]), read, 1)), now), Push)
        found += sent(wire(reducer(0), Ack(1), now), Push)
    assert [push.read_at for _, push in found] == [1.0, 1.0, 1.0, 4.0, 4.0]


def test_records_count_from_their_source_to_the_end_of_their_slice() -> None:
    reducer_0 = ReducerWire(most=2)
    reducer_0(mapper(0), push_of(["a", "b", "c"], read_at=1.0), 2.0)
    reducer_0(mapper(1), push_of(["a"], mapper=1, read_at=3.0), 3.5)
    for now in (4.0, 6.0, 6.5):
        reducer_0.reducer.handle(ProcessDone(0.5), now)
    reducer_0(COORDINATOR, Merge(0, exchange=False), 7.0)
    [(_, merged)] = sent(reducer_0.reducer.handle(FinishDone(None), 8.0), Merged)
    assert (merged.latency.records, merged.latency.max) == (4, 5.0)
    assert merged.latency.mean == pytest.approx((3.0 + 3.0 + 5.0 + 3.5) / 4)
    assert merged.stats.latency_p99 == merged.latency.quantile(0.99)


def test_a_forwarded_record_keeps_its_source_time() -> None:
    reducer_0 = ReducerWire()
    reducer_0.update(1)
    assert REDUCER_TABLES[1].epoch == 1
    instructions = reducer_0(mapper(0), push_of(["a", "b"], read_at=1.5), 2.0)
    assert [(push.hops, push.read_at) for _, push in sent(instructions, Push)] == [(1, 1.5)]


def test_while_it_runs_a_reducer_tells_its_99th_percentile() -> None:
    reducer_0 = ReducerWire()
    [(_, report)] = sent(reducer_0.reducer.handle(Tick(), 0.5), ReducerReport)
    assert report.stats.latency_p99 is None
    reducer_0(mapper(0), push_of(["a"], read_at=1.0), 2.0)
    reducer_0.reducer.handle(ProcessDone(0.5), 3.0)
    [(_, report)] = sent(reducer_0.reducer.handle(Tick(), 4.0), ReducerReport)
    assert report.stats.latency_p99 == pytest.approx(2.0, rel=0.01)


def test_the_coordinator_merges_what_the_reducers_measured() -> None:
    coordinator = CoordinatorWire()
    for index in (0, 1):
        coordinator.mapped(index, 2, done=True)
        coordinator.reduced(index, 2)
    coordinator(BALANCER, LastTable(0))
    for index, seconds in ((1, 4.0), (0, 1.0)):
        measured = LatencySketch()
        measured.add(seconds, 2)
        coordinator(reducer(index), Merged(ReducerStats(index, processed=2), measured, None))
    found = coordinator.coordinator.snapshot().latency
    assert found is not None
    assert (found.records, found.max, found.mean) == (4, 4.0, 2.5)
    assert coordinator.coordinator.snapshot(history=False).latency is None


class Exact(SimulatedCluster):
    """User code takes exactly as long as the job says."""

    def _takes(self, seconds: float) -> float:
        return seconds


def test_a_simulated_job_measures_virtual_time_exactly() -> None:
    """One mapper and one reducer, blocks of two records: a step takes 0.2 s, a record 0.5 s, a message 0.25 s.

    The mapper has its split at 0.5 s. The steps of three blocks begin at 0.5, 0.7 and 0.9 s. The first is at the
    reducer at 0.95 s. It is processed in one slice; then, as that took long, each record by itself.
    """
    table = pa.table({"key": ["a"] * 6, "number": range(6)})
    job = SimulatedJob(
        tuple(memory_splits(table, 6)),
        map_task(None, Collect(), batch_records=2),
        mappers=1,
        reducers=1,
        balance=BalanceOptions(strategy="none"),
        map_seconds=0.1,
        service_seconds=lambda reducer: 0.5,
        network=Network(0.25, 0.25),
    )
    snapshot = Exact(job, seed=0).run().snapshot
    assert snapshot.latency is not None
    assert snapshot.latency.records == 6
    assert snapshot.latency.max == pytest.approx(3.95 - 0.9)
    began, ended = (0.5, 0.5, 0.7, 0.7, 0.9, 0.9), (1.95, 1.95, 2.45, 2.95, 3.45, 3.95)
    assert snapshot.latency.mean == pytest.approx((sum(ended) - sum(began)) / 6)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_record_counts_once_and_none_longer_than_the_stream(seed: int) -> None:
    outcome = run_random_job(seed)
    found = outcome.snapshot.latency
    assert found is not None
    assert found.records == sum(stats.processed for stats in outcome.snapshot.reducers)
    assert 0.0 <= found.max <= outcome.seconds
    assert bool(found.max) == bool(found.records)
