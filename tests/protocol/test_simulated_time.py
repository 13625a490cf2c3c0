"""How long user code takes in the simulator: by the work in a block, by the moment, and by who shares the cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from wires import job_of, reducer

from dpa.balance.options import NoBalancingOptions
from dpa.execution.block import Block
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.wire.events import Event, MoveTasks, ProcessDone
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.metrics import StageSnapshot
from experiments.simulated_jobs.pauses import Pauses
from experiments.simulated_jobs.random_jobs import random_job
from experiments.simulation._hosts import Hosts
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network, SimulatedJob


def job(keys: Sequence[str], *, reducers: int = 1, **timing: Any) -> SimulatedJob:
    """One mapper that takes no time, blocks and quanta of one record; reducers of 1 s, and nothing varies."""
    made = job_of(
        keys,
        len(keys),
        1,
        mappers=1,
        reducers=reducers,
        map_seconds=0.0,
        service_seconds=lambda reducer: 1.0,
        network=Network(0.01, 0.01),
        quantum_records=1,
        drain_seconds=0.0,
        balance=NoBalancingOptions(),
    )
    return replace(made, variation=0.0, **timing)


def run(simulated: SimulatedJob) -> StageSnapshot:
    """The reduce stage of a run."""
    return SimulatedCluster(simulated, seed=0).run().snapshot[REDUCER]


def listened(simulated: SimulatedJob) -> tuple[StageSnapshot, list[tuple[float, float, float]]]:
    """The same, and of what user code has done when it was done, its seconds, and for how long it waited."""
    done: list[tuple[float, float, float]] = []

    class Listens(OperatorMachine):
        def handle(self, event: Event, now: float) -> list[Instruction]:
            if isinstance(event, ProcessDone):
                done.append((now, event.seconds, event.waited))
            return super().handle(event, now)

    return SimulatedCluster(simulated, 0, operator=Listens).run().snapshot[REDUCER], done


def one_key_each(reducers: int) -> list[str]:
    """A key for each reducer."""
    table = job(["any"], reducers=reducers).graph[REDUCER].first_table()
    found: dict[int, str] = {}
    number = 0
    while len(found) < reducers:
        found.setdefault(table.key_lookup(f"key {number}"), f"key {number}")
        number += 1
    return list(found.values())


def dear(stage: str, block: Block) -> float:
    """Records of one key take ten times as long."""
    assert stage == REDUCER
    return sum(10.0 if key == "dear" else 1.0 for key in block.keys.take(pa.array(block.codes)).to_pylist())


def slowed(stage: str, index: int, now: float) -> float:
    """From a moment on reducers take longer for what they begin then, and sources always do."""
    return 2.0 if stage == MAPPER else 3.0 if now >= 4.0 else 1.0


@pytest.mark.parametrize(
    ("keys", "timing", "busy"),
    [
        (["cheap", "dear", "cheap"], {"work_of": dear}, (0.0, 12.0)),
        (["a"] * 5, {"slowness": slowed, "step_seconds": lambda stage: 0.5}, (5.0, 3 * 1.0 + 2 * 3.0)),
        (["a"] * 3, {"cores": 1}, (0.0, 3.0)),  # a reducer that works alone has the core to itself
    ],
)
def test_a_record_takes_as_long_as_its_key_its_moment_and_its_core_ask_for(
    keys: list[str], timing: dict[str, Any], busy: tuple[float, float]
) -> None:
    snapshot = SimulatedCluster(job(keys, **timing), seed=0).run().snapshot
    found = [snapshot[stage].tasks[0].busy_seconds for stage in (MAPPER, REDUCER)]
    assert found == [pytest.approx(seconds) for seconds in busy]


def test_a_reducer_that_pauses_does_nothing_meanwhile_and_is_not_busy() -> None:
    """Three records of 1 s; the pause interrupts the second, whatever comes then is queued."""
    _, undisturbed = listened(job(["a"] * 3))
    began = undisturbed[0][0] - 1.0
    pauses = Pauses.of([(began + 1.5, began + 6.0)])
    paused = job(["a"] * 3, lasting=lambda stage, index, *work: pauses.lasting(*work) if stage == REDUCER else work[1])
    stage, done = listened(paused)
    assert [at - began for at, *_ in done] == pytest.approx([1.0, 6.5, 7.5])
    assert stage.tasks[0].busy_seconds == pytest.approx(3.0)


def test_a_task_takes_its_time_to_start_and_others_work_meanwhile() -> None:
    """The first tasks are there at once. Of a reducer that moves after two of ten records, the old task works on until
    the new one is up."""
    move = (2.0, MoveTasks(1, REDUCER, (0,)))
    cluster = SimulatedCluster(job(["a"] * 10, start_seconds=5.0, requests=(move,)), 0)
    old, new = cluster.run().snapshot[REDUCER].tasks
    assert cluster.coordinator.started_at == pytest.approx(0.0, abs=0.1)
    assert (old.processed, new.processed) == (7, 3)


@pytest.mark.parametrize(("cores", "expected"), [(None, 30), (6, 30), (3, 30), (2, 45), (1, 90)])
def test_reducers_that_are_all_busy_take_as_long_as_their_share_of_the_cores_lets_them(
    cores: int | None, expected: float
) -> None:
    """The first and the last records of all are faster, as not all three are at work yet, or any more."""
    snapshot = run(job(one_key_each(3) * 30, reducers=3, cores=cores))
    assert [task.busy_seconds for task in snapshot.tasks] == [pytest.approx(expected, rel=0.1)] * 3


def test_a_piece_waits_for_a_core_by_the_number_that_run_when_it_begins() -> None:
    hosts, boundless = Hosts(None, 2), Hosts(None, None)
    assert [hosts.begin(reducer(index), 1.0) for index in range(4)] == [0.0, 0.0, 0.5, 1.0]
    for index in (0, 1):
        hosts.end(reducer(index))
    assert hosts.begin(reducer(0), 2.0) == pytest.approx(1.0)  # the third at once
    assert [boundless.begin(reducer(index), 1.0) for index in range(3)] == [0.0] * 3


def test_a_reducer_is_told_how_long_it_waited_for_a_core() -> None:
    _, done = listened(job(one_key_each(2), reducers=2, cores=1))
    assert [(seconds, waited) for _, seconds, waited in done] == [(1.0, 0.0), (2.0, 1.0)]


def test_enough_cores_change_nothing() -> None:
    for seed in range(3):
        made = random_job(seed).job
        runs = [SimulatedCluster(simulated, seed) for simulated in (made, replace(made, cores=100))]
        for each in runs:
            each.run()
        assert runs[0].history() == runs[1].history()
