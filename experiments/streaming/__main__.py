"""Windowed counts by key of the same watched files, by dpa and by Spark Structured Streaming in turn, on two
processors: the rate at which a backlog is read, also with one key at 60 %, and how long a window's result takes to come
to a function once a row has come that ends the window, at half of the rate that the engine can bear.

Files are what both engines watch by themselves. The rate of Spark leaves out its first micro-batch, which is planned
and compiled; that of dpa is of the whole stream. Both write checkpoints, Spark with each micro-batch. Every count is
checked.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from dpa.runtime.cluster import ray_session
from dpa.spark import spark_session
from experiments.harness import Findings, Target, at_most, main, markdown_table, progress
from experiments.streaming.inputs import MICROS, Appearance, Arrivals, Counted, EventFiles
from experiments.streaming.ours import TASKS, run_ours
from experiments.streaming.structured import CONF, run_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

CORES, REPEATS = 2, 3
"""Processors, and timed runs of each engine in each case."""

FILES = EventFiles(files=32, file_rows=500_000, file_seconds=5.0, window_seconds=10.0)
"""What is counted in columns."""

QUICK_FILES = replace(FILES, files=4, file_rows=20_000, keys=200)

BATCHES = 4
"""Micro-batches that Spark reads the files in: fewer and larger ones cost it less for each row."""

LIVE_SECONDS, QUICK_SECONDS = 60.0, 4.0
"""Of the run that measures latency, and in the quick form."""

FILE_SECONDS, WINDOW_SECONDS, SETTLED_SECONDS = 0.1, 0.5, 5.0
"""In that run: from one file to the next; of a window; and at its start, without which windows count."""

LOAD = 0.5
"""Part of the rate that an engine bears."""

EVEN, HOT = "even keys", "hot key"

RATE = 2.0
"""The least rate of dpa in Spark's, where keys are even."""

LATENCY = 0.5
"""Seconds from the row that ends a window to its result, of 99 %."""

Ready = Callable[[], None]

OURS, SPARK = "dpa", "Structured Streaming"


@dataclass
class Case:
    """One input that both count, with the rates that were measured, in rows a second."""

    name: str
    files: EventFiles
    ours: Callable[[], Counted]
    spark: Callable[[], Counted]
    rates: dict[str, list[float]] = field(default_factory=lambda: {OURS: [], SPARK: []})
    more: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {OURS: [], SPARK: []})

    def rate(self, system: str) -> float:
        """The median."""
        return statistics.median(self.rates[system])

    @property
    def ratio(self) -> float:
        """The rate of dpa in Spark's."""
        return self.rate(OURS) / self.rate(SPARK)


def measure(options: argparse.Namespace) -> Findings:
    """Measure rates in turn, and then latencies at half of them."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="dpa-streaming-")))
        spark = stack.enter_context(spark_session("streaming", f"local[{CORES}]", CONF))
        stack.enter_context(ray_session(None, actors=2 * TASKS))
        cases = [_case(name, spark, scratch, options) for name in (EVEN, HOT)]
        for repeat in range(0 if options.quick else -1, 1 if options.quick else REPEATS):
            for case in cases:
                _once(case, repeat)
        seconds = QUICK_SECONDS if options.quick else LIVE_SECONDS
        even = cases[0]
        latencies = {
            system: _latencies(system, run, LOAD * even.rate(system), seconds, even.files.keys, scratch, options.seed)
            for system, run in ((OURS, partial(_live_ours, scratch)), (SPARK, partial(_live_spark, spark, scratch)))
        }
    return Findings(
        data={
            "keys": cases[0].files.keys,
            "cases": [
                {"case": case.name, "rows": case.files.rows, "rates": case.rates, "more": case.more} for case in cases
            ],
            "latencies": {
                system: {"rows_a_second": LOAD * even.rate(system), "seconds": found}
                for system, found in latencies.items()
            },
        },
        targets=_targets(cases, latencies),
        text=_text(cases, latencies),
    )


def _case(name: str, spark: SparkSession, scratch: Path, options: argparse.Namespace) -> Case:
    files = replace(QUICK_FILES if options.quick else FILES, is_hot=name == HOT)
    directory = scratch / name
    directory.mkdir()
    progress(f"writing {files.rows:,} rows")
    expected = files.written(directory, options.seed)

    def ours() -> Counted:
        with _new(scratch) as checkpoints:
            run = run_ours(files, directory, checkpoint={"path": str(checkpoints), "every": "2s"})
        expected.check(OURS, run.arrivals.rows, all_of=True)
        return run

    def theirs() -> Counted:
        with _new(scratch) as checkpoints:
            run = run_spark(spark, files, directory, checkpoints, batch_files=max(1, files.files // BATCHES))
        expected.check(SPARK, run.arrivals.rows, all_of=False)
        return run

    return Case(name, files, ours, theirs)


def _live_ours(scratch: Path, files: EventFiles, directory: Path, ready: Ready) -> Counted:
    with _new(scratch) as checkpoints:
        saved = {"path": str(checkpoints), "every": "10s"}
        return run_ours(files, directory, publish_every="100ms", look_every="20ms", ready=ready, checkpoint=saved)


def _live_spark(spark: SparkSession, scratch: Path, files: EventFiles, directory: Path, ready: Ready) -> Counted:
    with _new(scratch) as checkpoints:
        return run_spark(spark, files, directory, checkpoints, ready=ready)


@contextmanager
def _new(scratch: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=scratch) as directory:
        yield Path(directory)


def _once(case: Case, repeat: int) -> None:
    for system, run in ((OURS, case.ours), (SPARK, case.spark)):
        done = run()
        progress(f"{'warm-up' if repeat < 0 else repeat + 1}: {case.name}, {system}: {done.rate:,.0f} rows/s")
        if repeat >= 0:
            case.rates[system].append(done.rate)
            case.more[system].append(done.more)


def _latencies(
    system: str,
    run: Callable[[EventFiles, Path, Ready], Counted],
    rate: float,
    seconds: float,
    keys: int,
    scratch: Path,
    seed: int,
) -> list[float]:
    """Seconds from the moment at which the file came whose rows are behind a window's end to its result."""
    files = EventFiles(
        round(seconds / FILE_SECONDS), max(1, round(rate * FILE_SECONDS)), FILE_SECONDS, WINDOW_SECONDS, keys=keys
    )
    with _new(scratch) as waiting, _new(scratch) as watched:
        expected = files.written(waiting, seed)
        with Appearance(files, waiting, watched) as appearance:
            arrivals = run(files, watched, appearance.begin).arrivals
    expected.check(system, arrivals.rows, all_of=False)
    if appearance.latest > FILE_SECONDS:
        progress(f"a file came {appearance.latest:.2f} s late")
    settled = min(SETTLED_SECONDS, seconds / 4)
    found = _after_ends(arrivals, files, appearance, settled)
    progress(f"{system}: {rate:,.0f} rows/s, {len(found)} windows, {_quantile(found, 0.99):.3f} s to 99 % of them")
    return found


def _after_ends(arrivals: Arrivals, files: EventFiles, appearance: Appearance, settled: float) -> list[float]:
    found = []
    for end, at in sorted(arrivals.by_window().items()):
        number = round((end / MICROS - files.start) / files.file_seconds)  # of the first file behind its end
        if number < files.files and number * files.file_seconds > settled:
            found.append(at - appearance.due(number))
    return found


def _targets(cases: list[Case], latencies: dict[str, list[float]]) -> list[Target]:
    even = cases[0].ratio
    return [
        Target(f"{EVEN}: rate of dpa to that of {SPARK}", f">= {RATE:g}", even, even >= RATE),
        at_most("seconds to a window's result, 99 %", _quantile(latencies[OURS], 0.99), LATENCY),
    ]


def _quantile(values: list[float], part: float) -> float:
    return float(np.quantile(values, part))


def _text(cases: list[Case], latencies: dict[str, list[float]]) -> str:
    rows = [
        (case.name, f"{case.files.rows:,}", f"{case.rate(OURS):,.0f}", f"{case.rate(SPARK):,.0f}", case.ratio)
        for case in cases
    ]
    late = [
        (
            system,
            f"{LOAD * cases[0].rate(system):,.0f}",
            len(found),
            *(f"{_quantile(found, part):.3f}" for part in (0.5, 0.99)),
        )
        for system, found in latencies.items()
    ]
    stores = CONF["spark.sql.shuffle.partitions"]
    return (
        f"{cases[0].files.keys:,} keys in windows of {FILES.window_seconds:g} s of event time; dpa has {TASKS} tasks "
        f"that read and {TASKS} that count, Spark `local[{CORES}]` and {stores} partitions of states "
        "in RocksDB. Hot: one key of 60 %.\n\n"
        + markdown_table(("keys", "rows", f"{OURS}, rows/s", f"{SPARK}, rows/s", "ratio"), rows)
        + f"\n\nA file every {FILE_SECONDS:g} s at half of each engine's own rate; windows of {WINDOW_SECONDS:g} s; "
        "seconds from the file that ends a window to its rows in a function:\n\n"
        + markdown_table(("engine", "rows/s", "windows", "50 %", "99 %"), late)
    )


if __name__ == "__main__":
    main("streaming", argparse.ArgumentParser(description=__doc__), measure)
