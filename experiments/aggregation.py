"""What epochs and their partial results cost (periodic aggregation: consistent grouping paper, section V-C): a count of
Zipf keys without any, and with an epoch that ends every T seconds.

Every T runs in turn, several times, on the same records and one Ray. While partial results are published, a reader
reads them as another process would; the last ones it has read are compared with the result.
"""

from __future__ import annotations

import argparse
import statistics
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dpa import results
from dpa.driver.inputs import Inputs, OpenedInput, lazy_session
from dpa.driver.outputs import in_memory
from dpa.errors import TableError
from dpa.execution.reduce_task import ReduceStage
from dpa.job import Job
from dpa.protocol.graph import MAPPER, REDUCER, Publishing
from dpa.protocol.plan import RunHooks, RunPlan
from dpa.runtime.cluster import ray_session
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import Target as ResultTarget
from experiments.charts import COLOURS, label_bars, panels
from experiments.harness import Findings, Target, actors, main, markdown_table, progress
from experiments.zipf import EXPONENT, KEYS, ZipfTable, zipf_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS = 2
"""Mappers, and as many reducers."""

RECORDS, TIMES = 5_000_000, 12
"""Records in the file, and how often a run reads it: long enough for several epochs of two seconds."""

QUICK_RECORDS, QUICK_TIMES = 400_000, 20

BALANCE = {
    "strategy": "doubling",
    "tau": 0.0,
    "min_queue": 1,
    "report_every": 1_000,
    "check_seconds": 0.0,
    "max_rounds": 2,
}
"""Moves keys soon and often, so that states are away from home."""

READ_SECONDS = 0.5
"""How often the reader looks."""

MAX_RATIO = 1.1
"""What an epoch every two seconds may cost."""


@dataclass(frozen=True)
class Kind:
    """A way to run the job: seconds between epochs, or none; published, or cut and merged only."""

    seconds: float | None
    published: bool = True

    def __str__(self) -> str:
        if self.seconds is None:
            return "off"
        return f"{self.seconds:g} s" + ("" if self.published else ", not published")


OFF = Kind(None)
KINDS = (OFF, Kind(2.0), Kind(1.0), Kind(0.5), Kind(0.25), Kind(0.1), Kind(0.1, published=False))
QUICK_KINDS = (OFF, Kind(0.25))


class Reader(threading.Thread):
    """Reads partial results until it is stopped; `last` has the records by key of the newest epoch it has read."""

    def __init__(self, directory: str) -> None:
        super().__init__(daemon=True)
        self._directory = directory
        self._stopped = threading.Event()
        self.epochs: set[int] = set()
        self.last: pa.Table | None = None

    def run(self) -> None:
        """Read until stopped."""
        while not self._stopped.wait(READ_SECONDS):
            try:
                found = results(self._directory)
            except TableError:
                continue
            self.epochs.add(found.epoch)
            self.last = found.table

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()
        self.join()


def measure(options: argparse.Namespace) -> Findings:
    """Run every kind in turn, several times."""
    kinds, records, times, repeats = KINDS, options.records, TIMES, options.repeats
    if options.quick:
        kinds, records, times, repeats = QUICK_KINDS, QUICK_RECORDS, QUICK_TIMES, 1
    runs: dict[Kind, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        progress(f"writing {records:,} records")
        table = stack.enter_context(zipf_table(records, options.seed))
        job = table.job(TASKS, TASKS, balance=BALANCE)
        [opened] = Inputs(job.spec).open(stack, lazy_session(job.config, stack)).values()
        opened = replace(opened, splits=opened.splits * times)
        stack.enter_context(ray_session(None, actors=2 * TASKS + 2, object_store_mb=job.config.ray.object_store_mb))
        for _ in range(repeats):
            for kind in kinds:
                runs[kind].append(_run(job, opened, kind, table, times))
    rows = [_medians(kind, runs[kind], runs[OFF]) for kind in kinds]
    return Findings(
        data={"records": records * times, "runs": {str(kind): found for kind, found in runs.items()}, "medians": rows},
        targets=_targets(rows),
        text=_text(rows, runs, records, times, repeats),
        figure=_figure(rows, runs),
    )


def _run(job: Job, opened: OpenedInput, kind: Kind, table: ZipfTable, times: int) -> dict[str, Any]:
    """Count all records once."""
    with TemporaryDirectory(prefix="dpa-epochs-") as directory:
        published_in = directory if kind.seconds is not None and kind.published else None
        plan = _with_epochs(job.spec.plan({MAPPER: opened.splits}, {MAPPER: opened.schema}), kind.seconds, published_in)
        reader = Reader(directory)
        reader.start()
        with actors(len(plan.graph.addresses)) as launched:
            outcome = launched.run(plan, RunHooks(warn=print))
        reader.stop()
        published = any(Path(directory).glob("part-*"))
    result = in_memory(outcome, REDUCER)
    table.check(str(kind), result["word"], result["count"], table.counts * times)
    _require_subset(reader.last, result)
    stats, taken, ended = outcome.snapshot[REDUCER].aggregation, outcome.times, outcome.snapshot.epochs
    found = {
        "stream": taken.stream_ended - taken.stream_started,
        "merge": taken.merged - taken.stream_ended,
        "seconds": taken.merged - taken.stream_started,
        "epochs": stats.epochs if stats else 0,
        "waited": ended.seconds,
        "longest": ended.longest,
        "states": stats.states if stats else 0,
        "spent": stats.seconds if stats else 0.0,
        "epochs_seen": len(reader.epochs),
        "keys": result.num_rows,
        "redistributions": outcome.snapshot[REDUCER].version,
    }
    assert published == bool(found["epochs"] and published_in)
    progress(f"{kind}: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()))
    return found


def _with_epochs(plan: RunPlan, seconds: float | None, directory: str | None) -> RunPlan:
    """The same plan with an epoch every `seconds`, published in a directory; None for either: not."""
    how = (Publishing(), Publishing() if seconds is None else Publishing(seconds))
    stages = tuple(replace(stage, publishing=how) if stage.name == REDUCER else stage for stage in plan.graph.stages)
    tasks = {
        name: replace(task, publishes=(None, "table")) if isinstance(task, ReduceStage) else task
        for name, task in plan.tasks.items()
    }
    sink = None if directory is None else ResultFiles(ResultTarget(directory, "overwrite"))
    if sink is not None:
        sink.know(replace(sink.job_context, publishes="table"))
        sink.begin()
    deliveries = {
        name: replace(to, sinks=(*to.sinks, sink), publishes=(None, "table")) for name, to in plan.deliveries.items()
    }
    return replace(plan, graph=replace(plan.graph, stages=stages), tasks=tasks, deliveries=deliveries)


def _require_subset(so_far: pa.Table | None, result: pa.Table) -> None:
    """Check that partial results have each key once, and of no key more records than the result."""
    if so_far is None or not so_far.num_rows:
        return
    both = so_far.join(result, "word", join_type="left outer", right_suffix=" in the end")
    assert pc.count_distinct(so_far["word"]).as_py() == so_far.num_rows
    assert pc.all(pc.less_equal(both["count"], both["count in the end"])).as_py()


def _medians(kind: Kind, runs: list[dict[str, Any]], off: list[dict[str, Any]]) -> dict[str, Any]:
    """The runs of one kind as one, and their time as a ratio to that without epochs."""
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    ratio = medians["seconds"] / statistics.median(run["seconds"] for run in off)
    return {"kind": str(kind), "every": kind.seconds, "published": kind.published, "ratio": ratio, **medians}


def _targets(rows: list[dict[str, Any]]) -> list[Target]:
    """Compare the kind with the longest epochs with the kind without any."""
    first = rows[1]
    name, wanted = f"time with an epoch every {first['kind']}, to none", f"<= {MAX_RATIO:g}"
    return [Target(name, wanted, first["ratio"], first["ratio"] <= MAX_RATIO)]


def _text(
    rows: list[dict[str, Any]], runs: dict[Kind, list[dict[str, Any]]], records: int, times: int, repeats: int
) -> str:
    head = (
        "an epoch every",
        "seconds: median (least ... most)",
        "to none",
        "epochs",
        "sources waited, ms each",
        "longest, ms",
        "states handed over",
        "user code, ms each and reducer",
    )
    body = []
    for row, found in zip(rows, runs.values(), strict=True):
        taken = [run["seconds"] for run in found]
        seconds = f"{row['seconds']:.2f} ({min(taken):.2f} ... {max(taken):.2f})"
        each = [
            f"{of / row['epochs'] * 1e3:.0f}" if row["epochs"] else "-" for of in (row["waited"], row["spent"] / TASKS)
        ]
        longest = f"{row['longest'] * 1e3:.0f}" if row["epochs"] else "-"
        body.append(
            (row["kind"], seconds, f"{row['ratio']:.2f}", row["epochs"], each[0], longest, row["states"], each[1])
        )
    return (
        f"A file of {records:,} records with Zipf({EXPONENT}) keys, up to {KEYS:,} of them, is read {times} times and "
        f"counted by {TASKS} mappers and {TASKS} reducers; {repeats} runs of each kind, kinds in turn. The strategy "
        f"doubling acts at every difference of queues, {BALANCE['max_rounds']} times a reducer, so many keys leave "
        "their first owners early, and one key may have states on both reducers. The time is that of stream and "
        "merge. The given seconds after the last partial results were complete, sources stop at the end of a row until "
        "all that they have read is processed, states are with the owners of their keys, and each reducer has written "
        "its share as Parquet; *user code* is the time that a reducer takes to extract, merge and write. "
        "Without publishing, nothing is written. A reader in another thread reads the partial results; they "
        "and the result are checked.\n\n" + markdown_table(head, body)
    )


def _figure(rows: list[dict[str, Any]], runs: dict[Kind, list[dict[str, Any]]]) -> Figure:
    figure, (times, waited) = panels(2, (9.0, 3.0))
    names = [row["kind"].replace(", ", ",\n") for row in rows]
    bars = times.barh(names, [row["seconds"] for row in rows], 0.6, color=COLOURS[0])
    label_bars(times, bars, [f"{row['ratio']:.2f}" for row in rows])
    for place, found in enumerate(runs.values()):
        times.plot([run["seconds"] for run in found], [place] * len(found), ".", color=COLOURS[1], markersize=4)
    times.set_xlabel("seconds (medians; a dot is a run), and as a ratio to none")
    bars = waited.barh(names, [row["waited"] for row in rows], 0.6, color=COLOURS[2])
    label_bars(waited, bars, [f"{row['epochs']:g} epochs" if row["epochs"] else "" for row in rows])
    waited.set_xlabel("seconds in which sources waited, all epochs")
    for axes in (times, waited):
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.grid(visible=False, axis="y")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each kind")
    parser.add_argument(
        "--records", type=int, default=RECORDS, help=f"records in the file, which is read {TIMES} times"
    )
    main("aggregation", parser, measure)
