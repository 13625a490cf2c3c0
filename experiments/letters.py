"""Runs of the DPA paper's letter workloads (section 6), on Ray or in virtual time.

The jobs are those of `configs/paper/`. The experiments `table1` and `figure3` choose the runs and interpret them.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpa.balance.options import TokenOptions
from dpa.driver.inputs import Inputs, lazy_session
from dpa.job import Job
from dpa.measure.skew import skew
from dpa.protocol.graph import REDUCER
from dpa.runtime.cluster import ray_session
from dpa.spark import spark_session
from experiments.charts import COLOURS
from experiments.harness import progress
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob
from jobs.letters import WORKLOADS

CONFIGS = Path(__file__).parents[1] / "configs" / "paper"

SERVICE_SECONDS = 0.2
"""What reducing one letter takes, in the paper."""

METHODS: dict[str, tuple[str, ...]] = {
    "none": ("balance.strategy=none",),
    "none, 1 token": ("balance.strategy=none", "balance.initial_tokens=1"),
    "halving": ("balance.strategy=halving",),
    "doubling": ("balance.strategy=doubling",),
    "adaptive": ("balance.strategy=adaptive",),
}
"""What each method sets in the job files. The first two do not balance: on halving's ring, and on doubling's."""

COLOUR_OF = dict(zip(METHODS, COLOURS, strict=False))
"""The colour of a method in all pictures."""

UNBALANCED = {"halving": "none", "doubling": "none, 1 token"}
"""The method that does not balance, on the ring that a method starts with."""


@dataclass(frozen=True)
class Run:
    """One run of a workload.

    Attributes:
        workload, method: keys of `WORKLOADS` and `METHODS`.
        rounds: the most redistributions that one reducer's load may cause.
        skew: S of the letters that each reducer processed, 0 to 1.
        seconds: of the stream, from the first split asked for to the last record processed; wall time or virtual.
        redistributions: the number of redistributions, by all reducers' loads together.
        forwarded: letters passed from one reducer to another, each time counted.
        processed: letters processed by each reducer.
    """

    workload: str
    method: str
    rounds: int
    skew: float
    seconds: float
    redistributions: int
    forwarded: int
    processed: tuple[int, ...]

    @staticmethod
    def of(plain: dict[str, Any]) -> Run:
        """A run again of what `dataclasses.asdict` made of it, as a result file holds it."""
        return Run(**{**plain, "processed": tuple(plain["processed"])})


@dataclass(frozen=True)
class Race:
    """The parameters, besides the job, that decide the state of the queues when a reducer is found overloaded.

    Attributes:
        map_seconds: the time one mapper takes to get, map and push a letter.
        report_every: a reducer reports its queue each time it has dequeued this many letters; None: as in the job file.
    """

    map_seconds: float = 0.005
    report_every: int | None = None


@contextmanager
def sessions() -> Iterator[None]:
    """One Spark and one Ray for all runs on Ray."""
    with ExitStack() as stack:
        progress("starting Spark and Ray")
        stack.enter_context(spark_session("letters", "local[2]", {"spark.sql.shuffle.partitions": "2"}))
        stack.enter_context(ray_session(None))
        yield


def run_on_ray(workload: str, method: str, rounds: int = 1, *, service_seconds: float = SERVICE_SECONDS) -> Run:
    """Run a workload on the Ray that is up, each letter taking `service_seconds`, and check its result with Spark.

    Raises:
        JobFailedError: the job failed.
        ReferenceMismatchError: the result differs from Spark's.
    """
    report = _job(workload, method, rounds, service_seconds).run(check=True).report
    return Run(
        workload,
        method,
        rounds,
        report.main.skew.dpa,
        report.seconds.stream,
        len(report.main.redistributions),
        report.records.forwarded,
        tuple(reducer.processed for reducer in report.main.tasks),
    )


def simulate(workload: str, method: str, seeds: Iterable[int], rounds: int = 1, race: Race | None = None) -> list[Run]:
    """Run a workload in virtual time, once for each seed of the scheduler, which varies delays and service by 20 %.

    Raises:
        RuntimeError: letters were lost or counted twice.
    """
    race = race or Race()
    job = _job(workload, method, rounds, 0.0)  # time is virtual: nobody sleeps
    with ExitStack() as stack:
        [opened] = Inputs(job.spec).open(stack, lazy_session(job.config, stack)).values()
    [source, reducer] = job.spec.steps
    balance = job.config.balance
    if race.report_every is not None and isinstance(balance, TokenOptions):
        balance = dataclasses.replace(balance, report_every=race.report_every)
    simulated = map_reduce_job(
        opened.splits,
        job.spec.compilation({source.name: opened.schema}).columns.map_task(reducer, reducer.feeds[0]),
        mappers=job.config.parallelism.mappers,
        reducers=job.config.parallelism.reducers,
        balance=balance,
        flow=job.config.limits,
        map_seconds=race.map_seconds,
        service_seconds=lambda reducer: SERVICE_SECONDS,
        ticks=None if balance.reports.report_seconds else 0,
    )
    return [_simulated(workload, method, rounds, simulated, seed) for seed in seeds]


def spread(runs: Sequence[Run]) -> dict[str, Any]:
    """A summary of runs: the number of runs by S, and the means of their other values."""
    return {
        "skew": dict(sorted(Counter(f"{run.skew:.3f}" for run in runs).items())),
        "seconds": round(statistics.mean(run.seconds for run in runs), 2),
        "redistributions": round(statistics.mean(run.redistributions for run in runs), 2),
    }


def one_after_another(runs: Sequence[tuple[str, str, int]], *, service_seconds: float = SERVICE_SECONDS) -> list[Run]:
    """Run (workload, method, rounds) on the Ray that is up, one after another, and print the progress."""
    began, made = time.monotonic(), []
    for workload, method, rounds in runs:
        made.append(run := run_on_ray(workload, method, rounds, service_seconds=service_seconds))
        left = (time.monotonic() - began) / len(made) * (len(runs) - len(made))
        progress(
            f"{len(made)} of {len(runs)}: {workload}, {method}, {rounds} rounds: S {run.skew:.2f} in "
            f"{run.seconds:.1f} s; {left / 60:.0f} minutes left"
        )
    return made


def _job(workload: str, method: str, rounds: int, service_seconds: float) -> Job:
    overrides = [
        *METHODS[method],
        *([f"balance.max_rounds={rounds}"] if method in UNBALANCED else []),
        f"reducer.args.seconds={service_seconds}",
        "reference.baseline=false",  # how Spark would partition the letters is of no use here
    ]
    return Job.from_file(CONFIGS / f"{workload}.yaml", overrides)


def _simulated(workload: str, method: str, rounds: int, job: SimulatedJob, seed: int) -> Run:
    cluster = SimulatedCluster(job, seed)
    run = cluster.run()
    rows = [row for share in run.shares[REDUCER] for row in share.table.to_pylist()]
    if Counter({row["letter"]: row["count"] for row in rows}) != Counter(WORKLOADS[workload]):
        raise RuntimeError(f"{workload}, {method}, {rounds} rounds, seed {seed}: the letters were not counted right")
    stage = run.snapshot[REDUCER]
    processed = tuple(task.processed for task in stage.tasks)
    began, ended = cluster.coordinator.started_at, cluster.coordinator.stream_ended_at
    assert began is not None and ended is not None
    return Run(
        workload,
        method,
        rounds,
        skew(processed),
        ended - began,
        stage.decision_counts.get("applied", 0),
        sum(task.forwarded for task in stage.tasks),
        processed,
    )
