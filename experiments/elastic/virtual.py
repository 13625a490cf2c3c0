"""Loads in virtual time: the real machines, a source that waits until a record is due, and a count by key."""

from __future__ import annotations

import itertools
import math
import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dpa.balance.elastic import ElasticOptions
from dpa.job import Job
from dpa.protocol.graph import REDUCER
from dpa.protocol.wire.metrics import Snapshot
from experiments.elastic.loads import HELD_OUT, LOADS, Floats, Load
from experiments.elastic.outcome import Change, Outcome, outcome_of
from experiments.harness import check_counted, plan_of, progress
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob

OURS, PEAK = "ours", "fixed, peak load"
METHODS = (OURS, PEAK)

SHORT, LONG = "short queues", "long queues"
QUEUES = {SHORT: 0.5, LONG: None}
"""`limits.queue_seconds`: the source is held back soon, by default, or all that is due waits in queues."""

OPTIONS = ElasticOptions(max_tasks=16)
SERVICE_SECONDS, START_SECONDS = 0.02, 2.0
_KEYS, _BATCH = 2_000, 20


@dataclass(frozen=True)
class Case:
    """A run: its load, how queues are bounded, the method, and the seed."""

    load: str
    queues: str
    method: str
    seed: int


def cases(seeds: int, loads: Iterable[Load] = (*LOADS, *HELD_OUT)) -> list[Case]:
    """All of them: what is fixed has one seed, as it hardly depends on it; loads that are held out are met by ours."""
    found = (Case(load.name, *rest) for load, *rest in itertools.product(loads, QUEUES, METHODS, range(seeds)))
    held_out = {load.name for load in HELD_OUT}
    return [case for case in found if case.method == OURS or (case.load not in held_out and case.seed == 0)]


def run_all(chosen: Iterable[Case], processes: int) -> list[Outcome]:
    """Run them, so many at a time."""
    found = []
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for run in pool.map(simulate, chosen):
            found.append(run)
            progress(f"{run.load}, {run.queues}, {run.method}: {len(run.changes)} changes, {run.late:.1f} s late")
    return found


def simulate(case: Case) -> Outcome:
    """One run.

    Raises:
        InvariantViolationError: the protocol broke.
        AssertionError: the counts are wrong.
    """
    load = _of_case(case)
    due = load.due(SERVICE_SECONDS)
    table = pa.table({"key": _even_keys(len(due), case.seed)})
    job = Job(
        input=table,
        key="key",
        value=[],
        reducer="count",
        combiner=False,
        parallelism={"mappers": 1, "reducers": load.begins},
        limits={"split_records": len(due), "queue_seconds": QUEUES[case.queues], "batch_records": _BATCH},
        elastic={"max_tasks": OPTIONS.max_tasks} if case.method == OURS else None,
    )
    plan = plan_of(job)
    simulated = SimulatedJob(
        plan.graph,
        plan.tasks,
        step_seconds=lambda stage: 1e-5,
        service_seconds=lambda stage, index: SERVICE_SECONDS,
        due=lambda stage, index, records: float(due[records - 1]) if records else 0.0,
        ticks=None,
        start_seconds=START_SECONDS,
    )
    run = SimulatedCluster(simulated, case.seed).run(max_steps=100 * len(due))
    check_counted(table["key"], run)
    return outcome_of(
        load,
        (case.queues, case.method, case.seed),
        changes_of(run.snapshot, load.begins),
        _processed(run.snapshot),
        SERVICE_SECONDS,
        OPTIONS.target,
    )


def _of_case(case: Case) -> Load:
    """The load of a case; a number that stays is the ideal one of the highest load."""
    load = next(load for load in (*LOADS, *HELD_OUT) if load.name == case.load)
    highest = float(load.tasks(np.arange(0.0, load.seconds, 0.1)).max())
    return load if case.method == OURS else replace(load, begins=math.ceil(highest / OPTIONS.target))


def _even_keys(records: int, seed: int) -> pa.Array:
    return pa.array(np.random.default_rng(seed).integers(0, _KEYS, records))


def changes_of(snapshot: Snapshot, begins: int) -> list[Change]:
    """The changes of a run that began with so many reducers."""
    found, tasks = [], begins
    for step in snapshot.steps:
        tasks += len(step.started) - len(step.stopped)
        found.append(Change(step.at, step.seconds, tasks, step.reason))
    return found


def _processed(snapshot: Snapshot) -> tuple[Floats, Floats]:
    """Moments, and the records processed by then; a sample has 0 of a task that has been stopped."""
    samples = snapshot[REDUCER].samples
    done = np.maximum.accumulate(np.array([each.processed for each in samples], dtype=float))
    return np.array([each.at for each in samples]), done.sum(axis=1)
