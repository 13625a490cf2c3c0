"""A step and a square wave on real actors: reducers sleep for each record, so that two processors are enough."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpa.protocol.wire.metrics import Snapshot
from dpa.runtime.cluster import ray_session
from experiments.elastic.loads import SHORT_WAVE, STEP, Load
from experiments.elastic.outcome import Outcome, outcome_of
from experiments.elastic.page import draw
from experiments.elastic.targets import DECIDE_SECONDS
from experiments.elastic.virtual import OPTIONS, OURS, SHORT, changes_of
from experiments.harness import Findings, at_most, markdown_table, progress
from experiments.watching import check_counts, counts_of, noted, one_of_each, plan_of
from jobs.watched import SleepingCount

if TYPE_CHECKING:
    from ray.actor import ActorHandle

SERVICE_SECONDS = 0.02
KEYS, MOST = 500, 8

WAVE = replace(SHORT_WAVE, seconds=60.0, turns=SHORT_WAVE.turns[:20])


def run(load: Load, seed: int) -> Outcome:
    """One run.

    Raises:
        AssertionError: the counts are wrong.
    """
    due = load.due(SERVICE_SECONDS)
    drawn = np.random.default_rng(seed).integers(0, KEYS, len(due))
    records = pa.table({"key": drawn, "due": due, "count": np.ones(len(due), dtype=np.int64)})
    seen: list[Snapshot] = []
    started: list[float] = []

    def note(_: ActorHandle, snapshot: Snapshot, seconds: float) -> None:
        seen[:] = [snapshot]
        started.append(snapshot.at - seconds)

    with tempfile.TemporaryDirectory(prefix="dpa-elastic-") as directory:
        reducer = SleepingCount(directory, SERVICE_SECONDS)
        limits = {"batch_records": 20, "split_records": 10_000_000}
        plan = plan_of(records, one_of_each(KEYS), reducer, load.begins, elastic={"max_tasks": MOST}, limits=limits)
        counted = counts_of(plan, directory, note)
        check_counts(counted, records, KEYS, load.name)
        done = np.sort(noted(Path(directory)).done)
    changes = [replace(change, at=change.at - started[0]) for change in changes_of(seen[0], load.begins)]
    at = np.arange(0.0, done[-1], 0.1)
    missing = len(records) - len(done)  # what tasks that were stopped had not written
    progress(f"{load.name}: {len(changes)} changes, {missing} records not noted")
    processed = at, np.searchsorted(done, at, side="right").astype(float) * len(records) / len(done)
    return outcome_of(load, (SHORT, OURS, seed), changes, processed, SERVICE_SECONDS, OPTIONS.target)


def measure(options: argparse.Namespace) -> Findings:
    """Both loads."""
    loads = (STEP,) if options.quick else (STEP, WAVE)
    with ray_session(None, actors=MOST + 4):
        found = [run(load, options.seed) for load in loads]
    step = found[0]
    rise = [change for change in step.changes if STEP.turns[0] <= change.at < STEP.turns[1]]
    cost = max((change.seconds for change in rise), default=0.0)
    late = DECIDE_SECONDS + cost + OPTIONS.backlog_seconds
    targets = [
        at_most("step: turns without the ideal number in one change", step.off, 0),
        at_most("step: longest time for which records are late, s", step.longest, late),
        at_most("changes undone", sum(each.undone for each in found), 0),
    ]
    if not options.quick:
        targets.append(at_most("square wave of 6 s: changes", len(found[1].changes), 1))
    rows = [
        (each.load, f"{change.at:.1f}", f"{change.seconds:.1f}", change.tasks, change.reason)
        for each in found
        for change in each.changes
    ]
    lates = [(each.load, len(each.changes), each.undone, each.late, each.longest) for each in found]
    text = (
        f"The same on two processors: reducers sleep for {1000 * SERVICE_SECONDS:g} ms for each record, batches have "
        "20 records, and tasks are processes that start while records flow.\n\n"
        + markdown_table(("load", "changes", "undone", "late (s)", "longest (s)"), lates)
        + "\n\n"
        + markdown_table(("load", "at (s)", "took (s)", "tasks", "why"), rows)
    )
    return Findings(
        data={"runs": [asdict(each) for each in found]},
        targets=targets,
        text=text,
        figure=draw(loads, {each.load: each for each in found}),
    )
