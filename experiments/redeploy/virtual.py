"""A redeployment every minute for ten minutes, in virtual time: ours, on the paper's cluster.

It is asked for as it is on Ray, and the machines of the protocol carry it out; or nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dpa.balance.options import NoBalancingOptions
from dpa.job import Job
from dpa.routing.hashing import hash_column
from experiments.harness import check_counted, plan_of
from experiments.redeploy.course import Course
from experiments.redeploy.outcome import Case, Outcome, longest_gaps
from experiments.redeploy.plans import PUBLISHED_LAYOUT, Layout, redeployments, requests_of
from experiments.redeploy.schemes import PUBLISHED
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, SimulatedRun

_BALANCE = NoBalancingOptions()

_QUANTUM_SECONDS = 0.2
"""Long enough for all that comes at once, which saves simulated events; all else is as jobs have it by default."""

_BEYOND = 5
"""Seconds of input beyond those that are looked at and those that tasks which then move need to start."""

_CANDIDATES = 100_000
"""Keys of which each task gets some."""


@dataclass(frozen=True)
class Setup:
    """The job, and when its tasks move.

    Attributes:
        seconds: of the stream that are looked at.
        first, every: the moments of redeployments, in seconds since the stream began.
        sources: tasks that read, on a machine of their own, as the paper's server of the input is.
        load: what comes, as a part of what the tasks can do.
        service_seconds: of a record.
        keys: of each task.
        start_seconds: how long a task of ours takes to start: as long as a process of the paper.
    """

    seconds: int = 600
    first: float = 50.0
    every: float = 60.0
    layout: Layout = PUBLISHED_LAYOUT
    sources: int = 1
    load: float = 0.7
    service_seconds: float = 0.01
    keys: int = 20
    start_seconds: float = PUBLISHED.restart

    @property
    def moments(self) -> list[float]:
        """Of redeployments, in virtual time: the stream begins at 0."""
        return np.arange(self.first, self.seconds, self.every).tolist()

    @property
    def rate(self) -> float:
        """Records a second, of all sources."""
        return self.load * self.layout.tasks / self.service_seconds


def simulate(setup: Setup, case: Case, seed: int) -> Outcome:
    """One run.

    Raises:
        InvariantViolationError: the protocol broke.
        AssertionError: the counts are wrong, or a request was refused.
    """
    layout = setup.layout
    plans = tuple(redeployments(layout, case.moved, setup.moments, seed)) if case.moved else ()
    requests = tuple(requests_of(plans)) if case.moved else ()
    table = stream(setup, seed)
    plan = plan_of(_job(setup, table))
    stages = tuple(replace(stage, expected_seconds=None) for stage in plan.graph.stages)  # of real time
    job = SimulatedJob(
        replace(plan.graph, stages=stages),
        plan.tasks,
        step_seconds=lambda stage: setup.sources / setup.rate,
        service_seconds=lambda stage, index: setup.service_seconds,
        requests=tuple((plan.at, request) for plan, request in zip(plans, requests, strict=True)),
        start_seconds=setup.start_seconds,
    )
    course = Course()
    run = SimulatedCluster(job, seed, operator=course.machine()).run(max_steps=100 * len(table))
    check_counted(table["key"], run)
    assert not any(answer.refused for answer in run.answers.values()), run.answers
    moved, stayed = longest_gaps(course.gaps(_first_of(run, layout)), plans, setup.seconds)
    return Outcome(
        case,
        rates=tuple(course.rates(0.0, setup.seconds).tolist()),
        p50=course.delay(0.5, setup.seconds),
        p99=course.delay(0.99, setup.seconds),
        gaps=moved,
        others=stayed,
    )


def stream(setup: Setup, seed: int) -> pa.Table:
    """The records, a key each, in order: the same number for every task, in any short time too."""
    random, tasks = np.random.default_rng(seed), setup.layout.tasks
    candidates = np.arange(_CANDIDATES)
    owners = _BALANCE.ring(tasks).snapshot(0).owners_of(hash_column(pa.array(candidates)))
    keys = np.stack([candidates[owners == task][: setup.keys] for task in range(tasks)])
    rounds = round((setup.seconds + setup.start_seconds + _BEYOND) * setup.rate / tasks)
    turns = random.permuted(np.tile(np.arange(tasks), (rounds, 1)), axis=1).ravel()
    return pa.table({"key": keys[turns, random.integers(0, setup.keys, len(turns))]})


def _job(setup: Setup, table: pa.Table) -> Job:
    """A count by key; states move with their keys."""
    return Job(
        input=table,
        key="key",
        value=[],
        reducer="count",
        combiner=False,
        parallelism={"mappers": setup.sources, "reducers": setup.layout.tasks},
        balance="none",
        consistency="migrate",
        limits={"split_records": -(-len(table) // setup.sources), "quantum_seconds": _QUANTUM_SECONDS},
    )


def _first_of(run: SimulatedRun, layout: Layout) -> dict[int, int]:
    """The first task whose keys each one has."""
    first = {task: task for task in range(layout.tasks)}
    for old, new in (pair for step in run.snapshot.steps for pair in step.moved):
        first[new] = first[old]
    return first
