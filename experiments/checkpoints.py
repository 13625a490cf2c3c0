"""What checkpoints cost: the same job with and without them, in turn, on Ray; and for how long a task is silent
while its states are written.

The first rows make a state for each key; behind them come rows with keys drawn at random: of all keys, or of a tenth of
them, so that only their states change. The rate is that of the rows behind the first ones, as the coordinator sees it.
The silence is the longest time in which a task that counts takes no record, of a stream at a rate that it bears easily;
without checkpoints as well, as rows come in batches. Real Ray, on this machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from dpa import Generator, Job, Reducer
from dpa.result import Report
from dpa.runtime.cluster import ray_session
from dpa.telemetry.observers import Unobserved
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.harness import Findings, at_most, main, markdown_table, progress

TASKS = 2
"""Tasks that count, and have the states; one reads."""

KEYS, FEW_KEYS = 1_000_000, 1_000
"""Of all jobs, and of the one whose cuts alone are measured."""

EVERY, SELDOM = 10.0, 30.0
"""Seconds between checkpoints, and between plain cuts."""

RATE = 40_000
"""Rows a second of the stream in which silence is measured."""

FILLED = 10_000
"""Rows behind the first ones from which on silence counts: then queues are as they stay."""

TRIED = 5_000_000
"""Rows, at least, of the run by whose rate those of the others are counted: a shorter one is but a start. A tenth of
them in the quick form."""

NOTED = 0.02
"""Silences from this number of seconds on are noted."""

SILENT = 0.1
"""The longest silence, at most, in seconds."""


class Records(Generator):
    """Each of `keys` once, and then keys of the first `changing`, drawn at random. `number` is that of the row."""

    def __init__(self, keys: int, changing: int) -> None:
        self.keys = keys
        self.changing = changing

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        """The rows."""
        number = np.arange(start, start + rows)
        drawn = random.integers(0, self.changing, rows)
        return pa.record_batch({"key": np.where(number < self.keys, number, drawn), "number": number})


class Both(Reducer[dict[str, int], int]):
    """A count, and the last number: a state that changes in place."""

    def zero(self) -> dict[str, int]:
        """Nothing."""
        return {"count": 0, "last": 0}

    def reduce(self, state: dict[str, int], value: int) -> dict[str, int]:
        """Take in a number."""
        state["count"] += 1
        state["last"] = value
        return state

    def merge(self, left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        """Both."""
        return {"count": left["count"] + right["count"], "last": max(left["last"], right["last"])}


class Watched(Both):
    """The same, which notes in a file of its process how long it took none, from a row on."""

    def __init__(self, directory: str, since: int) -> None:
        self.directory = directory
        self.since = since
        self._at: float | None = None

    def reduce(self, state: dict[str, int], value: int) -> dict[str, int]:
        """Take in a number, and note."""
        if value >= self.since:
            now = time.monotonic()
            if self._at is not None and now - self._at >= NOTED:
                with (Path(self.directory) / f"{os.getpid()}.silences").open("a") as file:
                    file.write(f"{now - self._at!r}\n")
            self._at = now
        return super().reduce(state, value)


@dataclass
class Rate(Unobserved):
    """Follows what a job has processed.

    Attributes:
        keys: records that only make states.
        filled: when these were processed, in seconds of the stream, and how many were by then.
    """

    keys: int
    filled: tuple[float, int] | None = None

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Note it."""
        processed = sum(task.processed for task in snapshot.stages[-1].tasks)
        if self.filled is None and processed >= self.keys:
            self.filled = snapshot.at, processed

    def rate(self, report: Report) -> float:
        """Records a second of a run that has this report."""
        at, before = self.filled or (0.0, 0)
        if at >= report.seconds.stream:  # a short run, of which little was seen
            at, before = 0.0, 0
        return (report.records.read - before) / (report.seconds.stream - at)


@dataclass(frozen=True)
class Case:
    """A job that is measured with and without checkpoints.

    Attributes:
        name: in words.
        cost: the part of the rate that checkpoints may cost at most.
        keys: that have a state.
        changing: the part of them whose states change.
        reducer: what counts.
        every: seconds between checkpoints.
        seconds: that records are processed behind the first ones.
    """

    name: str
    cost: float
    keys: int
    changing: float = 1.0
    reducer: Any = field(default_factory=Both)
    every: float = EVERY
    seconds: float = 6 * EVERY

    def rows_at(self, rate: float) -> int:
        """The rows that it has at this number of records a second."""
        return self.keys + int(rate * self.seconds)

    def run(self, seed: int, rows: int, every: float | None, rate: float | None = None) -> tuple[float, Report]:
        """The rate of the job with a checkpoint `every` some seconds, None: with none; and its report. `rows`: of its
        input; `rate`: rows that are read a second, None: as many as can be."""
        seen = Rate(self.keys)
        with ExitStack() as stack:
            sections: dict[str, Any] = {}
            if every is not None:
                directory = stack.enter_context(TemporaryDirectory(prefix="dpa-checkpoints-"))
                sections["checkpoint"] = {"path": directory, "every": every}
            job = Job(
                name="checkpoints",
                seed=seed,
                input={
                    "format": "generated",
                    "use": "experiments.checkpoints:Records",
                    "args": {"keys": self.keys, "changing": max(1, int(self.keys * self.changing))},
                    "rows": rows,
                    "rate": rate,
                },
                key="key",
                reducer=self.reducer,
                parallelism={"mappers": 1, "reducers": TASKS},
                **sections,
            )
            report = job.run(seen, check=False).report
        return seen.rate(report), report


def cases(keys: int, seconds: float) -> list[Case]:
    """What is measured."""
    return [
        Case("Python states, a tenth changes", 0.05, keys, 0.1, seconds=seconds),
        Case("Python states, all change", 0.1, keys, seconds=seconds),
        Case("column states", 0.02, keys, reducer="count", seconds=seconds),
        Case("cuts alone", 0.05, min(keys, FEW_KEYS), every=SELDOM, seconds=max(seconds, 3.2 * SELDOM)),
    ]


def silence(case: Case, rate: float, seed: int, every: float | None) -> float:
    """The longest silence of a task, in seconds."""
    with TemporaryDirectory(prefix="dpa-silences-") as directory:
        watched = replace(case, reducer=Watched(directory, case.keys + FILLED))
        watched.run(seed, case.rows_at(rate), every, rate)
        files = Path(directory).glob("*.silences")
        return max((float(line) for file in files for line in file.read_text().split()), default=NOTED)


def measure(options: argparse.Namespace) -> Findings:
    """Run every case with and without checkpoints, in turn, and then the paced stream."""
    with ray_session(None):
        return _measured(options)


def _measured(options: argparse.Namespace) -> Findings:
    keys, seconds, every, repeats = options.keys, options.seconds, EVERY, options.repeats
    measured, rate = cases(keys, seconds), options.rate
    if options.quick:
        keys, every, repeats, rate = 5_000, 0.5, 1, 10_000
        measured = [replace(case, every=every) for case in cases(keys, 2.0)[:3:2]]
    rows, targets = [], []
    for case in measured:
        rates: dict[float | None, list[float]] = {None: [], case.every: []}
        reports = []
        tried = max(3 * case.keys, TRIED // 10 if options.quick else TRIED)
        total = case.rows_at(case.run(options.seed, tried, None)[0])
        for repeat in range(repeats):
            for how, of_runs in rates.items():
                found, report = case.run(options.seed + repeat, total, how)
                of_runs.append(found)
                reports += [] if report.checkpoints is None else [report.checkpoints]
                progress(f"{case.name}, checkpoints every {how} s: {found:,.0f} records/s")
        without, with_them = (statistics.median(of) for of in rates.values())
        cost = 1 - with_them / without
        written = sum(report.written for report in reports)
        if not written:
            raise ValueError(
                f"{case.name}: no run was long enough for a checkpoint, so there is no cost: more --seconds"
            )
        waited, size = (sum(each) / written for each in zip(*((of.waited, of.size) for of in reports), strict=True))
        rows.append((case.name, case.keys, case.every, without, with_them, f"{cost:.1%}", waited, size / 2**20))
        targets.append(at_most(f"part of the rate that checkpoints cost: {case.name}", cost, case.cost))
    paced = Case("paced", 0.0, keys, every=every, seconds=2.0 if options.quick else 4 * EVERY)
    silences = {
        how: statistics.median(silence(paced, rate, options.seed + repeat, how) for repeat in range(repeats))
        for how in (None, every)
    }
    targets.append(at_most("longest silence of a task as its states are written, in seconds", silences[every], SILENT))
    head = ("states", "keys", "every, s", "records/s without", "with", "cost", "sources waited, s", "MiB each")
    return Findings(
        data={"rows": rows, "silences": {"without": silences[None], "with": silences[every]}, "rate": rate},
        targets=targets,
        text=f"One task reads, {TASKS} count. Medians of {repeats} runs each; what sources waited, and what was "
        "written, is the mean of all checkpoints.\n\n"
        + markdown_table(head, rows)
        + f"\n\nAt {rate:,} records/s, all of {keys:,} states changing, the longest silence of a task is "
        f"{silences[every]:.3f} s with checkpoints, and {silences[None]:.3f} s without.",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--seconds", type=float, default=6 * EVERY, help="of each run, once all states are made")
    parser.add_argument("--rate", type=int, default=RATE, help="of the stream in which silence is measured")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each way")
    main("checkpoints", parser, measure)
