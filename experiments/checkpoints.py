"""What checkpoints cost: stretches of one stream with a checkpoint beside those without, in turn; and for how long a
task is silent while its states are written.

The first rows make a state for each key; behind them come rows with keys drawn at random: of all keys, or of a tenth of
them, so that only their states change. A checkpoint is written every second stretch. What two runs of one job differ by
here, a tenth and more, is thus left out; and with it what a job may do for checkpoints before one is due. The rates are
those of the rows behind the first ones, as the coordinator sees them.

The silence is the longest time in which a task that counts takes no record, of a stream at a rate that it bears easily;
without checkpoints as well, as rows come in batches. Real Ray, on this machine.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa import Generator, Job, Reducer
from dpa.result import Report
from dpa.runtime.cluster import ray_session
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.harness import Findings, at_most, main, markdown_table, progress

TASKS = 2
"""Tasks that count, and have the states; one reads."""

KEYS = 1_000_000

STRETCHES, REPEATS = 8, 3
"""Stretches with a checkpoint, and as many without; paced streams with checkpoints; one is without."""

EVERY = 10.0
"""Seconds of a stretch."""

SEEN = 0.5
"""Seconds after a checkpoint, and after its stretch, until the coordinator knows what tasks had processed by then."""

RATE = 40_000
"""Rows a second of the stream in which silence is measured."""

_MORE = 4
"""Stretches more than are wanted: those before the first checkpoint, and behind the last."""

_PACED = 4
"""Stretches of the paced stream."""

FILLED = 10_000
"""Rows behind the first ones from which on silence counts: then queues are as they stay."""

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


class Stretches(NamedTuple):
    """The rates of some stretches with a checkpoint, in records a second, and of those without beside each: the means
    of the one before and the one after."""

    with_one: npt.NDArray[np.float64]
    without: npt.NDArray[np.float64]

    @property
    def costs(self) -> npt.NDArray[np.float64]:
        """The part of the rate that each checkpoint costs."""
        return 1 - self.with_one / self.without


@dataclass
class Rate(Observer):
    """Follows what a job has processed.

    Attributes:
        keys: records that only make states.
        seen: seconds of the stream, each with the records that were processed by then, and the checkpoints written.
    """

    keys: int
    seen: list[tuple[float, int, int]] = field(default_factory=list)

    def update(self, snapshot: TrackedSnapshot) -> None:
        """Note it."""
        processed = sum(task.processed for task in snapshot.stages[-1].tasks)
        if processed >= self.keys and snapshot.phase == "stream":
            written = 0 if snapshot.checkpoints is None else snapshot.checkpoints.written
            self.seen.append((snapshot.at, processed, written))

    def stretches(self) -> Stretches:
        """Those between the first checkpoint and the last: what lies between two is one stretch without and one with.

        Raises:
            ValueError: there are too few.
        """
        at, processed, written = np.array(self.seen, dtype=float).T
        ends = at[np.flatnonzero(np.diff(written)) + 1] + SEEN
        if len(ends) < 3:
            raise ValueError(f"there were {len(ends)} checkpoints, which is too few to compare")
        borders = np.sort([*ends, *(ends[:-1] + ends[1:]) / 2])
        rates = np.diff(np.interp(borders, at, processed)) / np.diff(borders)
        without, with_one = rates[::2], rates[1::2]
        return Stretches(with_one[:-1], (without[:-1] + without[1:]) / 2)


@dataclass(frozen=True)
class Case:
    """A job that is measured.

    Attributes:
        name: in words.
        cost: the part of the rate that checkpoints may cost at most.
        keys: that have a state.
        changing: the part of them whose states change.
        reducer: what counts.
        every: seconds of a stretch.
    """

    name: str
    cost: float
    keys: int
    changing: float = 1.0
    reducer: Any = field(default_factory=Both)
    every: float = EVERY

    def run(self, seed: int, stretches: int, every: float | None, rate: int | None = None) -> tuple[Rate, Report]:
        """What was seen of the job in that number of stretches, with a checkpoint `every` some seconds, None: with
        none; and its report. `rate`: rows that are read a second, None: as many as can be."""
        seen = Rate(self.keys)
        with ExitStack() as stack:
            sections: dict[str, Any] = {} if rate else {"until": {"seconds": stretches * self.every}}
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
                    "rows": rate and self.keys + int(rate * stretches * self.every),
                    "rate": rate,
                },
                key="key",
                reducer=self.reducer,
                combiner=False,
                parallelism={"mappers": 1, "reducers": TASKS},
                **sections,
            )
            report = job.run(seen, check=False).report
        return seen, report


def cases(keys: int) -> list[Case]:
    """What is measured."""
    return [
        Case("Python states, a tenth changes", 0.05, keys, 0.1),
        Case("Python states, all change", 0.1, keys),
        Case("column states", 0.02, keys, reducer="count"),
    ]


def silence(case: Case, rate: int, seed: int, every: float | None) -> float:
    """The longest silence of a task, in seconds."""
    with TemporaryDirectory(prefix="dpa-silences-") as directory:
        watched = replace(case, reducer=Watched(directory, case.keys + FILLED))
        watched.run(seed, _PACED, every, rate)
        files = Path(directory).glob("*.silences")
        return max((float(line) for file in files for line in file.read_text().split()), default=NOTED)


def measure(options: argparse.Namespace) -> Findings:
    """Run every case with and without checkpoints, in turn, and then the paced stream."""
    with ray_session(None):
        return _measured(options)


def _measured(options: argparse.Namespace) -> Findings:
    keys, stretches, every, repeats, rate = KEYS, STRETCHES, EVERY, REPEATS, RATE
    measured = cases(keys)
    if options.quick:
        keys, stretches, every, repeats, rate = 5_000, 4, 0.5, 1, 10_000
        measured = [replace(case, every=every) for case in cases(keys)[:3:2]]
    rows, targets = [], []
    for case in measured:
        seen, report = case.run(options.seed, 2 * stretches + _MORE, 2 * case.every)
        found, kept = seen.stretches(), report.checkpoints
        assert kept is not None
        cost, error = float(np.mean(found.costs)), float(np.std(found.costs) / math.sqrt(len(found.costs)))
        rates = float(np.median(found.without)), float(np.median(found.with_one))
        progress(f"{case.name}: {cost:.1%}, of {len(found.costs)} checkpoints: {np.round(found.costs, 3).tolist()}")
        waited, size = kept.waited / kept.written, kept.size / kept.written / 2**20
        measure = f"{cost:.1%} ± {error:.1%}"
        rows.append((case.name, case.keys, case.every, len(found.costs), *rates, measure, waited, size))
        targets.append(at_most(f"part of the rate that checkpoints cost: {case.name}", cost, case.cost))
    paced = Case("paced", 0.0, keys, every=every)
    silences = {
        how: statistics.median(silence(paced, rate, options.seed + repeat, how) for repeat in range(times))
        for how, times in ((None, 1), (every, repeats))
    }
    targets.append(at_most("longest silence of a task as its states are written, in seconds", silences[every], SILENT))
    head = (
        "states",
        "keys",
        "stretch, s",
        "of them",
        "records/s without",
        "with",
        "cost",
        "sources waited, s",
        "MiB each",
    )
    return Findings(
        data={"rows": rows, "silences": {"without": silences[None], "with": silences[every]}, "rate": rate},
        targets=targets,
        text=f"One task reads, {TASKS} count. Stretches of a stream with a checkpoint beside those without: medians of "
        "rates, and means of costs with their standard errors, of what sources waited, and of what was written.\n\n"
        + markdown_table(head, rows)
        + f"\n\nAt {rate:,} records/s, all of {keys:,} states changing, the longest silence of a task is "
        f"{silences[every]:.3f} s with checkpoints, and {silences[None]:.3f} s without.",
    )


if __name__ == "__main__":
    main(
        "checkpoints",
        argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter),
        measure,
    )
