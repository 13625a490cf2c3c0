"""The smallest graph, and it as a job for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.reduce_task import ReduceStage
from dpa.protocol.flow_control import FlowControl
from dpa.protocol.graph import MAPPER, REDUCER, Edge, Graph, Stage, StageInput
from dpa.sources.feed import Position
from dpa.sources.splits import Split
from experiments.simulation.job import NETWORK, Network, SimulatedJob


def stage_options(**options: Any) -> dict[str, Any]:
    """Options of a simulated stage, of which those of flow control are made one, if that is not given as a whole.
    Without `queue_seconds` there is no delay at which queues are held."""
    given = {"batch_records": 1, "queue_seconds": None, **options}
    flow = {of.name: given.pop(of.name) for of in fields(FlowControl) if of.name in given}
    return {"flow": FlowControl(**flow), **given}


def map_reduce(
    splits: tuple[Split, ...], mappers: int, reducers: int, *, position: Position | None = None, **options: Any
) -> Graph:
    """The smallest graph: one source stage, with its splits and position, and one reduce stage with `options`."""
    stages = (Stage(MAPPER, mappers, StageInput(splits, position)), Stage(REDUCER, reducers, **options))
    return Graph(stages, (Edge(MAPPER, REDUCER),))


def map_reduce_job(
    splits: Iterable[Split],
    task: MapTask,
    *,
    mappers: int = 4,
    reducers: int = 4,
    map_seconds: float = 0.0001,
    service_seconds: Callable[[int], float] = lambda reducer: 0.001,
    network: Network = NETWORK,
    ticks: int | None = 0,
    tick_seconds: float = 0.25,
    **options: Any,
) -> SimulatedJob:
    """The smallest graph as a simulated job.

    Args:
        splits: the input.
        task: what mappers do, and the reducer.
        mappers, reducers: how many tasks of each.
        map_seconds: virtual time to map one record.
        service_seconds: virtual time in which reducer `i` processes one record.
        network, ticks, tick_seconds: as of `SimulatedJob`.
        options: of the reduce stage, as of `stage_options`.
    """
    options = stage_options(**{"in_flight_records": 100, "quantum_records": 100, **options})
    return SimulatedJob(
        map_reduce(tuple(splits), mappers, reducers, **options),
        {MAPPER: Emission((task,)), REDUCER: ReduceStage(task.receiver, task.key)},
        lambda stage: map_seconds,
        lambda stage, index: service_seconds(index),
        network,
        ticks,
        tick_seconds,
    )
