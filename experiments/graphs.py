"""Graphs of stages: a chain of three reduce stages beside its slowest stage alone, and a skewed join beside Spark's.

All systems run in turn in one process, on one Spark and one Ray that are started before and shared by all runs; the
first round is a warm-up. The start-up of Spark, Ray and actors is not counted. Every result is checked.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpa import Flow, Generator, batch_mapper
from dpa.aggregates import Count, Max, Sum
from dpa.runtime.cluster import ray_session
from dpa.sources.generated import GeneratedTable
from dpa.spark import spark_session
from dpa.spark.comparison import compare
from experiments.charts import COLOURS, label_bars, panels
from experiments.harness import Findings, above, main, markdown_table, progress
from experiments.zipf import ROW_GROUP, ZipfTable, zipf_table
from jobs.orders import Customers, Orders

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
"""Spark runs as `local[2]`; the actors of dpa ask Ray for no CPU."""

TASKS = 2
"""Tasks of each stage."""

CUSTOMERS = 200_000
QUICK_RECORDS, QUICK_CUSTOMERS = 200_000, 2_000

CHAIN, SLOWEST, JOIN, SPARK, SPARK_SHUFFLE = (
    "chain of three",
    "its slowest stage alone",
    "join",
    "Spark's join",
    "Spark's join, shuffled",
)


@dataclass
class System:
    """One system, how to run it, and the seconds that it took; `run` returns those that count."""

    name: str
    run: Callable[[], float]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the seconds."""
        return statistics.median(self.seconds)


@batch_mapper
def by_length(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Counts with the length of their word."""
    word = counts.column("word")
    return pa.record_batch({"length": pc.utf8_length(word), "count": counts.column("count")})


def measure(options: argparse.Namespace) -> Findings:
    """Run every system once to warm up, then `repeats` times in turn."""
    records, customers, repeats = options.records, CUSTOMERS, options.repeats
    if options.quick:
        records, customers, repeats = QUICK_RECORDS, QUICK_CUSTOMERS, 1
    with ExitStack() as stack:
        progress(f"writing {records:,} words, {records:,} orders and {customers:,} customers")
        table = stack.enter_context(zipf_table(records, options.seed, min(ROW_GROUP, max(1, records // 4))))
        orders = stack.enter_context(_written(Orders(customers), records, options.seed))
        buyers = stack.enter_context(_written(Customers(), customers, options.seed + 1))
        spark = stack.enter_context(spark_session("graphs", f"local[{CORES}]"))
        stack.enter_context(ray_session(None, actors=CORES))
        revenue = _spark_join(spark, orders, buyers).toArrow()
        systems = [
            System(CHAIN, partial(_run_chain, table)),
            System(SLOWEST, partial(_run_slowest, table)),
            System(JOIN, partial(_run_join, orders, buyers, revenue)),
            System(SPARK, partial(_run_spark, spark, orders, buyers)),
            System(SPARK_SHUFFLE, partial(_run_spark, spark, orders, buyers, "shuffle_hash")),
        ]
        for repeat in range(0 if options.quick else -1, repeats):
            for system in systems:
                seconds = system.run()
                progress(f"{'warm-up' if repeat < 0 else repeat + 1}: {system.name}: {seconds:.2f} s")
                if repeat >= 0:
                    system.seconds.append(seconds)
    medians = {system.name: system.median for system in systems}
    return Findings(
        data={
            "records": records,
            "customers": customers,
            "systems": [{"system": system.name, "seconds": system.seconds} for system in systems],
        },
        targets=[
            above(
                "rate of a chain of three reduce stages to that of its slowest stage alone",
                medians[SLOWEST] / medians[CHAIN],
                0.8,
            ),
            above("rate of a skewed join to that of Spark's, as Spark chooses", medians[SPARK] / medians[JOIN], 1.0),
            above(
                "rate of a skewed join to that of Spark's, shuffled as ours",
                medians[SPARK_SHUFFLE] / medians[JOIN],
                1.0,
            ),
        ],
        text=_text(systems, records, customers, repeats),
        figure=_figure(systems, records),
    )


@contextmanager
def _written(generator: Generator, rows: int, seed: int) -> Iterator[str]:
    """A context with a temporary Parquet file of generated rows."""
    table = GeneratedTable(generator, rows, seed, 0)
    with TemporaryDirectory(prefix="dpa-graphs-") as directory:
        path = str(Path(directory) / "rows.parquet")
        with pq.ParquetWriter(path, table.schema) as writer:
            for split in table.splits(ROW_GROUP):
                for batch in split.batches(ROW_GROUP):
                    writer.write_batch(batch, row_group_size=ROW_GROUP)
        yield path


def _parquet(path: str | Path) -> dict[str, Any]:
    return {"format": "parquet", "path": str(path)}


def _run_chain(table: ZipfTable) -> float:
    flow = Flow("chain")
    words = flow.read(_parquet(table.path), parallelism=TASKS)
    counts = words.key_by("word", value=[]).reduce(Count(), name="counts", parallelism=TASKS)
    lengths = counts.map(by_length).key_by("length").reduce(Sum("count"), name="lengths", parallelism=TASKS)
    lengths.key_by(None, value="count").reduce(Max("count"), name="most")
    result = flow.run()
    lengths_of = pc.utf8_length(pa.array([f"w{rank}" for rank in range(len(table.counts))])).to_numpy()
    most = max(int(table.counts[lengths_of == length].sum()) for length in set(lengths_of.tolist()))
    found = result.table("most").to_pylist()
    if [row["count"] for row in found] != [most]:
        raise AssertionError(f"{CHAIN}: {found} instead of {most}")
    return result.report.seconds.stream


def _run_slowest(table: ZipfTable) -> float:
    result = table.job(TASKS, TASKS).run()
    found = result.table()
    table.check(SLOWEST, found["word"], found["count"], table.counts)
    return result.report.seconds.stream


def _run_join(orders: str, buyers: str, revenue: pa.Table) -> float:
    flow = Flow("join")
    placed = flow.read(_parquet(orders), name="orders", parallelism=TASKS).key_by("customer", value="amount")
    customers = flow.read(_parquet(buyers), name="customers", parallelism=1).key_by("customer")
    joined = placed.join(customers, name="placed", parallelism=TASKS)
    joined.key_by("segment", value="amount").reduce(Sum("amount"), name="revenue", parallelism=TASKS)
    result = flow.run()
    verdict = compare(result.table("revenue"), revenue, "segment")
    if not verdict.matches:
        raise AssertionError(f"{JOIN}: {verdict.differences}")
    return result.report.seconds.stream + result.report.seconds.merge


def _spark_join(spark: SparkSession, orders: str, buyers: str, hint: str | None = None) -> DataFrame:
    customers = spark.read.parquet(buyers)
    joined = spark.read.parquet(orders).join(customers if hint is None else customers.hint(hint), "customer")
    return joined.groupBy("segment").agg({"amount": "sum"}).withColumnRenamed("sum(amount)", "amount")


def _run_spark(spark: SparkSession, orders: str, buyers: str, hint: str | None = None) -> float:
    began = time.perf_counter()
    _spark_join(spark, orders, buyers, hint).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _text(systems: list[System], records: int, customers: int, repeats: int) -> str:
    rows = [
        (
            system.name,
            system.median,
            f"{min(system.seconds):.2f} ... {max(system.seconds):.2f}",
            records / system.median / 1e6,
        )
        for system in systems
    ]
    return (
        f"{records:,} Zipf(1.2) records, from Parquet; medians of {repeats} runs in turn, after one to warm up. Every "
        f"stage has {TASKS} tasks, and all options are defaults.\n\n"
        f"- *{CHAIN}*: words are counted, the counts summed by the word's length, and the greatest sum found. It "
        f"is compared with the first of the three, which has by far the most records: *{SLOWEST}*. Seconds of "
        "the stream, from the first split asked for to the last record processed.\n"
        f"- *{JOIN}*: orders are joined with {customers:,} customers, and their amounts summed by segment; seconds of "
        "the stream and the merge. Its rows are kept until the end, as both sides are unbounded until then.\n"
        f"- *{SPARK}*: the same in `local[{CORES}]`, written to the `noop` sink. Spark knows the sizes of both files "
        "beforehand and copies the small side to every task (a broadcast join), so that no order is shuffled; "
        "*shuffled* is told to shuffle both sides (`shuffle_hash`), as a join of two large tables must.\n\n"
        + markdown_table(("system", "median s", "least ... most s", "million records/s"), rows)
    )


def _figure(systems: list[System], records: int) -> Figure:
    figure, (axes,) = panels(size=(9.0, 3.0))
    for place, system in enumerate(systems):
        rate = records / system.median / 1e6
        colour = "#888888" if system.name.startswith("Spark") else COLOURS[0]
        label_bars(axes, axes.barh(place, rate, 0.6, color=colour), [f"{rate:.2f}"])
    axes.set_yticks(range(len(systems)), [system.name for system in systems])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("million records a second")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each system")
    main("graphs", parser, measure)
