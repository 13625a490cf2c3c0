"""How long a cut of the stream takes where one key has 60 % of the records, beside even keys, in virtual time.

At a cut sources wait until all that they have emitted is processed, so it takes as long as the longest queue: what
differs between keys is how long that is.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpa import Flow
from dpa.aggregates import Count
from dpa.protocol.graph import CheckpointTimes
from experiments.harness import Findings, at_most, main, markdown_table, plan_of, progress
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob

REDUCERS, MAPPERS = 4, 2
SERVICE_SECONDS = 0.002
"""Of a record, in a reducer."""

SOURCE_SECONDS = 0.00001
"""Of a record, in a mapper: sources are as fast as they may."""

HOT_SHARE, KEYS = 0.6, 10_000
RECORDS, QUICK_RECORDS = 40_000, 8_000
BLOCK, IN_FLIGHT = 50, 2_000
"""Records in a block, and of one mapper in flight at most: 2 s of work for each reducer, where keys are even."""

QUEUE_SECONDS = 0.5
EVERY, QUICK_EVERY = 4.0, 1.0
"""Seconds between cuts."""

BALANCE: dict[str, dict[str, Any]] = {"none": {}, "adaptive": {"check_seconds": 0.25, "measure_seconds": 0.25}}

WIDEST = 1.5
"""How many times as long as with even keys a cut may take."""


def keys_of(share: float, records: int, seed: int) -> pa.Array:
    """Keys, of which one has that share of all, and the others are drawn evenly."""
    random = np.random.default_rng(seed)
    cold = random.integers(1, KEYS, records)
    return pa.array(np.where(random.random(records) < share, 0, cold))


@dataclass(frozen=True)
class Cuts:
    """Those of one run.

    Attributes:
        number: how many.
        seconds: that one took, in the mean.
        longest: of one.
        all_seconds: of the run.
    """

    number: int
    seconds: float
    longest: float
    all_seconds: float


def cuts_of(keys: pa.Array, strategy: str, queue_seconds: float | None, every: float, seed: int) -> Cuts:
    """Cuts `every` some seconds; `seed` is the scheduler's.

    Raises:
        ValueError: there were none.
    """
    limits = {"batch_records": BLOCK, "in_flight_records": IN_FLIGHT, "queue_seconds": queue_seconds}
    flow = Flow("cuts", limits={**limits, "quantum_seconds": 0.05, "split_records": 1_000})
    rows = flow.read(pa.table({"key": keys}), parallelism=MAPPERS).key_by("key", value=[])
    rows.reduce(Count(), parallelism=REDUCERS, balance={"strategy": strategy, **BALANCE[strategy]})
    plan = plan_of(flow.job())
    job = SimulatedJob(
        replace(plan.graph, checkpoints=CheckpointTimes(every)),
        plan.tasks,
        step_seconds=lambda stage: SOURCE_SECONDS,
        service_seconds=lambda stage, index: SERVICE_SECONDS,
        write_seconds=0.0,
        ticks=None,
    )
    cluster = SimulatedCluster(job, seed)
    epochs = cluster.run().snapshot.epochs
    began, ended = cluster.coordinator.started_at, cluster.coordinator.stream_ended_at
    assert began is not None and ended is not None
    if not epochs.number:
        raise ValueError("the stream ended before a cut, so none can be measured")
    return Cuts(epochs.number, epochs.seconds / epochs.number, epochs.longest, ended - began)


def measure(options: argparse.Namespace) -> Findings:
    """With and without balancing, even keys and a hot one."""
    records, every = (QUICK_RECORDS, QUICK_EVERY) if options.quick else (RECORDS, EVERY)
    rows, targets = [], []
    for queue_seconds, strategy in itertools.product((QUEUE_SECONDS, None), BALANCE):
        even, hot = (
            cuts_of(keys_of(share, records, options.seed), strategy, queue_seconds, every, options.seed)
            for share in (0.0, HOT_SHARE)
        )
        times, shown = hot.seconds / even.seconds, "null" if queue_seconds is None else f"{queue_seconds:g}"
        progress(f"queue_seconds {shown}, {strategy}: {even.seconds:.2f} s, {hot.seconds:.2f} s with a hot key")
        rows.append((shown, strategy, even.seconds, hot.seconds, hot.longest, times, even.all_seconds, hot.all_seconds))
        what = f"seconds of a cut, one key at {HOT_SHARE:.0%} to even keys, queue_seconds {shown}, {strategy}"
        targets.append(at_most(what, times, WIDEST))
    head = (
        "queue_seconds",
        "strategy",
        "even keys, s",
        "hot key, s",
        "longest",
        "times",
        "job, even, s",
        "job, hot, s",
    )
    return Findings(
        data={"records": records, "rows": rows},
        targets=targets,
        text=f"{records:,} records, as fast as {REDUCERS} reducers take them, each of which does "
        f"{1 / SERVICE_SECONDS:,.0f} a second; {MAPPERS} mappers, a cut {every:g} s after the one before. Virtual "
        "time.\n\n" + markdown_table(head, rows),
    )


if __name__ == "__main__":
    main(
        "cuts",
        argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter),
        measure,
    )
