"""Where the time goes from the reading of a row until a function has the result that it changed, by the job's own
profile, beside what the function measures.

Each row carries the moment at which it was mapped, and the table that the function is given has for each key the
number of rows and the sum of these moments. So two tables give the mean delay of all rows that are in the second
alone, whatever their number.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Flow, Generator, Reducer, batch_mapper
from dpa.protocol.wire.epochs import EpochPhase
from dpa.result import Report
from experiments.charts import COLOURS, INK, panels
from experiments.harness import Findings, at_most, main, markdown_table, progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS, KEYS = 2, 1_000
"""Tasks that read, as many that reduce; and keys."""

LOAD = 0.5
"""Part of the rate that the job can bear."""

SECONDS, RECORDS = 30.0, 3_000_000
"""Of a run, and of the one that measures what the job can bear."""

QUICK = (2.0, 100_000)
"""The same in the quick form."""

RUNS: Mapping[str, tuple[float, float | None]] = {
    "every 0.1 s": (0.1, None),
    "every 0.5 s": (0.5, None),
    "every 0.1 s, checkpoint every 1 s": (0.1, 1.0),
}
"""Seconds from one published table to the next, and from one checkpoint to the next."""

FITS = 0.1
"""The sum of the profile differs from what was measured by at most this part of it."""

_UNITS = 1e5
"""Of a moment, in a second; the day is left out, so that sums of moments stay small."""


class Keys(Generator):
    """Rows of a `key`, all alike."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        """The next rows."""
        return pa.record_batch({"key": random.integers(0, KEYS, rows)})


def moment() -> int:
    """Now, in units of time since midnight (UTC)."""
    return int(time.time() % 86_400 * _UNITS)


@batch_mapper
def stamped(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, with the moment at which they were mapped."""
    return pa.record_batch({"key": rows.column("key"), "read": pa.repeat(moment(), rows.num_rows)})


class Moments(Reducer[tuple[int, int], int]):
    """The number of rows of a key, and the sum of their moments."""

    def zero(self) -> tuple[int, int]:
        """None yet."""
        return 0, 0

    def reduce(self, state: tuple[int, int], value: int) -> tuple[int, int]:
        """One more."""
        return state[0] + 1, state[1] + value

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        """Both."""
        return left[0] + right[0], left[1] + right[1]

    def finish(self, state: tuple[int, int]) -> dict[str, int]:
        """The columns of the result."""
        return {"rows": state[0], "moments": state[1]}


@dataclass
class Reader:
    """What a function measures that is given each table.

    Attributes:
        delays: of each epoch with rows, how many there were, and the seconds that they waited, in the mean.
    """

    delays: list[tuple[int, float]] = field(default_factory=list)
    _rows: int = 0
    _moments: int = 0

    def published(self, table: pa.Table, epoch: int) -> None:
        """Take a table."""
        now = moment()
        if not table.num_rows:
            return
        rows, moments = (pc.sum(table.column(name)).as_py() for name in ("rows", "moments"))
        new, self._rows = rows - self._rows, rows
        waited, self._moments = new * now - (moments - self._moments), moments
        if new:
            self.delays.append((new, waited / new / _UNITS))

    def mean(self, rows: int) -> float:
        """Seconds that a row waited, of the first epochs that have so many rows."""
        taken = seconds = 0.0
        for new, delay in self.delays:
            if taken < rows:
                taken, seconds = taken + new, seconds + new * delay
        return seconds / taken


@dataclass(frozen=True)
class Profiled:
    """A run.

    Attributes:
        report: of the job.
        measured: seconds from the reading of a row until the function had a table with it, in the mean.
        slowest: of 99 % of the epochs, the greatest mean of their rows.
        parts: seconds of a row by phase, as the report has them.
    """

    report: Report
    measured: float
    slowest: float
    parts: dict[EpochPhase, float]

    @property
    def profiled(self) -> float:
        """Seconds of a row by the report."""
        return sum(self.parts.values())

    @property
    def differs(self) -> float:
        """The difference of both, as a part of what was measured."""
        return abs(self.profiled - self.measured) / self.measured


def measure(options: argparse.Namespace) -> Findings:
    """Measure what the job can bear, and run it at half of that in each way."""
    seconds, records = QUICK if options.quick else (options.seconds, RECORDS)
    fast = _run(Reader(), options.seed, None, records, 1.0, None)
    capacity = fast.records.read / ((fast.main.ended or fast.seconds.stream) - (fast.sources[0].began or 0.0))
    rate = LOAD * capacity
    progress(f"it can bear {capacity:,.0f} rows/s")
    found: dict[str, Profiled] = {}
    for name, (every, checkpoint) in RUNS.items():
        reader = Reader()
        found[name] = _profiled(reader, _run(reader, options.seed, rate, round(rate * seconds), every, checkpoint))
        progress(f"{name}: measured {found[name].measured:.3f} s, profiled {found[name].profiled:.3f} s")
    return Findings(
        data={
            "capacity": capacity,
            "rows_a_second": rate,
            "runs": {name: _data(run) for name, run in found.items()},
        },
        targets=[
            at_most(f"{name}: difference of the profile from what was measured", run.differs, FITS)
            for name, run in found.items()
        ],
        text=_text(found, capacity),
        figure=_figure(found),
    )


def _run(reader: Reader, seed: int, rate: float | None, records: int, every: float, checkpoint: float | None) -> Report:
    """Rows at a rate a second, `records` in all, of which a table is published and a checkpoint made every so often."""
    with TemporaryDirectory(prefix="dpa-latency-") as directory:
        saved = {} if checkpoint is None else {"checkpoint": {"path": str(Path(directory)), "every": checkpoint}}
        flow = Flow("latency", seed=seed, until={"records": records}, **saved)
        source = {"format": "generated", "use": "experiments.latency_profile:Keys", "rows": None, "rate": rate}
        rows = flow.read(source, name="rows", parallelism=TASKS).map("experiments.latency_profile:stamped")
        counts = rows.key_by("key", value="read").reduce(
            "experiments.latency_profile:Moments", name="counts", parallelism=TASKS
        )
        counts.results(reader.published, publish="table", every=every)
        return flow.run(check=False).report


def _profiled(reader: Reader, report: Report) -> Profiled:
    ended = report.epochs
    return Profiled(
        report,
        reader.mean(ended.rows),
        float(np.quantile([delay for _, delay in reader.delays], 0.99)),
        {found.phase: ended.of_row(found) for found in ended.phases},
    )


def _data(run: Profiled) -> dict[str, Any]:
    ended, counts = run.report.epochs, run.report.main
    return {
        "measured": run.measured,
        "slowest": run.slowest,
        "profiled": run.profiled,
        "parts": {phase.value: seconds for phase, seconds in run.parts.items()},
        "rows": ended.rows,
        "epochs": ended.number,
        "waited": ended.seconds,
        "phases": {found.phase.value: (found.number, found.mean, found.longest) for found in ended.phases},
        "record": None if counts.record_times is None else vars(counts.record_times),
        "busy": {stage.name: stage.load.busy for stage in run.report.stages},
    }


def _text(found: Mapping[str, Profiled], capacity: float) -> str:
    phases = [phase for phase in EpochPhase if any(run.parts.get(phase) for run in found.values())]
    rows = [
        *((phase.value, *(f"{run.parts.get(phase, 0.0):.3f}" for run in found.values())) for phase in phases),
        ("sum of the profile", *(f"{run.profiled:.3f}" for run in found.values())),
        ("measured", *(f"{run.measured:.3f}" for run in found.values())),
        ("measured, slowest epoch of 99 %", *(f"{run.slowest:.3f}" for run in found.values())),
        ("epochs", *(run.report.epochs.number for run in found.values())),
    ]
    return (
        f"{TASKS} + {TASKS} tasks can bear {capacity:,.0f} rows/s, and were given {LOAD:.0%} of that. Seconds of a row "
        "in the mean, from its reading until a function has a table with it:\n\n"
        + markdown_table(("phase", *found), rows)
    )


def _figure(found: Mapping[str, Profiled]) -> Figure:
    figure, [axes] = panels(size=(9.0, 3.4))
    places = np.arange(len(found))[::-1]
    begins = np.zeros(len(found))
    for number, phase in enumerate(EpochPhase):
        parts = np.array([run.parts.get(phase, 0.0) for run in found.values()])
        if parts.any():
            look = {"color": COLOURS[number % len(COLOURS)], "alpha": 1.0 if number < len(COLOURS) else 0.5}
            axes.barh(places, parts, left=begins, height=0.55, label=phase.value, **look)
        begins += parts
    for place, run in zip(places, found.values(), strict=True):
        label = "measured" if place == places[0] else None
        axes.plot([run.measured] * 2, [place - 0.4, place + 0.4], color=INK, linewidth=2, label=label)
    axes.set_yticks(places, [name.replace(", ", ",\n") for name in found])
    axes.set_xlabel("seconds from the reading of a row until a function has its result, mean")
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=6, frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run")
    main("latency_profile", parser, measure)
