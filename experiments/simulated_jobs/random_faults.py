"""Random faults of a simulated job, made of a seed alone: processes that are killed or taken for dead, slow nodes,
partitions that heal, messages of dead generations, and a file system that fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

from dpa.protocol.graph import Graph
from dpa.protocol.recovery import CheckpointOptions, RecoveryOptions
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from experiments.simulated_jobs.generations import Fault, Faults, SimulatedGenerations
from experiments.simulated_jobs.random_changes import with_random_changes, with_random_placement
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob

_KINDS = ("source", "operator", "operator", BALANCER.stage, COORDINATOR.stage, COORDINATOR.stage)

_TAKEN_FOR_DEAD = 0.25
"""How often nobody is killed: a generation that does not answer goes on beside the next one."""

_AT_ONCE = 0.15
"""How often a process is killed before the stream begins."""

_TOO_FEW = 0.05
"""How often a job bears less deaths than come."""


def with_random_faults(
    job: SimulatedJob,
    seed: int,
    *,
    changes: bool = True,
    placed: bool = False,
    died: Callable[[SimulatedCluster], None] = lambda cluster: None,
    **machines: Any,
) -> SimulatedGenerations:
    """The job with its faults.

    Args:
        job: what runs.
        seed: of all that is random.
        changes: whether tasks come and go in each generation.
        placed: whether their placement follows the load.
        died: is called when a process is about to be killed, or a generation to be taken for dead.
        machines: those of `SimulatedCluster`.
    """
    draw = random.Random(f"faults of {seed}")
    of = tuple(_fault(draw) for _ in range(draw.choice([1, 1, 2, 3, 4])))
    job = _partitioned(_slowed(job, draw), draw)
    every, keep = draw.choice([0.001, 0.01, 0.03]), draw.choice([1, 2, 3])
    stores = draw.random() < 0.85
    job = replace(job, write_seconds=draw.choice([0.0, 0.02]))
    attempts = len(of) if draw.random() > _TOO_FEW else len(of) - 1

    def of_generation(number: int, graph: Graph) -> SimulatedJob:
        own, drawn = replace(job, graph=graph), 1_000 * number + seed
        own = with_random_changes(own, drawn) if changes else own
        return with_random_placement(own, drawn) if placed else own

    return SimulatedGenerations(
        of_generation,
        job.graph,
        seed,
        Faults(of, draw.choice([0.0, 0.5]), draw.choice([0.0, 0.0, 0.1]), draw.choice([0.0, 0.5])),
        RecoveryOptions(attempts=attempts, backoff=draw.choice([0.0, 0.01, 0.1])),
        CheckpointOptions(path="memory", every=every, keep=keep) if stores else None,
        machines,
        died,
    )


def _fault(draw: random.Random) -> Fault:
    is_at_once, checkpoints = draw.random() < _AT_ONCE, draw.choice([0, 0, 1, 1, 2])
    steps = 0 if is_at_once else int(draw.expovariate(1 / draw.choice([10, 100, 1_000])))
    return Fault(
        steps,
        draw.choice(_KINDS),
        draw.randrange(12),
        0 if is_at_once else checkpoints,
        is_alive=draw.random() < _TAKEN_FOR_DEAD and not is_at_once,
        writes=draw.randint(1, 5),
    )


def _side(address: Address, salt: int) -> int:
    """On which of two nodes a task is."""
    return crc32(f"{address} {salt}".encode()) & 1


def _slowed(job: SimulatedJob, draw: random.Random) -> SimulatedJob:
    """The job, whose tasks on one node are slow for a while, now and then."""
    salt, since, factor = draw.randrange(1_000), draw.uniform(0, 0.2), draw.choice([3.0, 30.0])
    until = since + draw.uniform(0, 0.2)
    if draw.random() > 0.3:
        return job
    return replace(
        job,
        slowness=lambda stage, index, now: (
            factor if since <= now < until and _side(Address(stage, index), salt) else 1.0
        ),
    )


def _partitioned(job: SimulatedJob, draw: random.Random) -> SimulatedJob:
    """The job, of whose two nodes neither hears anything of the other for a while, now and then."""
    salt, since = draw.randrange(1_000), draw.uniform(0, 0.3)
    until = since + draw.choice([0.05, 1.0]) * draw.random()
    if draw.random() > 0.3:
        return job
    return replace(
        job,
        held=lambda sender, receiver, now: (
            until - now if since <= now < until and _side(sender, salt) != _side(receiver, salt) else 0.0
        ),
    )
