"""Peak memory of every actor, and seconds of the stream, against the number of records.

Memory must not grow, and time only in proportion. All sizes are the first row groups of one file, so keys are
distributed alike. Every run has a Ray and actors of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpa.driver.inputs import Inputs, OpenedInput, lazy_session
from dpa.job import Job
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.plan import RunHooks
from dpa.protocol.wire.metrics import Snapshot
from dpa.runtime.cluster import ray_session
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, Target, actors, main, markdown_table, progress
from experiments.zipf import EXPONENT, KEYS, ROW_GROUP, zipf_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MILLIONS = (5, 20, 80)
QUICK_SIZES = (100_000, 400_000)
TASKS, QUICK_TASKS = 2, 1
"""Mappers, and as many reducers."""

MEMORY_WITHIN, TIME_WITHIN = 0.10, 0.15

TASK = "StageActor"
KINDS = (TASK, "LoadBalancerActor", "CoordinatorActor")
"""The classes of actors."""

OWN_KINDS = {"load balancer": "LoadBalancerActor", "coordinator": "CoordinatorActor"}
"""Those of the tasks that every job has besides its stages'."""

MIB = 2**20


@dataclass
class Peaks:
    """The largest resident set seen of each actor process of this process's Ray, by process id, in bytes.

    `resident` is the kernel's own high-water mark. `private` and `shared` are the largest samples of its two parts, the
    actor's own pages and those of Ray's object store that it has looked at. Without /proc there are no samples.
    """

    kinds: dict[int, str] = field(default_factory=dict)
    resident: dict[int, int] = field(default_factory=dict)
    private: dict[int, int] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)

    def look(self, snapshot: Snapshot) -> None:
        """Take a sample of all actors; called a few times a second, and once at the end of the job."""
        for process, kind in _actors():
            sizes = _sizes(process)
            self.kinds[process] = kind
            for found, name in ((self.resident, "VmHWM"), (self.private, "RssAnon"), (self.shared, "RssShmem")):
                found[process] = max(found.get(process, 0), sizes.get(name, 0))

    def of(self, kind: str, sizes: dict[int, int]) -> int:
        """The largest values among the actors of this kind."""
        return max((sizes[process] for process, found in self.kinds.items() if found == kind), default=0)


def measure(options: argparse.Namespace) -> Findings:
    """Run all sizes in turn, several times."""
    sizes, repeats, tasks = [10**6 * size for size in options.millions], options.repeats, TASKS
    if options.quick:
        sizes, repeats, tasks = [*QUICK_SIZES], 1, QUICK_TASKS
    with ExitStack() as stack:
        progress(f"writing {sizes[-1]:,} records")
        row_group = min(ROW_GROUP, sizes[0])
        table = stack.enter_context(zipf_table(sizes[-1], options.seed, row_group))
        job = table.job(tasks, tasks, limits={"split_records": row_group})
        [opened] = Inputs(job.spec).open(stack, lazy_session(job.config, stack)).values()
        first_rows = {size: replace(opened, splits=opened.splits[: size // row_group]) for size in sizes}
        runs = [_run(job, first_rows[size], size, tasks) for _ in range(repeats) for size in sizes]
    rows = [_medians([run for run in runs if run["records"] == size]) for size in sizes]
    slope, start, r_squared = _line(runs)
    return Findings(
        data={
            "runs": runs,
            "medians": rows,
            "seconds_per_million": slope,
            "seconds_at_zero": start,
            "r_squared": r_squared,
        },
        targets=_targets(rows, r_squared),
        text=_text(rows, repeats, tasks, slope, start, r_squared),
        figure=_figure(rows, runs, slope, start),
    )


def _run(job: Job, opened: OpenedInput, records: int, tasks: int) -> dict[str, Any]:
    """Count the `records` records of this input, with actors (`tasks` mappers and reducers) and a Ray of their own."""
    peaks = Peaks()
    with ray_session(None, actors=2 * tasks + 2, object_store_mb=job.config.ray.object_store_mb):
        plan = job.spec.plan({MAPPER: opened.splits}, {MAPPER: opened.schema})
        with actors(len(plan.graph.addresses)) as launched:
            outcome = launched.run(plan, RunHooks(peaks.look, warn=print))
    stage = outcome.snapshot[REDUCER]
    assert sum(reducer.processed for reducer in stage.tasks) == records
    by_stage: dict[str, int] = {}
    for task, used in outcome.use.items():
        by_stage[task.stage] = max(by_stage.get(task.stage, 0), used.peak_memory)
    resident = {**by_stage, **{kind: peaks.of(kind, peaks.resident) for kind in KINDS if kind != TASK}}
    seconds = outcome.times.stream_ended - outcome.times.stream_started
    shown = ", ".join(f"{kind} {size / MIB:.0f} MiB" for kind, size in resident.items())
    progress(f"{records:,} records: {seconds:.2f} s, {shown}")
    return {
        "records": records,
        "keys": sum(output.rows for output in outcome.outputs[REDUCER]),
        "seconds": seconds,
        "resident": {kind: size for kind, size in resident.items() if size},
        "private": {kind: peaks.of(kind, peaks.private) for kind in KINDS},
        "shared": {kind: peaks.of(kind, peaks.shared) for kind in KINDS},
        "redistributions": stage.version,
        "forwarded": sum(reducer.forwarded for reducer in stage.tasks),
        "peak_queue": max(reducer.peak_queue for reducer in stage.tasks),
    }


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The runs of one size as one."""
    sets = ("resident", "private", "shared")
    memory = {
        name: {kind: statistics.median(run[name][kind] for run in runs) for kind in runs[0][name]} for name in sets
    }
    seconds = statistics.median(run["seconds"] for run in runs)
    return {"records": runs[0]["records"], "keys": runs[0]["keys"], "seconds": seconds, **memory}


def _line(runs: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Seconds per million records, seconds at none, and R^2 of the straight line through all runs (least squares)."""
    millions = np.array([run["records"] / 1e6 for run in runs])
    seconds = np.array([run["seconds"] for run in runs])
    slope, start = np.polyfit(millions, seconds, 1)
    left = seconds - (slope * millions + start)
    return float(slope), float(start), float(1 - (left**2).sum() / ((seconds - seconds.mean()) ** 2).sum())


def _targets(rows: list[dict[str, Any]], r_squared: float) -> list[Target]:
    middle, largest = rows[-2:]
    sizes = f"{_millions(largest)} to {_millions(middle)}"
    targets = []
    for kind in largest["resident"]:
        change = largest["resident"][kind] / middle["resident"][kind] - 1
        name, wanted = f"peak memory of a {kind}, {sizes}", f"at most {MEMORY_WITHIN:+.0%}"
        targets.append(Target(name, wanted, f"{change:+.1%}", change <= MEMORY_WITHIN))
    change = (largest["seconds"] / largest["records"]) / (middle["seconds"] / middle["records"]) - 1
    name, wanted = f"time a record, {sizes}", f"within {TIME_WITHIN:.0%}"
    targets.append(Target(name, wanted, f"{change:+.1%}", abs(change) <= TIME_WITHIN))
    targets.append(Target("R^2 of a straight line through all runs", "> 0.98", r_squared, r_squared > 0.98))
    return targets


def _text(rows: list[dict[str, Any]], repeats: int, tasks: int, slope: float, start: float, r_squared: float) -> str:
    kinds = list(rows[-1]["resident"])
    head = ("records", "distinct keys", "stream s", "ns a record", *(f"{kind}: MiB" for kind in kinds))
    body = [
        (
            row["records"],
            row["keys"],
            row["seconds"],
            row["seconds"] / row["records"] * 1e9,
            *(_three(row, kind) for kind in kinds),
        )
        for row in rows
    ]
    return (
        f"Records with Zipf({EXPONENT}) keys, {KEYS:,} of them, are counted without a combiner by {tasks} mappers and "
        f"{tasks} reducers with job defaults; medians of {repeats} runs a size, sizes in turn.\n\n"
        "Memory is the largest resident set of the fullest actor of its kind, as the kernel notes it. In brackets two "
        "of its parts, each the largest of five samples a second: the actor's own pages, and pages of Ray's object "
        "store that it has looked at, which all processes share; of a mapper or reducer those of the fullest of all "
        f"tasks. The rest is libraries, which all processes share too.\n\n{markdown_table(head, body)}\n\n"
        f"The straight line through all runs: {start:.2f} s and {slope:.4f} s a million records, R^2 = {r_squared:.4f}."
    )


def _three(row: dict[str, Any], kind: str) -> str:
    process = kind if kind in KINDS else TASK
    resident = row["resident"][kind] / MIB
    private, shared = (row[name][process] / MIB for name in ("private", "shared"))
    return f"{resident:.0f} ({private:.0f}, {shared:.0f})"


def _millions(row: dict[str, Any]) -> str:
    return f"{row['records'] / 1e6:g} M"


def _figure(rows: list[dict[str, Any]], runs: list[dict[str, Any]], slope: float, start: float) -> Figure:
    figure, (memory, seconds) = panels(2)
    millions = np.array([row["records"] / 1e6 for row in rows])
    for number, kind in enumerate(rows[-1]["resident"]):
        sizes = [row["resident"][kind] / MIB for row in rows]
        style = {"marker": "osDx"[number], "linestyle": ("-", "--")[number % 2]}
        memory.plot(millions, sizes, markersize=5, linewidth=1.4, color=COLOURS[number], label=kind, **style)
    memory.set_title("Peak memory", loc="left", fontsize=10)
    memory.set_ylabel("largest resident set of an actor (MiB)")
    memory.legend(frameon=False, fontsize=8, ncols=2, loc="lower right")
    line = np.array([0, millions[-1]])
    seconds.plot(line, slope * line + start, color=COLOURS[5], linewidth=1.2, label=f"{slope:.3f} s a million")
    at = [run["records"] / 1e6 for run in runs]
    seconds.scatter(at, [run["seconds"] for run in runs], s=22, color=COLOURS[0], label="runs", zorder=3)
    seconds.set_title("Duration of the stream", loc="left", fontsize=10)
    seconds.set_ylabel("seconds")
    seconds.legend(frameon=False, fontsize=8)
    for axes in (memory, seconds):
        axes.set_xlabel("records (millions)")
        axes.set_xlim(0, millions[-1] * 1.05)
        axes.set_ylim(bottom=0)
    return figure


def _actors() -> Iterator[tuple[int, str]]:
    """The actors among the processes below this one, and their kinds."""
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            status = (directory / "stat").read_text()
            name = (directory / "cmdline").read_text().partition("\0")[0]
        except OSError:
            continue
        process = int(directory.name)
        parents[process] = int(status.rpartition(")")[2].split()[1])
        names[process] = _kind(name)
    for process, name in names.items():
        above = process
        while above in parents and above != os.getpid():
            above = parents[above]
        if name in KINDS and above == os.getpid():
            yield process, name


def _kind(title: str) -> str:
    """The class of the actor whose process is called so, `ray::JOB TASK`; empty if it is none."""
    _, is_ray, name = title.partition("ray::")
    _, is_actor, task = name.partition(" ")
    return OWN_KINDS.get(task, TASK) if is_ray and is_actor else ""


def _sizes(process: int) -> dict[str, int]:
    """The memory figures of a process in bytes, by the kernel's names for them."""
    try:
        lines = (Path("/proc") / str(process) / "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: int(value.split()[0]) * 1024 for name, _, value in (x.partition(":") for x in lines) if "kB" in value}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, nargs="+", default=MILLIONS, help="sizes, in ascending order")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each size")
    main("memory", parser, measure)
