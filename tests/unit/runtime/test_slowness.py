"""What makes a reducer slow, without processes: how long it waits, and where it cannot be done."""

from __future__ import annotations

import pytest

from dpa.protocol.graph import MAPPER, REDUCER, map_reduce
from dpa.protocol.plan import RunPlan, SlowTasks
from dpa.protocol.wire.addresses import Address
from dpa.runtime.actors._process import Slowness


def plan(slow: dict[str, SlowTasks]) -> RunPlan:
    return RunPlan(map_reduce((), 1, 3), tasks={}, deliveries={}, testing=slow)


def slowness(of_plan: RunPlan, index: int, slept: list[float] | None = None) -> Slowness:
    return Slowness(of_plan, Address(REDUCER, index), ([] if slept is None else slept).append)


@pytest.mark.parametrize(
    ("slow", "waits"),
    [
        ({}, []),
        ({REDUCER: SlowTasks(slow_factor=[5.0, 1.0, 2.5])}, [1.0, 0.375]),
        ({MAPPER: SlowTasks(slow_factor=[5.0])}, []),
    ],
)
def test_a_task_waits_for_as_long_as_it_would_take_longer(slow: dict[str, SlowTasks], waits: list[float]) -> None:
    slept: list[float] = []
    for index in range(3):
        made = slowness(plan(slow), index, slept)
        made.prolong(0.25)
    assert slept == waits
