"""Real jobs on Ray of which random processes are killed (SIGKILL), several times a run, at any moment, or while they
start, write a checkpoint, recover, or end: a source task, an operator task, the load balancer, the coordinator, a node
with all that is on it, or its raylet alone, the driver, which is resumed, and what stands before the object storage.
That, and the broker of Kafka, may be out of reach for 90 seconds.

A word count with a hot key, of an input that ends, of one that does not and of a topic, its windows, and a graph with
two results; with states that are merged and that migrate, results in each of four places, and checkpoints in a
directory, in object storage, or none. Every result is held against Spark's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections import Counter, defaultdict
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpa.spark import spark_session
from experiments.chaos.jobs import HOT, OPERATORS, SOURCES, TOPOLOGIES, words
from experiments.chaos.runs import BACKOFF, MEAN_SECONDS, TASKS, Chaos, Run, Way
from experiments.chaos.world import NODES, SINKS, World, world
from experiments.harness import Findings, Target, at_most, main, markdown_table, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_SECONDS = 3.0
"""From a death until records flow again, as wanted, where its node lives."""

MAX_NODE_SECONDS = 12.0
"""The same where a node has died."""

KILLS, ROWS = 3, 20_000
"""Of one run, at most, and its rows."""

_ROWS = [
    *((what, when) for what in (*TASKS, *NODES) for when in ("records flow", "the job starts")),
    ("nothing", "the job starts"),
]
"""What may be killed, and while what, in the order of the table."""

STORES = ("directory", "objects", "directory", "")
"""Of checkpoints."""


def ways(number: int, *, endless: bool = False) -> list[Way]:
    """What this number of runs is of: each topology in turn, or each `endless` one, and the rest in steps that
    do not go together with it."""
    found = zip(
        cycle(name for name, topology in TOPOLOGIES.items() if topology.publishes or not endless),
        cycle(("merge", "migrate", "merge")),
        cycle(SINKS),
        cycle((*STORES, STORES[1], STORES[0], STORES[0])),
        strict=False,
    )
    return [Way(*each) for each in islice(found, number)]


def measure(options: argparse.Namespace) -> Findings:
    """Run all in turn."""
    number, rows = (3, 15_000) if options.quick else (options.runs, ROWS)
    found: list[Run] = []
    with TemporaryDirectory(prefix="dpa-chaos-") as name, spark_session("chaos") as spark, world(Path(name)) as where:
        for seed, way in enumerate(ways(number, endless=options.endless), start=options.seed):
            found.append(_run(where, spark, way, seed, rows))
            progress(f"{len(found)} of {number}: {found[-1]}")
    return _findings(found, rows)


def _run(where: World, spark: SparkSession, way: Way, seed: int, rows: int) -> Run:
    draw, name = random.Random(seed), f"chaos-{os.getpid()}-{seed}"
    file, topology = where.directory / f"{name}.parquet", TOPOLOGIES[way.topology]
    table, place = words(rows, seed), str(file)
    pq.write_table(table, file, row_group_size=1_000)
    if topology.reads_topic:
        where.broker.fill(name, (json.dumps(row).encode() for row in table.select(["key", "value"]).to_pylist()))
        place = f"{where.broker.address} {name}"
    run = Chaos(where, name, place, rows, way, draw).work(draw.randint(1, KILLS))
    if run.drivers[-1] == "ended":
        spark.read.parquet(str(file)).createOrReplaceTempView("rows")
        run.is_exact = all(
            _rows(where.read(way.sink, f"{name}-{step}", topology.publishes)) == _rows(spark.sql(query).toArrow())
            for step, query in topology.queries.items()
        )
        run.left = where.left(name)
    file.unlink()
    return run


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def _findings(runs: list[Run], rows: int) -> Findings:
    exact, left = sum(run.is_exact for run in runs), [one for run in runs for one in run.left]
    ended = sum(run.drivers[-1] == "ended" for run in runs)
    flowed = [each for run in runs for each in run.flowed]
    of_task, of_node, of_flow = (
        [float(np.quantile([each.seconds for each in of] or [np.nan], q)) for q in (0.5, 0.99)]
        for of in (
            [each for each in flowed if each.what not in NODES],
            [each for each in flowed if each.what in NODES],
            [each for each in flowed if each.what not in NODES and each.again],
        )
    )
    flow = "seconds from a kill until records flow again"
    return Findings(
        data={"rows": rows, "runs": [asdict(run) for run in runs], "seconds": {"task": of_task, "node": of_node}},
        targets=[
            Target("runs that end", f"{len(runs)} of {len(runs)}", f"{ended} of {len(runs)}", ended == len(runs)),
            Target(
                "results that are Spark's", f"{len(runs)} of {len(runs)}", f"{exact} of {len(runs)}", exact == len(runs)
            ),
            Target("files, objects and processes that are left", "0", len(left), not left),
            at_most(f"{flow}, median", of_task[0], MAX_SECONDS),
            at_most(f"{flow}, p99", of_task[1], MAX_SECONDS),
            at_most(f"{flow} that flowed before, p99", of_flow[1], MAX_SECONDS),
            at_most(f"{flow} where a node has died, p99", of_node[1], MAX_NODE_SECONDS),
        ],
        text=_text(runs, rows),
    )


def _text(runs: list[Run], rows: int) -> str:
    few = " These are few runs." if len(runs) < 20 else ""
    return (
        f"{len(runs)} runs of {rows:,} rows, of which {HOT:.0%} have one key; {SOURCES} source tasks, and {OPERATORS} "
        f"of the slowest stage, on two Ray nodes of one machine with two processors; `recovery.backoff` is {BACKOFF}. "
        f"Kills that may come at any moment are {MEAN_SECONDS:g} s apart on average.{few}\n\n"
        + markdown_table(("job", "states", "results", "checkpoints", "runs", "exact", "kills"), _by_way(runs))
        + "\n\nBy what the job was at and what was killed: how often, and how these runs came to their ends. *Went "
        "on*: by the same driver; *resumed*: another driver went on behind a checkpoint; *begun anew*: there was "
        "none.\n\n"
        + markdown_table(("at", "killed", "times", "went on", "resumed", "begun anew", "exact"), _by_kill(runs))
        + "\n\nMedian seconds until records flowed again by the same driver, from the first kill of a recovery. Where "
        "something is killed before any have flowed, the job's own start is a part of them; the last line has those "
        "starts that nothing disturbed:\n\n"
        + markdown_table(("killed", "while", "times", "median", "longest"), _by_seconds(runs))
    )


def _by_way(runs: list[Run]) -> list[tuple[Any, ...]]:
    found: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        way = run.way
        found[way.topology, way.consistency, way.sink, way.checkpoints or "none"].append(run)
    return [
        (*way, len(of), sum(run.is_exact for run in of), sum(len(run.kills) for run in of))
        for way, of in sorted(found.items())
    ]


def _by_kill(runs: list[Run]) -> list[tuple[Any, ...]]:
    found: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        for kill in run.kills:
            found[kill.step, kill.what].append(run)
    rows = []
    for (step, what), of in sorted(found.items()):
        outcomes = Counter(run.outcome for run in of)
        ends = (outcomes[outcome] for outcome in ("went on", "resumed", "begun anew"))
        rows.append((step, what, len(of), *ends, sum(run.is_exact for run in of)))
    return rows


def _by_seconds(runs: list[Run]) -> list[tuple[Any, ...]]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        for each in run.flowed:
            found[each.what, "records flow" if each.again else "the job starts"].append(each.seconds)
        found["nothing", "the job starts"] += run.starts
    return [(what, when, *_times(found[what, when])) for what, when in _ROWS if found[what, when]]


def _times(seconds: list[float]) -> tuple[int, str, str]:
    return len(seconds), f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endless", action="store_true", help="jobs without end alone")
    if parser.parse_known_args()[0].endless:
        parser.add_argument("--runs", type=int, default=30)
        main("chaos_endless", parser, measure, command="python -m experiments.chaos --endless")
    else:
        parser.add_argument("--runs", type=int, default=40)
        main("chaos", parser, measure)
