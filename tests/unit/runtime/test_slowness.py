"""Which tasks are slow on purpose, and by how much."""

from __future__ import annotations

import pytest

from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.plan import RunPlan, SlowTasks
from dpa.protocol.wire.addresses import Address
from experiments.simulated_jobs.map_reduce import map_reduce


@pytest.mark.parametrize(
    ("slow", "factors"),
    [
        ({}, [1.0, 1.0, 1.0]),
        ({REDUCER: SlowTasks(slow_factor=[5.0, 1.0])}, [5.0, 1.0, 1.0]),
        ({MAPPER: SlowTasks(slow_factor=[5.0])}, [1.0, 1.0, 1.0]),
    ],
)
def test_each_task_has_its_factor_and_later_ones_have_none(slow: dict[str, SlowTasks], factors: list[float]) -> None:
    plan = RunPlan(map_reduce((), 1, 3), tasks={}, deliveries={}, testing=slow)
    assert [plan.slow_factor(Address(REDUCER, index)) for index in range(3)] == factors
