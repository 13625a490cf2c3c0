"""How random jobs and graphs are run: while tasks come and go or are placed again, with checkpoints behind some of
which they are run again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from dpa.execution.spill.room import Room
from dpa.protocol.graph import Graph
from experiments.simulated_jobs.random_changes import (
    again,
    with_open_inputs,
    with_random_changes,
    with_random_cuts,
    with_random_placement,
)
from experiments.simulation.checks.published import LEFT
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, SimulatedRun


class Made(Protocol):
    """A job that was made of a seed."""

    @property
    def job(self) -> SimulatedJob:
        """What is run."""

    def check(self, run: SimulatedRun, history: Callable[[], list[str]]) -> None:
        """Hold a result against the model's.

        Raises:
            InvariantViolationError: it is another; carries the history.
        """


def run_made(
    made: Made,
    seed: int,
    max_steps: int = 1_000_000,
    *,
    changes: bool = False,
    placed: bool = False,
    cuts: bool = False,
    feeds: bool = False,
    relays: bool = False,
    room: Room | None = None,
    **machines: Any,
) -> SimulatedRun:
    """Run a job in at most `max_steps`, and again behind some of its cuts, and check the results.

    Args:
        made: the job.
        seed: what else is random is drawn by.
        max_steps: of each run.
        changes: whether tasks come and go.
        placed: whether their placement follows the load.
        cuts: whether it has checkpoints.
        feeds: whether its inputs are open.
        relays: whether tasks and the coordinator speak through relays.
        room: what each task has for its states.
        machines: those of `SimulatedCluster`.

    Raises:
        InvariantViolationError: an invariant was broken, the job could not end, or a result is wrong.
    """
    job = replace(made.job, room=room, relays=random.Random(f"relays of {seed}").randint(1, 3) if relays else 0)
    job = with_random_changes(job, seed) if changes else job
    if placed:
        job = with_random_placement(job, seed)
    if feeds:
        job = with_open_inputs(job, seed)
    if cuts:
        job = with_random_cuts(job, seed)
    cluster = SimulatedCluster(job, seed, **machines)
    run = cluster.run(max_steps)
    made.check(run, cluster.history)
    for behind_cut in again(job, cluster, seed) if cuts else ():
        cluster = SimulatedCluster(behind_cut, seed, **machines)
        made.check(_with_finals_before(cluster.run(max_steps), run, behind_cut.graph), cluster.history)
    return run


def _with_finals_before(run: SimulatedRun, whole: SimulatedRun, graph: Graph) -> SimulatedRun:
    """A run behind a cut, with what was published before it in the run that was cut. What the checkpoint names may be
    in both, of the same epoch."""
    last = LEFT if graph.checkpoints is None else graph.checkpoints.epoch
    before = {
        stage: {epoch: rows for epoch, rows in epochs.items() if LEFT < epoch <= last}
        for stage, epochs in whole.finals.items()
    }
    return replace(run, finals={stage: {**before[stage], **own} for stage, own in run.finals.items()})
