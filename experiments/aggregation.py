"""What epochs and their partial results cost (periodic aggregation: consistent grouping paper, section V-C): a count of
Zipf keys that publishes its result at the end, and one that publishes the result so far every T seconds.

Every T runs in turn, several times, on the same records and one Ray.
"""

from __future__ import annotations

import argparse
import os
import statistics
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dpa.job import Job
from dpa.runtime.cluster import ray_session
from experiments.harness import Findings, at_most, main, markdown_table, progress
from experiments.zipf import EXPONENT, KEYS, ZipfTable, zipf_table

TASKS = 2
"""Mappers, and as many reducers."""

RECORDS, TIMES = 5_000_000, 12
"""Records in the file, and how often a run reads it: long enough for several epochs of two seconds."""

QUICK_RECORDS, QUICK_TIMES = 400_000, 20
REPEATS = 5

BALANCE = {
    "strategy": "doubling",
    "tau": 0.0,
    "min_queue": 1,
    "report_every": 1_000,
    "check_seconds": 0.0,
    "max_rounds": 2,
}
"""Moves keys soon and often, so that states are away from home."""

EVERY = (None, 2.0, 1.0, 0.5, 0.25, 0.1)
"""Seconds between epochs; None: no partial results."""

QUICK_EVERY = (None, 0.25)

MAX_RATIO = 1.1
"""What an epoch every two seconds may cost."""

Runs = dict[float | None, list[dict[str, float]]]


def measure(options: argparse.Namespace) -> Findings:
    """Run every kind in turn, several times."""
    kinds, records, times, repeats = EVERY, RECORDS, TIMES, REPEATS
    if options.quick:
        kinds, records, times, repeats = QUICK_EVERY, QUICK_RECORDS, QUICK_TIMES, 1
    runs: Runs = {every: [] for every in kinds}
    with ExitStack() as stack:
        progress(f"writing {records:,} records")
        table = stack.enter_context(zipf_table(records, options.seed))
        copies = Path(stack.enter_context(TemporaryDirectory(prefix="dpa-epochs-", dir=table.path.parent)))
        for number in range(times):
            os.link(table.path, copies / f"{number}.parquet")
        stack.enter_context(ray_session(None, actors=2 * TASKS + 2))
        for _ in range(repeats):
            for every in kinds:
                runs[every].append(_run(table, copies, times, every))
    medians = {
        every: {name: statistics.median(run[name] for run in of) for name in of[0]} for every, of in runs.items()
    }
    ratios = {every: median["seconds"] / medians[None]["seconds"] for every, median in medians.items()}
    first = kinds[1]
    return Findings(
        data={"records": records * times, "runs": {_words(every): found for every, found in runs.items()}},
        targets=[at_most(f"time with an epoch every {_words(first)}, to none", ratios[first], MAX_RATIO)],
        text=_text(runs, medians, ratios, records, times),
    )


def _run(table: ZipfTable, copies: Path, times: int, every: float | None) -> dict[str, float]:
    """Count all records once."""
    with TemporaryDirectory(prefix="dpa-epochs-") as directory:
        output = {"path": directory, "mode": "overwrite", "publish": {"mode": "table", "every": every}}
        sections: dict[str, Any] = {} if every is None else {"output": output}
        result = Job(
            input={"format": "parquet", "path": str(copies)},
            key="word",
            value=[],
            reducer="count",
            combiner=False,
            parallelism={"mappers": TASKS, "reducers": TASKS},
            balance=BALANCE,
            **sections,
        ).run()
        found = result.table()
    table.check(_words(every), found["word"], found["count"], table.counts * times)
    report = result.report
    stats = report.main.aggregation
    figures = {
        "seconds": report.seconds.stream + report.seconds.merge,
        "epochs": report.epochs.number,
        "waited": report.epochs.seconds,
        "longest": report.epochs.longest,
        "states": stats.states if stats else 0,
        "user_code": stats.seconds if stats else 0.0,
    }
    progress(f"{_words(every)}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    return figures


def _words(every: float | None) -> str:
    return "off" if every is None else f"{every:g} s"


def _text(
    runs: Runs,
    medians: dict[float | None, dict[str, float]],
    ratios: dict[float | None, float],
    records: int,
    times: int,
) -> str:
    rows = []
    for every, found in runs.items():
        median, taken = medians[every], [run["seconds"] for run in found]
        epochs = median["epochs"]
        each = (median["waited"] / epochs, median["longest"], median["user_code"] / TASKS / epochs) if epochs else ()
        rows.append(
            (
                _words(every),
                f"{median['seconds']:.2f} ({min(taken):.2f} ... {max(taken):.2f})",
                f"{ratios[every]:.2f}",
                epochs,
                median["states"],
                *([f"{seconds * 1e3:.0f}" for seconds in each] or ["-"] * 3),
            )
        )
    head = (
        "an epoch every",
        "seconds: median (least ... most)",
        "to none",
        "epochs",
        "states handed over",
        "sources waited, ms each",
        "longest, ms",
        "user code, ms each and reducer",
    )
    return (
        f"A file of {records:,} records with Zipf({EXPONENT}) keys, up to {KEYS:,} of them, is read {times} times and "
        f"counted by {TASKS} mappers and {TASKS} reducers, kinds in turn. The strategy doubling acts at every "
        f"difference of queues, {BALANCE['max_rounds']} times a reducer, so many keys leave their first owners early, "
        "and one key may have states on both reducers. The time is that of stream and merge. The given seconds after "
        "the last partial results were complete, sources stop at the end of a row until all that they have read is "
        "processed, states are with the owners of their keys, and each reducer has written its share as Parquet; *user "
        "code* is the time that a reducer takes to extract, merge and write. The result is checked.\n\n"
        + markdown_table(head, rows)
    )


if __name__ == "__main__":
    main("aggregation", argparse.ArgumentParser(description=__doc__), measure)
