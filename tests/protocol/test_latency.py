"""Latency on its way through the machines: where a record's time begins, what keeps it, where it ends."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from builders import table_giving
from wires import (
    CoordinatorWire,
    OperatorWire,
    SourceWire,
    emitter_for,
    job_of,
    last_table,
    mapper,
    push,
    reducer,
    sent,
)

from dpa.balance.options import NoBalancingOptions
from dpa.measure.latency import LatencySketch
from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.events import ProcessDone, Tick
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.messages.splits import Begin, SplitGrant
from dpa.protocol.wire.metrics import TaskStats
from dpa.sources.splits import MemorySplit
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network

SPLIT = MemorySplit(pa.table({"key": ["a"]}))


def reading(owners: dict[str, int], credit: int) -> SourceWire:
    """A source that takes its first step at 1 s."""
    source = SourceWire(emitter_for(table_giving(owners), credit), fresh=True)
    source(COORDINATOR, Begin())
    source(COORDINATOR, SplitGrant(SPLIT), 1.0)
    return source


def times(instructions: list[Instruction]) -> list[tuple[float, float]]:
    """When the pushed records were read and emitted."""
    return [(message.read_at, message.emitted_at) for _, message in sent(instructions, Push)]


def test_a_block_counts_from_the_step_that_made_it_however_long_it_waits_for_credit() -> None:
    source = reading({"a": 0, "b": 1}, 3)
    assert times(source.stepped("aab", now=2.5)) == [(1.0, 2.5)] * 2  # to both reducers; the second step begins
    assert times(source.stepped("ab", now=4.0)) == []  # no credit, and no third step before there is some
    assert times(source(reducer(0), Ack(0, 1), 7.0)) == [(2.5, 7.0)]
    assert times(source(reducer(1), Ack(0, 1), 9.0)) == [(2.5, 9.0)]  # now it begins
    assert times(source.stepped("a", now=11.0)) == []
    assert times(source(reducer(0), Ack(0, 1), 12.0)) == [(9.0, 12.0)]
    waited = (7.0 - 4.0) + (9.0 - 4.0) + (12.0 - 11.0)
    assert source.task.stats.credit_seconds == (waited,)


def test_blocks_that_one_step_has_mapped_together_count_from_that_step() -> None:
    """A batch mapper makes several blocks of the rows that it reads at once; only the first step reports the rows."""
    source = reading({"a": 0}, 1)
    found = []
    for now, read in ((2.0, 3), (3.0, 0), (4.0, 0), (6.0, 3), (8.0, 0)):
        found += times(source.stepped("a", read=read, now=now))
        found += times(source(reducer(0), Ack(0, 1), now))
    assert [read_at for read_at, _ in found] == [1.0, 1.0, 1.0, 4.0, 4.0]


def test_a_forwarded_record_keeps_its_times() -> None:
    task = OperatorWire()
    task.update(1)
    instructions = task(mapper(0), push(["a", "b"], read_at=1.5, emitted_at=1.75), 2.0)
    assert times(instructions) == [(1.5, 1.75)]


def test_while_it_runs_a_task_reports_its_99th_percentile() -> None:
    task = OperatorWire()
    [(_, report)] = sent(task.task.handle(Tick(), 0.5), Progress)
    assert report.stats.latency_p99 is None
    task(mapper(0), push(["a"], read_at=1.0), 2.0)
    task.task.handle(ProcessDone(0.5), 3.0)
    [(_, report)] = sent(task.task.handle(Tick(), 4.0), Progress)
    assert report.stats.latency_p99 == pytest.approx(2.0, rel=0.01)


def test_about_once_a_second_a_task_reports_the_latencies_of_its_new_records() -> None:
    task, found = OperatorWire(), []
    for number, at in enumerate((1.0, 1.25, 1.5, 2.5, 3.75)):
        if number != 4:
            task(mapper(0), push(["a"] * (number + 1), read_at=at - 0.5), at)
            task.task.handle(ProcessDone(0.0), at)
        [(_, report)] = sent(task.task.handle(Tick(), at), Progress)
        found.append(report.latency and report.latency.records)
        assert report.stats.latency_p99 == pytest.approx(0.5, rel=0.01)
    assert found == [1, None, None, 2 + 3 + 4, None]


def test_a_snapshot_has_the_percentiles_of_the_last_seconds() -> None:
    coordinator, found = CoordinatorWire(), []
    for at, seconds in ((1.0, 1.0), (5.0, 1.0), (12.0, 3.0), (25.0, 3.0)):
        measured = LatencySketch()
        measured.add(seconds, 100)
        coordinator(reducer(0), Progress(TaskStats(REDUCER, 0), latency=measured), at)
        found.append(coordinator.coordinator.snapshot(history=False)[REDUCER].recent_latency)
    assert [(round(each.p50), round(each.p99)) for each in found if each] == [(1, 1), (1, 1), (1, 3), (3, 3)]
    coordinator.coordinator.handle(Tick(), 60.0)
    assert coordinator.coordinator.snapshot()[REDUCER].recent_latency is None, "nothing has come for long"


def test_the_coordinator_merges_what_the_tasks_of_a_stage_measured() -> None:
    coordinator = CoordinatorWire()
    for index in (0, 1):
        coordinator.mapped(index, 2, done=True)
        coordinator.reduced(index, 2)
    coordinator(BALANCER, last_table("reducer", 0))
    for index, seconds in ((1, 4.0), (0, 1.0)):
        measured = LatencySketch()
        measured.add(seconds, 2)
        coordinator.finished(reducer(index), 2, latency=measured)
    found = coordinator.coordinator.snapshot()[REDUCER].latency
    assert found is not None
    assert (found.records, found.max, found.mean) == (4, 4.0, 2.5)
    assert coordinator.coordinator.snapshot(history=False)[REDUCER].latency is None


def test_a_simulated_job_measures_virtual_time_exactly() -> None:
    """One mapper and one reducer, blocks of two records: a step takes 0.2 s, a record 0.5 s, a message 0.25 s.

    The mapper has its split at 1 s. The steps of three blocks begin at 1, 1.2 and 1.4 s. The first is at the reducer
    at 1.45 s. It is processed in one quantum; then, as that took long, each record by itself.
    """
    job = job_of(
        ["a"] * 6,
        6,
        2,
        mappers=1,
        reducers=1,
        map_seconds=0.1,
        service_seconds=lambda reducer: 0.5,
        network=Network(0.25, 0.25),
        balance=NoBalancingOptions(),
    )
    found = SimulatedCluster(replace(job, variation=0.0), seed=0).run().snapshot[REDUCER]
    assert found.latency is not None and found.stage_latency is not None
    assert found.latency.records == found.stage_latency.records == 6
    assert found.latency.max == pytest.approx(4.45 - 1.4)
    assert found.stage_latency.max == pytest.approx(4.45 - 1.6)
    began, ended = (1.0, 1.0, 1.2, 1.2, 1.4, 1.4), (2.45, 2.45, 2.95, 3.45, 3.95, 4.45)
    assert found.latency.mean == pytest.approx((sum(ended) - sum(began)) / 6)
    assert found.stage_latency.mean == pytest.approx(found.latency.mean - 0.2)
    quanta = (1.0, 1.0, 0.5, 0.5, 0.5, 0.5)
    assert found.tasks[0].work_seconds == pytest.approx(sum(quanta))
