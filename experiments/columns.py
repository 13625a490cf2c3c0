"""Two tasks on tables in dpa, as a flow and as a job file, in polars, in Spark and in duckdb: lines and seconds.

All tools run in turn in one process, on one Spark and one Ray that are started before; the first round is a warm-up.
The programs are those of `experiments.column_programs`, and their lines are counted there. All results are compared.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import math
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from dpa import Job, Result
from dpa.runtime.cluster import ray_session
from dpa.spark import spark_session
from experiments.column_programs import programs
from experiments.harness import Findings, Target, at_most, main, markdown_table, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
"""Spark runs as `local[2]`; the actors of dpa ask Ray for none."""

CUSTOMERS, ROW_GROUP, QUICK_ROWS = 200_000, 1_000_000, 500_000
ROWS, REPEATS = 20_000_000, 5
COUNTRIES, PRODUCTS, SEGMENTS = 20, 50, 8

TASKS = {
    "best": "filter, derived column, join, five aggregates by key, top 10",
    "segments": "join with 200,000 customers, sum by key",
}
MOST_LINES = {"dpa": 9, "dpa, job file": 15}
"""Of the task `best`."""

DPA, JOB_FILE, POLARS, SPARK, DUCKDB = "dpa", "dpa, job file", "polars", "Spark", "duckdb"

SPARKS = 2
"""Times at most that Spark runs a program: it takes a minute for one, which hardly varies."""


@dataclass
class Tool:
    """A program of a task: its lines, how to run it, and what was measured.

    `run` returns its rows and the seconds that count.
    """

    task: str
    name: str
    lines: int
    run: Callable[[], tuple[pl.DataFrame, float]]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the seconds that count."""
        return statistics.median(self.seconds)


def measure(options: argparse.Namespace) -> Findings:
    """Run every program once to warm up, then `repeats` times in turn, and compare all results."""
    rows, repeats = (QUICK_ROWS, 1) if options.quick else (ROWS, REPEATS)
    with ExitStack() as stack:
        progress(f"writing {rows:,} orders and {CUSTOMERS:,} customers")
        directory = stack.enter_context(tables(rows, options.seed))
        spark = stack.enter_context(spark_session("columns", f"local[{CORES}]"))
        stack.enter_context(ray_session(None, actors=CORES))
        tools = list(_tools(directory, spark))
        for repeat in range(0 if options.quick else -1, repeats):
            found: dict[str, pl.DataFrame] = {}
            for tool in tools:
                if tool.name == SPARK and repeat >= SPARKS:
                    continue
                result, seconds = tool.run()
                progress(f"{'warm-up' if repeat < 0 else repeat + 1}: {tool.task}, {tool.name}: {seconds:.2f} s")
                require_equal(tool.name, result, found.setdefault(tool.task, result))
                if repeat >= 0:
                    tool.seconds.append(seconds)
        size = (directory / "orders.parquet").stat().st_size
    return Findings(
        data={
            "rows": rows,
            "customers": CUSTOMERS,
            "bytes": size,
            "programs": [
                {"task": tool.task, "tool": tool.name, "lines": tool.lines, "seconds": tool.seconds} for tool in tools
            ],
        },
        targets=_targets(tools),
        text=_text(tools, rows, size, repeats),
    )


@contextmanager
def tables(rows: int, seed: int) -> Iterator[Path]:
    """A context with a temporary directory of both tables, as Parquet, and of the job files."""
    random = np.random.default_rng(seed)
    names = {
        name: pa.array([f"{name} {number}" for number in range(values)])
        for name, values in (("country", COUNTRIES), ("product", PRODUCTS), ("segment", SEGMENTS))
    }

    def drawn(name: str, size: int) -> pa.Array:
        return names[name].take(pa.array(random.integers(0, len(names[name]), size)))

    with TemporaryDirectory(prefix="dpa-columns-") as scratch:
        directory = Path(scratch)
        columns = {
            "customer": pa.array(np.arange(CUSTOMERS)),
            "country": drawn("country", CUSTOMERS),
            "segment": drawn("segment", CUSTOMERS),
        }
        pq.write_table(pa.table(columns), directory / "customers.parquet")
        with ExitStack() as stack:
            writer: pq.ParquetWriter | None = None
            for start in range(0, rows, ROW_GROUP):
                size = min(ROW_GROUP, rows - start)
                part = pa.table(
                    {
                        "order": pa.array(np.arange(start, start + size)),
                        "customer": pa.array(random.integers(0, CUSTOMERS, size)),
                        "product": drawn("product", size),
                        "cents": pa.array(random.integers(-500, 10_000, size)),
                    }
                )
                if writer is None:
                    writer = stack.enter_context(pq.ParquetWriter(directory / "orders.parquet", part.schema))
                writer.write_table(part, row_group_size=ROW_GROUP)
        for task in TASKS:
            shutil.copy(_job_file(task), directory)
        yield directory


def lines_of(program: Callable[..., Any]) -> int:
    """The lines of a function's body that are neither empty nor its docstring."""
    source = inspect.getsource(program)
    [function] = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    body = function.body[1:]  # each has a docstring
    return sum(bool(line.strip()) for line in source.splitlines()[body[0].lineno - 1 : body[-1].end_lineno])


def require_equal(tool: str, found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    """Compare two results, in whatever order their rows and columns are.

    Raises:
        AssertionError: they differ by more than the last digits of sums.
    """
    columns = sorted(set(wanted.columns) - {"rank"})
    pairs = zip(*(frame.select(columns).sort("total").rows() for frame in (found, wanted)), strict=True)
    for row, other in pairs:
        for value, expected in zip(row, other, strict=True):
            is_close = isinstance(value, float) and math.isclose(value, expected, rel_tol=1e-9)
            if not is_close and value != expected:
                raise AssertionError(f"{tool}: {row} instead of {other}")


def _tools(directory: Path, spark: SparkSession) -> Iterator[Tool]:
    paths = str(directory / "orders.parquet"), str(directory / "customers.parquet")
    has_duckdb = importlib.util.find_spec(DUCKDB) is not None
    for task in TASKS:
        ours, of_polars, of_spark, of_duckdb = (
            getattr(programs, f"{task}_{tool}") for tool in ("dpa", "polars", "spark", "duckdb")
        )
        lines = sum(bool(line.strip()) for line in _job_file(task).read_text(encoding="utf-8").splitlines())
        yield Tool(task, DPA, lines_of(ours), partial(_run_ours, partial(ours, *paths)))
        yield Tool(task, JOB_FILE, lines, partial(_run_ours, partial(_run_file, directory / f"{task}.yaml")))
        yield Tool(task, POLARS, lines_of(of_polars), partial(_timed, of_polars, *paths))
        yield Tool(task, SPARK, lines_of(of_spark), partial(_timed, of_spark, spark, *paths))
        if has_duckdb:
            yield Tool(task, DUCKDB, lines_of(of_duckdb), partial(_timed, of_duckdb, *paths))


def _job_file(task: str) -> Path:
    return Path(programs.__file__).with_name(f"{task}.yaml")


def _run_file(path: Path) -> Result:
    return Job.from_file(str(path)).run()


def _run_ours(run: Callable[[], Result]) -> tuple[pl.DataFrame, float]:
    result = run()
    seconds = result.report.seconds
    return pl.DataFrame(result.table()), seconds.load + seconds.stream + seconds.merge


def _timed(run: Callable[..., Any], *arguments: Any) -> tuple[pl.DataFrame, float]:
    began = time.perf_counter()
    found = run(*arguments)
    return pl.DataFrame(found), time.perf_counter() - began


def _targets(tools: list[Tool]) -> list[Target]:
    medians = {(tool.task, tool.name): tool.median for tool in tools}
    targets = []
    for tool in tools:
        if tool.task == "best" and tool.name in MOST_LINES:
            targets.append(at_most(f"best, {tool.name}: lines", tool.lines, MOST_LINES[tool.name]))
            to_polars = tool.median / medians["best", POLARS]
            targets.append(at_most(f"best, {tool.name}: time to that of polars", to_polars, 2))
        if tool.name in MOST_LINES:
            rate = medians[tool.task, SPARK] / tool.median
            targets.append(Target(f"{tool.task}, {tool.name}: rate to that of Spark", ">= 3", rate, rate >= 3))
    return targets


def _text(tools: list[Tool], rows: int, size: int, repeats: int) -> str:
    medians = {(tool.task, tool.name): tool.median for tool in tools}
    shown = [
        (
            tool.task,
            tool.name,
            tool.lines,
            tool.median,
            f"{min(tool.seconds):.2f} ... {max(tool.seconds):.2f}",
            rows / tool.median / 1e6,
            tool.median / medians[tool.task, POLARS],
            medians[tool.task, SPARK] / tool.median,
        )
        for tool in tools
    ]
    head = (
        "task",
        "tool",
        "lines",
        "median s",
        "least ... most s",
        "million orders/s",
        "times polars' time",
        "times Spark's rate",
    )
    left_out = "" if any(tool.name == DUCKDB for tool in tools) else "- *duckdb* was left out: it is not installed.\n"
    return (
        f"Two tasks on `orders`, {rows:,} rows in a Parquet file of {size / 2**20:,.0f} MiB, and {CUSTOMERS:,} "
        f"`customers`. After a round to warm up, every program ran {'once' if repeats == 1 else f'{repeats} times'}, "
        f"those of Spark at most {SPARKS} times, all in turn, in one process; medians are compared. All results are "
        "equal, but for the last digits of sums.\n\n"
        + "".join(f"- *{task}*: {what}.\n" for task, what in TASKS.items())
        + "- *lines*: those of the program in `experiments/column_programs` that are not empty, without imports.\n"
        "- *dpa*: seconds of reading the small side, the stream and the merge, with the defaults of a flow. Actors are "
        "new in every run; starting them does not count.\n"
        f"- *polars*: the streaming engine. *Spark*: `local[{CORES}]`.\n"
        + left_out
        + "\n"
        + markdown_table(head, shown)
    )


if __name__ == "__main__":
    main("columns", argparse.ArgumentParser(description=__doc__), measure)
