"""Rare interleavings: messages slower than a chain of others, senders that come while states move, and rows that two
tasks read one after the other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from wires import job_of

from dpa.balance.options import HalvingOptions
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.events import Redistribute, Rescale
from experiments.simulated_jobs.random_jobs import run_random_job
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network
from experiments.simulation.violation import InvariantViolationError


def changed(seed: int, **machines: Any) -> None:
    run_random_job(seed, ENOUGH_STEPS, migrates=True, changes=True, **machines)


def run_asked(asks: Callable[[random.Random, int], Rescale | Redistribute], seed: int, **machines: Any) -> None:
    """A small job that is asked for something six times, and of whose messages some are slow."""
    draw = random.Random(seed)
    job = job_of(
        [f"key {draw.randrange(12)}" for _ in range(60)],
        20,
        1,
        mappers=2,
        reducers=3,
        map_seconds=0.002,
        service_seconds=lambda reducer: 0.002,
        quantum_records=1,
        drain_seconds=0.0,
        balance=HalvingOptions(min_queue=1_000, initial_tokens=64),
        network=Network(0.0001, 0.002, slow=1 / 12),
    )
    asked = tuple((draw.uniform(0.01, 0.13), asks(draw, turn)) for turn in range(6))
    cluster = SimulatedCluster(replace(job, requests=asked), seed, **machines)
    shares = cluster.run(ENOUGH_STEPS).shares[REDUCER]
    found = Counter(number for share in shares for numbers in share.table["records"].to_pylist() for number in numbers)
    if found != Counter(range(60)):
        raise InvariantViolationError("wrong result", cluster.history())


def redistribution(draw: random.Random, turn: int) -> Redistribute:
    return Redistribute(REDUCER, draw.randrange(3))


def rescaling(stage: str, draw: random.Random, turn: int) -> Rescale:
    return Rescale(turn, stage, draw.randint(1, 4))


redistributed = partial(run_asked, redistribution)
rescaled, sources_rescaled = (partial(run_asked, partial(rescaling, stage)) for stage in (REDUCER, MAPPER))
ENOUGH_STEPS = 60_000

RARE: dict[str, tuple[Callable[..., None], int]] = {
    "a task leaves before what it sent has come": (rescaled, 3),
    "a task leaves before its acknowledgements have come": (rescaled, 9),
    "a task leaves before what it forwarded has come": (rescaled, 10),
    "a new sender pushes before states have come": (changed, 15),
    "others may read the rest of a split too soon": (changed, 8),
    "a task leaves while it takes a step": (sources_rescaled, 4),
    "the end comes while a table is on its way": (redistributed, 0),
    "a redistribution is asked for after the last table": (redistributed, 5),
}
"""What machines could do wrong there, and a run and a seed that show it if they do."""


@pytest.mark.parametrize("name", RARE)
def test_rare_interleavings_keep_every_invariant(name: str) -> None:
    run, seed = RARE[name]
    run(seed)
