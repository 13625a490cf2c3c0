"""Counting by key: records a second of dpa, polars, Spark's DataFrame and RDD, Ray Data, duckdb, daft and bytewax.

All systems count one file in turn, on one Spark and one Ray that are started before and shared by all runs; duckdb,
daft and bytewax have a process each, and are left out where they are not installed. The first round is a warm-up. The
start-up of Spark, Ray and actors is not counted. Every result is checked. Long runs, of dpa alone, count `LONG` times
as many records: what small blocks cost shows in the processor time of their tasks.
"""

from __future__ import annotations

import argparse
import logging
import operator
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from dpa.runtime.cluster import ray_session
from dpa.spark import spark_session
from experiments.harness import Findings, Target, at_most, main, markdown_table, progress
from experiments.peers import BYTEWAX, PEERS, Peer, running, why_not
from experiments.zipf import EXPONENT, KEYS, ROW_GROUP, ZipfTable, zipf_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS, REPEATS = 20_000_000, 5

CORES = 2
"""Spark runs as `local[2]`, and Ray Data on two CPUs, as Ray counts them. The actors of dpa ask Ray for none."""

PARALLELISM = (2, 4)
"""Mappers, and as many reducers."""

PER_RECORD = {"value": "value", "reducer": operator.add}
"""A plain Python function, called for every record, as `reduceByKey` calls it."""

DPA = {"dpa": {"combiner": "auto"}, "dpa, no combiner": {}, "dpa, per record": PER_RECORD}
"""What each variant of the job sets; everything else is left at its default, but for the combiner: off."""

LONG = 4
"""Long runs count this many times as many records, in a file of their own."""

LONG_DPA = {
    "dpa, not balanced, long": {"balance": {"strategy": "none"}},
    "dpa, adaptive, long": {"balance": {"strategy": "adaptive"}},
}
"""What each variant of the job sets in long runs: the one without balancing first."""

MANY_KEYS = 2_000_000
"""Keys of the file in which all are equally frequent: to fold before they are sent saves little."""

MANY = "dpa, many keys"
"""The variant of the job that reads that file, with a combiner where it pays."""

MOST_CPU = 1.5
"""Where tasks share processors, a long run may take this many times the processor time of one with a task for each."""

POLARS, DATAFRAME, RDD, RAY_DATA = "polars", "Spark DataFrame", "Spark reduceByKey", "Ray Data"
MANY_POLARS = f"{POLARS}, many keys"


@dataclass
class System:
    """One system at one parallelism, how to run it, and what was measured.

    `run` returns the seconds that count, and more to keep in the data; `records` is what it counts.
    """

    name: str
    tasks: str
    records: int
    run: Callable[[], tuple[float, dict[str, Any]]]
    seconds: list[float] = field(default_factory=list)
    more: list[dict[str, Any]] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the seconds that count."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Records a second, of the median."""
        return self.records / self.median

    @property
    def cpu(self) -> float | str:
        """The median of the processor time that the tasks of dpa use for a record, in nanoseconds."""
        seconds = [more["cpu_seconds"] for more in self.more if "cpu_seconds" in more]
        return statistics.median(seconds) / self.records * 1e9 if seconds else "-"

    @property
    def merge(self) -> float | str:
        """The median of the seconds that dpa merges states after the stream; the others have no such phase."""
        merges = [more["merge_seconds"] for more in self.more if "merge_seconds" in more]
        return statistics.median(merges) if merges else "-"


def measure(options: argparse.Namespace) -> Findings:
    """Run every system once to warm up, then `repeats` times in turn."""
    records, repeats = (200_000, 1) if options.quick else (RECORDS, REPEATS)
    parallelism, warm_up = (PARALLELISM[:1], 0) if options.quick else (PARALLELISM, 1)
    with ExitStack() as stack:
        progress(f"writing {records:,} records")
        row_group = min(ROW_GROUP, max(1, records // 4))
        table = stack.enter_context(zipf_table(records, options.seed, row_group))
        long_table = stack.enter_context(zipf_table(LONG * records, options.seed, row_group))
        many = stack.enter_context(zipf_table(records, options.seed, row_group, keys=MANY_KEYS, exponent=0))
        spark = stack.enter_context(spark_session("throughput", f"local[{CORES}]"))
        stack.enter_context(ray_session(None, actors=CORES))
        systems = _systems(table, long_table, many, spark, parallelism)
        left_out = {peer: why for peer in PEERS if (why := why_not(peer)) is not None}
        for peer in (peer for peer in PEERS if peer not in left_out):
            process = stack.enter_context(running(peer, table.path))
            systems.append(System(peer, f"{CORES} cores", records, partial(_run_peer, table, peer, process)))
        check_spark(table, spark)
        for repeat in range(-warm_up, repeats):
            for system in systems:
                seconds, more = system.run()
                progress(f"{'warm-up' if repeat < 0 else repeat + 1}: {system.name}, {system.tasks}: {seconds:.2f} s")
                if repeat >= 0:
                    system.seconds.append(seconds)
                    system.more.append(more)
    return Findings(
        data={
            "records": records,
            "distinct": int(np.count_nonzero(table.counts)),
            "left_out": left_out,
            "versions": {peer: version(peer) for peer in PEERS if peer not in left_out},
            "systems": [
                {
                    "system": system.name,
                    "tasks": system.tasks,
                    "records": system.records,
                    "seconds": system.seconds,
                    "records_per_second": system.rate,
                    "more": system.more,
                }
                for system in systems
            ],
        },
        targets=_targets(systems),
        text=_text(systems, table, repeats, left_out),
    )


def run_dpa(table: ZipfTable, tasks: int, sections: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Run the job on the Ray that is up and check its result; returns the seconds of the stream, and other figures."""
    result = table.job(tasks, tasks, **sections).run()
    found, report = result.table(), result.report
    if sections.get("reducer") is operator.add:
        table.check("dpa", found["word"], found["value"], table.sums)
    else:
        table.check("dpa", found["word"], found["count"], table.counts)
    return report.seconds.stream, {
        "merge_seconds": report.seconds.merge,
        "cpu_seconds": sum(task.cpu_seconds for stage in report.stages for task in stage.tasks),
        "redistributions": len(report.main.redistributions),
        "forwarded": report.records.forwarded,
        "emitted": report.records.emitted,
    }


def check_spark(table: ZipfTable, spark: SparkSession) -> None:
    """Check what Spark computes: outside the timed runs, which do not fetch their result."""
    counted = _dataframe(table, spark).toArrow()
    table.check(DATAFRAME, counted["word"], counted["count"], table.counts)
    words, sums = zip(*_reduced(table, spark).collect(), strict=True)
    table.check(RDD, pa.array(words), pa.array(sums), table.sums)


def _systems(
    table: ZipfTable, long: ZipfTable, many: ZipfTable, spark: SparkSession, parallelism: Sequence[int]
) -> list[System]:
    variants = [
        System(name, f"{tasks} + {tasks}", read.records, partial(run_dpa, read, tasks, sections))
        for read, by_name in ((table, DPA), (long, LONG_DPA), (many, {MANY: DPA["dpa"]}))
        for name, sections in by_name.items()
        for tasks in parallelism
    ]
    others = {
        POLARS: partial(_run_polars, table),
        MANY_POLARS: partial(_run_polars, many),
        DATAFRAME: partial(_run_dataframe, table, spark),
        RAY_DATA: partial(_run_ray_data, table),
        RDD: partial(_run_rdd, table, spark),
    }
    return [*variants, *(System(name, f"{CORES} cores", table.records, run) for name, run in others.items())]


def _dataframe(table: ZipfTable, spark: SparkSession) -> Any:
    return spark.read.parquet(str(table.path)).groupBy("word").count()


def _reduced(table: ZipfTable, spark: SparkSession) -> Any:
    return spark.read.parquet(str(table.path)).rdd.reduceByKey(operator.add)


def _run_polars(table: ZipfTable) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    counted = pl.scan_parquet(table.path).group_by("word").agg(pl.len()).collect(engine="streaming")
    seconds = time.perf_counter() - began
    table.check(POLARS, counted["word"].to_arrow(), counted["len"].to_arrow(), table.counts)
    return seconds, {}


def _run_ray_data(table: ZipfTable) -> tuple[float, dict[str, Any]]:
    import ray

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    began = time.perf_counter()
    counted = ray.data.read_parquet(str(table.path)).select_columns(["word"]).groupby("word").count().materialize()
    seconds = time.perf_counter() - began
    found = pa.concat_tables(ray.get(counted.to_arrow_refs()))
    table.check(RAY_DATA, found["word"], found["count()"], table.counts)
    return seconds, {}


def _run_dataframe(table: ZipfTable, spark: SparkSession) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    _dataframe(table, spark).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began, {}


def _run_rdd(table: ZipfTable, spark: SparkSession) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    _reduced(table, spark).count()
    return time.perf_counter() - began, {}


def _run_peer(table: ZipfTable, name: str, peer: Peer) -> tuple[float, dict[str, Any]]:
    seconds, counted = peer.run()
    table.check(name, counted["word"], counted["n"], table.counts)
    return seconds, {}


def _targets(systems: list[System]) -> list[Target]:
    wanted = [
        ("dpa", POLARS, 1 / 1.3),
        ("dpa", DATAFRAME, 5.0),
        ("dpa, no combiner", DATAFRAME, 0.6),
        ("dpa, no combiner", RAY_DATA, 5.0),
        ("dpa, per record", RDD, 4.0),
        ("dpa, per record", BYTEWAX, 3.0),
    ]
    medians = {system.name: system.median for system in systems}
    targets = []
    for name, other, least in wanted:
        for system in (system for system in systems if system.name == name and other in medians):
            ratio = medians[other] / system.median
            targets.append(
                Target(f"{name}, {system.tasks} tasks, to {other}", f">= {least:.3g}", ratio, ratio >= least)
            )
    few, *others = (system for system in systems if system.name == "dpa")
    targets += [
        at_most(f"dpa, {each.tasks} tasks: time to that of {few.tasks}", each.median / few.median, 1.15)
        for each in others
    ]
    targets += [
        at_most(f"{MANY}, {each.tasks} tasks: time to that of polars", each.median / medians[MANY_POLARS], 1.5)
        for each in systems
        if each.name == MANY
    ]
    return [*targets, *_long_targets(systems)]


def _long_targets(systems: list[System]) -> list[Target]:
    """What costs show in long runs: of blocks cut small where tasks share processors, and of balancing."""
    plain, balanced = ([one for one in systems if one.name == name] for name in LONG_DPA)
    fewest, *others = plain
    return [
        *(
            at_most(
                f"{one.name}, {one.tasks} tasks: processor time of a record to that of {fewest.tasks}",
                float(one.cpu) / float(fewest.cpu),
                MOST_CPU,
            )
            for one in others
        ),
        *(
            at_most(f"{one.name}, {one.tasks} tasks: time to that of none", one.median / none.median, 1.1)
            for one, none in zip(balanced, plain, strict=True)
        ),
    ]


def _text(systems: list[System], table: ZipfTable, repeats: int, left_out: dict[str, str]) -> str:
    dataframe = next(system.rate for system in systems if system.name == DATAFRAME)
    rows = [
        (
            system.name,
            system.tasks,
            system.median,
            system.merge,
            system.cpu,
            f"{min(system.seconds):.2f} ... {max(system.seconds):.2f}",
            system.rate / 1e6,
            system.rate / dataframe,
        )
        for system in systems
    ]
    head = (
        "system",
        "mappers + reducers",
        "median s",
        "merge s",
        "processor ns a record",
        "least ... most s",
        "million records/s",
        "times Spark DataFrame",
    )
    return (
        f"Records are counted by key: {table.records:,} of them, Zipf({EXPONENT}) over {KEYS:,} keys of which "
        f"{np.count_nonzero(table.counts):,} occur, in one Parquet file. After a round to warm up, every system ran "
        f"{repeats} times, all in turn; medians are compared, as ratios of records a second.\n\n"
        "- *dpa*: seconds of the stream, from the first split asked for to the last record processed, with job "
        "defaults. Actors are new in every run; starting them does not count, nor does fetching the result. The merge "
        "of states after the stream does not count either; *merge s* is what it would add. *no combiner*: mappers "
        "send every record. *not balanced*: `balance.strategy` is `none`. *per record*: instead of "
        "counting it sums an integer column with a Python function that is called for every record. *long*: of "
        f"{LONG * table.records:,} records; a target compares the processor time that tasks use for a record, which "
        "grows where blocks become small. "
        f"*many keys*: of as many records in a file of {MANY_KEYS:,} keys that are equally frequent, as *polars* too.\n"
        f"- *{POLARS}*: `scan_parquet(...).group_by('word').agg(pl.len()).collect(engine='streaming')`.\n"
        f"- *{DATAFRAME}*: `groupBy('word').count()` in `local[{CORES}]`, written to Spark's `noop` sink, so that "
        "fetching the result does not count.\n"
        f"- *{RDD}*: the same Python function on the same column by `rdd.reduceByKey`, ended by `count()`.\n"
        f"- *{RAY_DATA}*: `read_parquet(...).select_columns(['word']).groupby('word').count().materialize()` on the "
        f"Ray that dpa runs on, with {CORES} CPUs.\n"
        "- *duckdb*, *daft*: the same count in a process of its own, which gives an Arrow table.\n"
        f"- *bytewax*: `count_final` of the words one by one, with {CORES} workers in a process of its own.\n"
        + "".join(f"- *{peer}* was left out: {why}.\n" for peer, why in left_out.items())
        + "\n"
        + markdown_table(head, rows)
    )


if __name__ == "__main__":
    main("throughput", argparse.ArgumentParser(description=__doc__), measure)
