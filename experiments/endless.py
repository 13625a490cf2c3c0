"""A job whose input has no end, at half of the rate that it could bear, with checkpoints: what memory its processes
have while it goes on, and whether it has counted every row once when it is closed.

The rows are generated lines of words with Zipf frequencies. The rate that the job can bear is measured first, by a run
of the same job whose input is as fast as it is read. Memory is what a process has of its own (`RssAnon`), the sum of
all processes of the job, sampled every second; at the end Spark generates the rows that were read, and counts them.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from dpa import Job
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, at_most, holds, main, progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS = 2
"""Tasks that read, and as many that count."""

SECONDS, CAPACITY_SECONDS, FIRST_SECONDS = 600.0, 20.0, 60.0
"""Of the run; of the run before it that measures what the job can bear; and after which memory must not grow."""

QUICK = (8.0, 2.0, 3.0)
"""The same in the quick form."""

LOAD = 0.5
"""Part of what the job can bear."""

GROWTH = 1.05
"""Memory in the last part of the run, to that after the first, at most."""

KEPT_UP = 0.95
"""Rows that are read, to those that come, at least."""

SPLIT_ROWS = 100_000
"""Rows of a split at most."""

COUNTS = """
SELECT lower(word) AS word, count(*) AS count
FROM (SELECT explode(regexp_extract_all(value, '[A-Za-z_][A-Za-z_0-9]*', 0)) AS word FROM input)
GROUP BY lower(word)
"""


@dataclass
class Memory(Observer):
    """Samples of the memory of each process of a job, while it streams.

    Attributes:
        job: its name, which no other has.
        samples: seconds of the stream, and MiB by process, as it titles itself.
    """

    job: str
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    _at: float = -1.0

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Take a sample every second."""
        if snapshot.phase == "stream" and snapshot.at >= self._at + 1.0:
            self._at = snapshot.at
            self.samples.append((snapshot.at, self._sizes()))

    def between(self, start: float, stop: float) -> float:
        """The median of all processes together, in MiB."""
        return float(np.median([sum(sizes.values()) for at, sizes in self.samples if start <= at <= stop]))

    def _sizes(self) -> dict[str, float]:
        begin, found = f"ray::{self.job} ", {}
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, StopIteration):  # it has ended, or has no memory
                title = (directory / "cmdline").read_bytes().rstrip(b"\0 ").decode(errors="replace")
                if title.startswith(begin):
                    lines = (directory / "status").read_text().splitlines()
                    anonymous = next(line for line in lines if line.startswith("RssAnon"))
                    found[title.removeprefix(begin)] = int(anonymous.split()[1]) / 1024
        return found


def measure(options: argparse.Namespace) -> Findings:
    """Measure what the job can bear, and run it at half of that."""
    seconds, capacity_seconds, first = QUICK if options.quick else (SECONDS, CAPACITY_SECONDS, FIRST_SECONDS)
    fast = _job("endless_fast", options.seed, None, capacity_seconds).run().report
    capacity = fast.records.read / fast.seconds.stream
    progress(f"it can bear {capacity:,.0f} rows/s")
    memory = Memory("endless")
    with TemporaryDirectory(prefix="dpa-endless-") as directory:
        checkpoint = {"path": directory, "every": min(10.0, seconds / 8)}
        job = _job("endless", options.seed, LOAD * capacity, seconds, checkpoint=checkpoint, reference={"sql": COUNTS})
        report = job.run(memory, check=False).report
    window = min(60.0, seconds / 4)
    before, after = memory.between(first, first + window), memory.between(seconds - window, np.inf)
    found = {
        "seconds": report.seconds.stream,
        "capacity": capacity,
        "rows_a_second": LOAD * capacity,
        "rows": report.records.read,
        "records": report.records.mapped,
        "checkpoints": 0 if report.checkpoints is None else report.checkpoints.written,
        "matches": report.reference.matches is True,
        "memory_before": before,
        "memory_after": after,
        "first": first,
        "samples": memory.samples,
    }
    progress(f"{report.records.read:,} rows, {before:.0f} MiB, then {after:.0f} MiB")
    kept_up = report.records.read / report.seconds.stream / (LOAD * capacity)
    targets = [
        at_most(f"memory at the end, to that after {first:g} s", after / before, GROWTH),
        holds("every row is counted once, as Spark counts them", found["matches"]),
        Target("rows read a second, to those that come", f">= {KEPT_UP:g}", kept_up, kept_up >= KEPT_UP),
    ]
    return Findings(data=found, targets=targets, text=_text(found), figure=_figure(memory, first))


def _job(name: str, seed: int, rate: float | None, seconds: float, **sections: Any) -> Job:
    """Counts words for some seconds, at this many rows a second."""
    return Job(
        name=name,
        seed=seed,
        input={"format": "generated", "use": "jobs.lines:Lines", "rows": None, "rate": rate},
        mapper={"use": "jobs.wordcount:words"},
        key="word",
        reducer="count",
        combiner=False,
        parallelism={"mappers": TASKS, "reducers": TASKS},
        until={"seconds": seconds},
        limits={"split_records": SPLIT_ROWS},
        **sections,
    )


def _text(found: dict[str, Any]) -> str:
    return (
        f"{TASKS} mappers and {TASKS} reducers count the words of generated lines; they bear {found['capacity']:,.0f} "
        f"lines/s, and {found['rows_a_second']:,.0f} come for {found['seconds']:.0f} s: {found['rows']:,} lines, "
        f"{found['records']:,} words, {found['checkpoints']} checkpoints. All processes together have "
        f"{found['memory_before']:.0f} MiB of their own after {found['first']:g} s, and "
        f"{found['memory_after']:.0f} MiB in the end (medians of up to a minute)."
    )


def _figure(memory: Memory, first: float) -> Figure:
    figure, (axes,) = panels(1, (7.0, 3.0))
    names = sorted({name for _, sizes in memory.samples for name in sizes})
    seconds = [at for at, _ in memory.samples]
    sizes = [[sizes.get(name, 0.0) for _, sizes in memory.samples] for name in names]
    axes.stackplot(seconds, *sizes, labels=names, colors=[COLOURS[place % len(COLOURS)] for place in range(len(names))])
    axes.axvline(first, color="black", linewidth=0.8)
    axes.set_xlabel("seconds of the stream")
    axes.set_ylabel("MiB of its own")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", reverse=True)
    return figure


if __name__ == "__main__":
    main("endless", argparse.ArgumentParser(description=__doc__), measure)
