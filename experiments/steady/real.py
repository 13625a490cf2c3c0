"""Scenarios on real actors: all on one Ray, which is up, and each checked to have counted right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpa.job import Job
from dpa.result import Report
from dpa.telemetry.observers import Observer
from experiments.steady.methods import METHODS, check_counts, job_of
from experiments.steady.outcome import Outcome, applied
from experiments.steady.scenarios import SERVICE_SECONDS, Load
from experiments.steady.shared import Shared
from jobs.costs import BusyCount

SLOW, SHARED_CORES, CLICKS = "real, records of 2 ms", "real, cores shared", "real, clicks"
"""The parts of real runs."""

CLICKS_JOB = Path(__file__).parents[2] / "configs" / "clicks.yaml"

_BUSY = "import os\nwhile os.getppid() == {parent}:\n for _ in range(50_000): pass\n"
"""A process that is busy until the one that started it ends."""


@dataclass
class ProcessorTime(Observer):
    """Notes the processor time of this job's actors when its stream begins, and when that ends."""

    readings: dict[str, dict[int, float]] = field(default_factory=dict)

    def phase(self, name: str, detail: str = "") -> None:
        """Read it at the two phases that count."""
        if name in ("stream", "merge"):
            self.readings[name] = _of_actors()

    @property
    def seconds(self) -> float:
        """Processor seconds of all actors in the stream; NaN if it was not seen to begin and to end."""
        if len(self.readings) < 2:
            return float("nan")
        before = self.readings["stream"]
        return sum(max(0.0, spent - before.get(pid, 0.0)) for pid, spent in self.readings["merge"].items())


def run_slow(load: Load, method: str) -> Outcome:
    """One run of slow records, whose reducers sleep."""
    job = job_of(load, method, SERVICE_SECONDS, paced=True)
    processor = ProcessorTime()
    result = job.run(processor)
    table = result.table()
    check_counts(load, table["key"], table["count"])
    return _outcome(result.report, processor, SLOW, load.scenario.name, method, load.ideal)


def run_shared(shared: Shared, source: Mapping[str, Any], records: int, method: str) -> Outcome:
    """One run of cheap records; `source` are the sections of a job that say what to read, from `pieces` or a table."""
    job = Job(
        **source,
        key="key",
        value=[],
        reducer=BusyCount(shared.micros) if shared.micros else "count",
        combiner=False,
        parallelism=shared.parallelism(),
        **METHODS[method],
    )
    processor = ProcessorTime()
    with busy_process() if shared.crowded else nullcontext():
        result = job.run(processor)
    counted = pc.sum(result.table()["count"]).as_py()
    assert counted == records, f"{shared.name}: {counted:,} records were counted, not {records:,}"
    return _outcome(result.report, processor, SHARED_CORES, shared.name, method, float("nan"))


def run_clicks(method: str, overrides: Sequence[str] = ()) -> Outcome:
    """One run of the shipped job, which a user would write; its result is compared with Spark's if it asks for that."""
    given = [f"{section}={value}" for section, value in METHODS[method].items()]
    processor = ProcessorTime()
    report = Job.from_file(CLICKS_JOB, [*given, *overrides]).run(processor).report
    return _outcome(report, processor, CLICKS, "clicks", method, float("nan"))


@contextmanager
def pieces(shared: Shared, records: int, each: int, seed: int) -> Iterator[dict[str, Any]]:
    """A context with Parquet files of `records` records in all, and what a job says to read them.

    There are ten different pieces, one for each tenth, of at most `each` records; more are further names of the same
    file.

    Raises:
        ValueError: ten pieces of one size, however often, are not so many records.
    """
    drawn = min(records, 10 * each)
    if records % drawn or drawn % 10:
        raise ValueError(f"{records:,} records cannot be cut into ten equal parts of pieces of {each:,}")
    table = shared.table(drawn, seed)
    times, size = -(-records // drawn), -(-drawn // 10)
    with TemporaryDirectory(prefix="dpa-steady-") as directory:
        for tenth in range(10):
            first = Path(directory) / f"{tenth}-000.parquet"
            pq.write_table(table.slice(tenth * size, size), first)
            for copy in range(1, times):
                os.link(first, Path(directory) / f"{tenth}-{copy:03}.parquet")
        yield {"input": {"format": "parquet", "path": directory}}


def in_memory(shared: Shared, records: int, seed: int) -> dict[str, Any]:
    """What a job says to read a table in memory, of which each mapper is given its share at once."""
    splits = -(-records // shared.shape.mappers)
    return {"input": shared.table(records, seed), "limits": {"split_records": splits}}


@contextmanager
def busy_process() -> Iterator[None]:
    """A context in which a process of its own keeps one core busy."""
    nothing = subprocess.DEVNULL
    code = _BUSY.format(parent=os.getpid())
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _outcome(report: Report, processor: ProcessorTime, part: str, scenario: str, method: str, ideal: float) -> Outcome:
    latency = report.main.latency
    assert latency is not None
    moments, reasons = applied(report.main.redistributions)
    return Outcome(
        part,
        scenario,
        method,
        seconds=report.seconds.stream,
        ideal=ideal,
        skew=report.main.skew.dpa,
        redistributions=moments,
        forwarded=report.records.forwarded / max(report.records.emitted, 1),
        p50=latency.p50,
        p99=latency.p99,
        processor=processor.seconds,
        reasons=reasons,
    )


def _of_actors() -> dict[int, float]:
    """The processor seconds so far of each actor that this process's Ray runs, by process."""
    import psutil  # Ray brings it

    found = {}
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::"):
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
        except psutil.Error:  # it has ended meanwhile
            continue
    return found
