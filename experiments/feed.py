"""A large text whose lines a job counts: read in place, and staged by Spark before; beside Spark's staging alone.

All take turns in one Spark session of all cores. A job's time is from its beginning to its result, with a Ray that
runs already, as Spark does.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from dpa import Job
from dpa.runtime.cluster import ray_session
from dpa.spark import Source, input_table, spark_session
from dpa.telemetry.observers import Unobserved
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.harness import Findings, at_most, holds, main, markdown_table, progress

_LINES, _LINE_BYTES = 100_000, 100
"""Different lines, and about the bytes of each."""

_AT_ONCE = 200_000
_LATER = 1.15

_WAYS = ("a job that reads in place", "a job that Spark stages for")


class _Watch(Unobserved):
    """Notes when the first records were read."""

    def __init__(self) -> None:
        self.first_read: float | None = None

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Look."""
        if self.first_read is None and snapshot.records.read:
            self.first_read = time.monotonic()


def write_text(place: Path, size: float, seed: int) -> tuple[int, int]:
    """Write lines of letters, some more frequent than others; returns how many, and their bytes."""
    random = np.random.default_rng(seed)
    letters = random.integers(ord("a"), ord("z") + 1, (_LINES, _LINE_BYTES - 1), dtype=np.uint8)
    known = np.concatenate([letters, np.full((_LINES, 1), ord("\n"), np.uint8)], axis=1)
    lines = 0
    with place.open("wb") as file:
        while file.tell() < size:
            drawn = (random.random(_AT_ONCE) ** 2 * _LINES).astype(np.int64)
            file.write(known[drawn].tobytes())
            lines += _AT_ONCE
        return lines, file.tell()


def measure(options: argparse.Namespace) -> Findings:
    """Stage, and count, in turn."""
    size = options.gigabytes * 2**30 if not options.quick else 5e7
    turns = 1 if options.quick else options.turns
    alone: list[float] = []
    jobs: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dpa-feed-")))
        text = directory / "lines.txt"
        lines, written = write_text(text, size, options.seed)
        spark = stack.enter_context(spark_session("feed"))
        stack.enter_context(ray_session(None, object_store_mb=512))
        for turn in range(turns + 1):
            began = time.monotonic()
            with input_table(lambda: spark, Source("text", str(text)), stage_dir=str(directory)):
                staging = time.monotonic() - began
            found = {
                way: _counted(text, lines, stage_dir) for way, stage_dir in zip(_WAYS, (None, directory), strict=True)
            }
            progress(
                f"turn {turn}: staging {staging:.1f} s, jobs {[round(one['seconds'], 1) for one in found.values()]}"
            )
            if turn or options.quick:  # the first one warms up
                alone.append(staging)
                for way, one in found.items():
                    jobs[way].append(one)
    return _findings(lines, written, alone, jobs)


def _counted(text: Path, lines: int, stage_dir: Path | None) -> dict[str, Any]:
    """Count the lines of a text; `stage_dir`: where Spark stages it first."""
    watch, began = _Watch(), time.monotonic()
    result = Job(
        name="feed",
        input={"format": "text", "path": str(text)},
        key="value",
        reducer="count",
        combiner=False,
        parallelism={"mappers": 1, "reducers": 1},
        spark={} if stage_dir is None else {"stage_dir": str(stage_dir)},
    ).run(watch)
    return {
        "seconds": time.monotonic() - began,
        "first_read": None if watch.first_read is None else watch.first_read - began,
        "right": sum(result.table()["count"].to_pylist()) == lines,
    }


def _findings(lines: int, written: int, alone: list[float], jobs: dict[str, list[dict[str, Any]]]) -> Findings:
    staging = statistics.median(alone)
    place, staged = (statistics.median(found["seconds"] for found in jobs[way]) for way in _WAYS)
    rows = [["Spark's staging alone", *_seconds(alone), ""]]
    for way, found in jobs.items():
        first = statistics.median(one["first_read"] or 0 for one in found)
        rows.append([way, *_seconds([one["seconds"] for one in found]), f"{first:.1f}"])
    columns = ["what", "median, s", "least", "most", "first record read after, s"]
    text = f"{lines:,} lines, {written / 1e9:.2f} GB of text.\n\n{markdown_table(columns, rows)}"
    data = {"lines": lines, "bytes": written, "staging_seconds": alone, "jobs": jobs}
    targets = [
        at_most("the job, times Spark's staging alone", place / staging, _LATER),
        at_most("the job that Spark stages for, times both, one after the other", staged / (staging + place), _LATER),
        holds("all lines are counted", all(one["right"] for found in jobs.values() for one in found)),
    ]
    return Findings(data, targets, text)


def _seconds(found: list[float]) -> list[str]:
    return [f"{statistics.median(found):.1f}", f"{min(found):.1f}", f"{max(found):.1f}"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of text")
    parser.add_argument("--turns", type=int, default=3)
    main("feed", parser, measure)
