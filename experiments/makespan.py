"""The time of a skewed stream with each strategy on real actors, in Spark and with key grouping, compared with the
ideal.

Every record takes the same time in the reducer, which sleeps, so the ideal is known: all service time divided by the
number of reducers. The excess is imbalance and the cost of balancing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa.job import Job
from dpa.result import Report
from dpa.routing.hashing import hash_column
from dpa.runtime.cluster import ray_session
from dpa.spark import spark_session
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, Target, main, markdown_table, progress
from experiments.zipf import Words
from jobs.paced import PacedCount

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

REDUCERS, MAPPERS = 4, 2
SERVICE_SECONDS = 0.002
RECORDS = 20_000
REPEATS = 3
"""Runs of `adaptive` on each workload; everything else runs once."""

KEYS = 10_000
HOT_SHARE = 0.6
CHANGE_SECONDS = 5.0
IN_FLIGHT = 500
"""Records of a mapper that may wait: half a second of work for the reducers in all, as slow records ask for."""

REPORT_SECONDS = 0.25
_BY_QUEUES = {"check_seconds": REPORT_SECONDS, "report_every": 100, "report_seconds": REPORT_SECONDS, "min_queue": 50}
WANTED = 1.10
MAX_MOVED = 0.1
BALANCE: dict[str, dict[str, Any]] = {
    "none": {},
    "halving": _BY_QUEUES,
    "doubling": _BY_QUEUES,
    "adaptive": {"check_seconds": REPORT_SECONDS, "measure_seconds": REPORT_SECONDS, "max_moved": MAX_MOVED},
}
"""What each strategy is set to."""

RECOVERY_PERIODS = 2


def zipf(exponent: float) -> Callable[[int, int], list[str]]:
    """Zipf-distributed keys."""
    return lambda records, seed: (
        Words(seed, KEYS, exponent).names.take(pa.array(Words(seed, KEYS, exponent).ranks(records))).to_pylist()
    )


def one_hot(records: int, seed: int) -> list[str]:
    """One key of 60 %, the rest even."""
    return _with_hot(np.zeros(records, dtype=np.int64), seed)


def changing(records: int, seed: int) -> list[str]:
    """A hot key of 60 % that changes after every five seconds' worth of records."""
    phase = np.arange(records) // round(CHANGE_SECONDS * REDUCERS / SERVICE_SECONDS)
    return _with_hot(phase, seed)


WORKLOADS: dict[str, Callable[[int, int], list[str]]] = {
    "zipf 1.0": zipf(1.0),
    "zipf 1.5": zipf(1.5),
    "zipf 2.0": zipf(2.0),
    "hot key 60 %": one_hot,
    "changing hot key": changing,
}


def measure(options: argparse.Namespace) -> Findings:
    """Run every workload under every strategy, and beside it Spark and key grouping."""
    records, chosen = RECORDS, list(WORKLOADS)
    repeats = {**dict.fromkeys(BALANCE, 1), "adaptive": REPEATS}
    if options.quick:
        records, chosen, repeats = RECORDS // 20, ["hot key 60 %"], {"none": 1, "adaptive": 1}
    workloads = {name: WORKLOADS[name](records, options.seed) for name in chosen}
    ideal = records * SERVICE_SECONDS / REDUCERS
    found: dict[str, dict[str, list[float]]] = {}
    runs: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        spark = stack.enter_context(spark_session("makespan", f"local[{REDUCERS}]", {}))
        stack.enter_context(ray_session(None, actors=REDUCERS + MAPPERS + 2))
        for name, keys in workloads.items():
            row = found.setdefault(name, {})
            row["key grouping (computed)"] = [_key_grouping(keys)]
            row["Spark"] = [_spark(spark, keys)]
            for strategy, times in repeats.items():
                for _ in range(times):
                    report = _run(keys, strategy)
                    row.setdefault(strategy, []).append(report.seconds.stream)
                    runs.setdefault(f"{name}, {strategy}", []).append(_facts(report, records))
                    progress(f"{name}, {strategy}: {report.seconds.stream:.2f} s, ideal {ideal:.2f} s")
    medians = {
        name: {system: statistics.median(all_of) for system, all_of in row.items()} for name, row in found.items()
    }
    return Findings(
        data={"ideal": ideal, "seconds": found, "runs": runs},
        targets=[] if options.quick else _targets(medians, runs, ideal),
        text=_text(medians, ideal, records),
        figure=_figure(medians, ideal),
    )


def _run(keys: list[str], strategy: str) -> Report:
    """One run on real actors, its result checked against Spark."""
    job = Job(
        input=pa.table({"key": keys}),
        key="key",
        value=[],
        reducer=PacedCount(SERVICE_SECONDS),
        parallelism={"mappers": MAPPERS, "reducers": REDUCERS},
        balance={"strategy": strategy, **BALANCE[strategy]},
        limits={"batch_records": 50, "in_flight_records": IN_FLIGHT, "quantum_seconds": 0.05, "split_records": 250},
        reference={"sql": "SELECT key, count(*) AS count FROM input GROUP BY key", "baseline": False},
    )
    return job.run().report


def _facts(report: Report, records: int) -> dict[str, Any]:
    """The figures of a run, and for a changing hot key the time until it was split."""
    steps = [
        {"at": round(step.at, 3), "moved": step.moved, "split": step.split, "reason": step.reason}
        for step in report.main.redistributions
    ]
    return {
        "seconds": report.seconds.stream,
        "skew": report.main.skew.dpa,
        "processed": [reducer.processed for reducer in report.main.tasks],
        "forwarded": report.records.forwarded / records,
        "redistributions": steps,
        "recovery": _recovery(report),
    }


def _recovery(report: Report) -> float | None:
    """Seconds from the change of the hot key, when half of the records had been emitted, to the step that split the new
    one; None if no step did."""
    half = report.records.emitted / 2
    emitted = [(sample.at, sum(sample.queues) + sum(sample.processed)) for sample in report.main.samples]
    changed = next((at for at, number in emitted if number >= half), None)
    split = [step.at for step in report.main.redistributions if "split key 'hot 1'" in step.reason]
    return split[0] - changed if split and changed is not None else None


def _spark(spark: SparkSession, keys: list[str]) -> float:
    """Seconds of the same work in Spark: partitioned by the hash of the key, and a task for each partition."""
    frame = spark.createDataFrame(pa.table({"key": keys})).repartition(REDUCERS, "key").cache()
    frame.count()
    slowly = frame.mapInArrow(_slowly, "key string")
    began = time.perf_counter()
    counted = slowly.groupBy("key").count().toArrow()
    seconds = time.perf_counter() - began
    frame.unpersist()
    assert pc.sum(counted["count"]).as_py() == len(keys)
    return seconds


def _slowly(batches: Any) -> Any:
    for batch in batches:
        time.sleep(SERVICE_SECONDS * batch.num_rows)
        yield batch


def _key_grouping(keys: list[str]) -> float:
    """Seconds of the most loaded reducer if a key's reducer is its hash modulo their number."""
    owners = hash_column(pa.array(keys)) % REDUCERS
    return float(np.bincount(owners, minlength=REDUCERS).max() * SERVICE_SECONDS)


def _with_hot(phase: Any, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    hot, cold = random.random(len(phase)) < HOT_SHARE, random.integers(0, KEYS, len(phase))
    return [f"hot {phase[row]}" if hot[row] else f"w{cold[row]}" for row in range(len(phase))]


def _targets(medians: dict[str, dict[str, float]], runs: dict[str, list[dict[str, Any]]], ideal: float) -> list[Target]:
    targets = []
    for name, row in medians.items():
        ratio = row["adaptive"] / ideal
        targets.append(Target(f"{name}: adaptive to ideal", f"<= {WANTED}", ratio, ratio <= WANTED))
    adaptive = [run for name, of_name in runs.items() if name.endswith("adaptive") for run in of_name]
    moved = max((step["moved"] for run in adaptive for step in run["redistributions"]), default=0.0)
    targets.append(Target("load moved in one step", f"<= {MAX_MOVED}", moved, moved <= MAX_MOVED))
    recoveries = [run["recovery"] for run in runs["changing hot key, adaptive"]]
    known = [seconds for seconds in recoveries if seconds is not None]
    periods = statistics.median(known) / REPORT_SECONDS if len(known) == len(recoveries) else float("inf")
    targets.append(Target("report periods to recover", f"<= {RECOVERY_PERIODS}", periods, periods <= RECOVERY_PERIODS))
    return targets


def _text(medians: dict[str, dict[str, float]], ideal: float, records: int) -> str:
    systems = list(next(iter(medians.values())))
    rows = [[name, *(f"{row[system] / ideal:.2f}" for system in systems)] for name, row in medians.items()]
    return (
        f"Time of the stream, divided by the ideal of {ideal:g} s: {records:,} records of "
        f"{SERVICE_SECONDS * 1000:g} ms, {REDUCERS} reducers, {MAPPERS} mappers with {IN_FLIGHT} records each in "
        "flight. Medians. Key grouping is computed: the time of the reducer that gets most. Spark's time is that of "
        "one warm job, its input partitioned by key and cached beforehand. Every result of dpa equals Spark's.\n\n"
        + markdown_table(("workload", *systems), rows)
    )


def _figure(medians: dict[str, dict[str, float]], ideal: float) -> Figure:
    figure, [axes] = panels(size=(9.0, 4.2))
    systems = list(next(iter(medians.values())))
    width = 0.8 / len(systems)
    for place, system in enumerate(systems):
        at = [row + (place - (len(systems) - 1) / 2) * width for row in range(len(medians))]
        heights = [row[system] / ideal for row in medians.values()]
        axes.bar(at, heights, width * 0.92, label=system, color=COLOURS[place % len(COLOURS)])
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_xticks(range(len(medians)), list(medians), fontsize=9)
    axes.set_ylabel("time of the stream, ideal = 1", color=INK)
    axes.legend(fontsize=8, ncols=3, frameon=False, loc="upper left")
    axes.set_ylim(0, 1.25 * max(row[system] / ideal for row in medians.values() for system in systems))
    return figure


if __name__ == "__main__":
    main("makespan", argparse.ArgumentParser(description=__doc__), measure)
