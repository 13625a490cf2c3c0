"""Scenarios in virtual time: the machines, policies and defaults of a real job, with service times that are exact but
for the scheduler's seed."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa
import pyarrow.compute as pc

from dpa.driver.inputs import Inputs, lazy_session
from dpa.execution.block import Block
from dpa.job import Job
from dpa.measure.skew import skew
from dpa.protocol.graph import REDUCER
from dpa.protocol.plan import RunPlan
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, SimulatedRun
from experiments.steady.methods import METHODS, check_counts, job_of
from experiments.steady.outcome import Outcome, applied
from experiments.steady.scenarios import MAPPERS, SERVICE_SECONDS, Load
from experiments.steady.shared import CORES, Shared

CLOSED, OPEN = "virtual, closed loop", "virtual, paced"
SHARED_CORES = "virtual, cores shared"
"""The parts of virtual runs: sources as fast as they can, or at a pace, and cheap records."""

_FAST_SOURCE = 1e-5
"""Seconds in which a source that does not keep a pace makes a record."""

_MAP_MICROS = 1.0
"""Microseconds of a mapper that a cheap record takes."""


def simulate(load: Load, method: str, seed: int) -> Outcome:
    """One run of a load; `seed` is the scheduler's."""
    plan = plan_of(job_of(load, method, 0.0, paced=False))
    simulated = SimulatedJob(
        plan.graph,
        plan.tasks,
        step_seconds=lambda stage: MAPPERS / load.rate if load.rate else _FAST_SOURCE,
        service_seconds=lambda stage, index: SERVICE_SECONDS,
        work_of=_cost,
        slowness=lambda stage, index, now: load.scenario.slowness(index, now) if stage == REDUCER else 1.0,
        ticks=None,
    )
    cluster = SimulatedCluster(simulated, seed)
    run = cluster.run()
    _check(load, run)
    return outcome_of(cluster, run, OPEN if load.rate else CLOSED, load.scenario.name, method, load.ideal)


def outcome_of(
    cluster: SimulatedCluster, run: SimulatedRun, part: str, scenario: str, method: str, ideal: float
) -> Outcome:
    """What a virtual run came to."""
    stage = run.snapshot[REDUCER]
    began, ended = cluster.coordinator.started_at, cluster.coordinator.stream_ended_at
    assert began is not None and ended is not None and stage.latency is not None
    processed = [task.processed for task in stage.tasks]
    moments, reasons = applied(stage.decisions)
    return Outcome(
        part,
        scenario,
        method,
        seconds=ended - began,
        ideal=ideal,
        skew=skew(processed),
        redistributions=moments,
        forwarded=sum(task.forwarded for task in stage.tasks) / sum(processed),
        p50=stage.latency.quantile(0.5),
        p99=stage.latency.quantile(0.99),
        processor=float("nan"),
        reasons=reasons,
    )


def plan_of(job: Job) -> RunPlan:
    """What a backend would be given to run a job."""
    with ExitStack() as stack:
        opened = Inputs(job.spec).open(stack, lazy_session(job.config, stack))
    splits = {name: found.splits for name, found in opened.items()}
    return job.spec.plan(splits, {name: found.schema for name, found in opened.items()})


def _cost(stage: str, block: Block) -> float:
    """The work of a block, by its records' own column."""
    return float(pc.sum(block.columns["cost"]).as_py()) if stage == REDUCER else block.rows


def _check(load: Load, run: SimulatedRun) -> None:
    shares = pa.concat_tables([share.table for share in run.shares[REDUCER] if share.table.num_rows])
    check_counts(load, shares["key"], shares["count"])


def simulate_shared(shared: Shared, records: int, method: str, seed: int) -> Outcome:
    """One run in which all tasks share the cores."""
    table = shared.table(records, seed)
    job = Job(
        input=table,
        key="key",
        value=[],
        reducer="count",
        combiner=False,
        parallelism=shared.parallelism(),
        limits={"split_records": -(-records // shared.shape.mappers)},
        **METHODS[method],
    )
    plan = plan_of(job)
    simulated = SimulatedJob(
        plan.graph,
        plan.tasks,
        step_seconds=lambda stage: _MAP_MICROS / 1e6,
        service_seconds=lambda stage, index: shared.micros / 1e6,
        ticks=None,
        cores=CORES,
    )
    cluster = SimulatedCluster(simulated, seed)
    ideal = records * (shared.micros + _MAP_MICROS) / 1e6 / CORES
    return outcome_of(cluster, cluster.run(), SHARED_CORES, shared.name, method, ideal)
