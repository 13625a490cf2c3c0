"""The same on real actors, scaled down: every published time is divided by a factor.

The job is stopped, its states are written, and another one begins with them; or its tasks move, as ours do. The stream
is paced, and what was due meanwhile is read as soon as it can be.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpa.balance.options import NoBalancingOptions
from dpa.protocol.plan import RunPlan
from dpa.protocol.wire.metrics import Snapshot
from dpa.routing.hashing import hash_column
from dpa.runtime.cluster import ray_session
from experiments.harness import Findings, at_most, below, progress
from experiments.redeploy.cases import Outcomes, case_of
from experiments.redeploy.course import Gap
from experiments.redeploy.outcome import NONE, Case, Outcome, longest_gaps
from experiments.redeploy.page import draw, table
from experiments.redeploy.plans import Layout, Redeployment, redeployments, requests_of
from experiments.redeploy.schemes import OURS, STOP
from experiments.redeploy.targets import MAX_DEGRADED, MAX_GAP
from experiments.watching import (
    Integers,
    Noted,
    check_counts,
    counts_of,
    counts_with_stops,
    noted,
    one_of_each,
    plan_of,
    stream,
)
from jobs.watched import WatchedCount

if TYPE_CHECKING:
    from ray.actor import ActorHandle

RATE, KEYS = 2_000, 2_000
"""Records a second, and keys, each with a state before the stream begins."""

MOVED = (1, 4)
"""Tasks at a time."""

_LIMITS = {"batch_records": 50, "split_records": 10_000_000}
_LAYOUT = Layout(nodes=2, workers=2, tasks=8)


@dataclass(frozen=True)
class RealSetup:
    """The stream, and when its tasks move.

    Attributes:
        shrink: by what the paper's times are divided.
        seconds: of the stream.
    """

    shrink: float = 5.0
    seconds: int = 60
    layout: Layout = _LAYOUT

    @property
    def moments(self) -> list[float]:
        """Of redeployments, in seconds since the stream began: the paper's, after 50 s and then every 60 s."""
        return [float(at) / self.shrink for at in np.arange(50.0, self.seconds * self.shrink, 60.0)]

    @property
    def task_of(self) -> Integers:
        """The first task of each key, shape (keys,)."""
        table = NoBalancingOptions().ring(self.layout.tasks).snapshot(0)
        return table.owners_of(hash_column(pa.array(np.arange(KEYS)))).astype(np.int64)


def run(setup: RealSetup, case: Case, seed: int) -> Outcome:
    """One run.

    Raises:
        AssertionError: the counts are wrong, or the stream ended before all tasks had moved.
    """
    plans = tuple(redeployments(setup.layout, case.moved, setup.moments, seed)) if case.moved else ()
    first, records = one_of_each(KEYS), stream(KEYS, setup.seconds, RATE, seed)
    with tempfile.TemporaryDirectory(prefix="dpa-redeploy-") as directory:
        planned = partial(_plan, setup, WatchedCount(directory, flush_seconds=0.0), case.scheme)
        if case.scheme == STOP:
            counted = counts_with_stops(list(_parts(records, setup.moments)), first, planned, directory)
        elif case.scheme == OURS:
            asking = _Asking(plans)
            counted = counts_of(planned(records, first), directory, asking.ask)
            assert not asking.left, f"the stream ended {len(asking.left)} redeployments early"
        else:
            counted = counts_of(planned(records, first), directory)
        found = noted(Path(directory))
    check_counts(counted, records, KEYS, case.scheme)
    return outcome_of(case, found, plans, setup)


class _Asking:
    """Asks for redeployments when they are due.

    Attributes:
        left: those that are not yet.
    """

    def __init__(self, plans: Sequence[Redeployment]) -> None:
        self.left = list(zip((plan.at for plan in plans), requests_of(plans), strict=True))

    def ask(self, coordinator: ActorHandle, _: Snapshot, seconds: float) -> None:
        """So many seconds after the stream began: ask for what is due."""
        while self.left and self.left[0][0] <= seconds:
            _, request = self.left.pop(0)
            coordinator.ask.remote(request)


def _parts(records: pa.Table, moments: Sequence[float]) -> Iterator[pa.Table]:
    """The records from each moment to the next."""
    cuts = [0, *(int(at * RATE) for at in moments), len(records)]
    for since, until in itertools.pairwise(cuts):
        yield records.slice(since, until - since)


def _plan(setup: RealSetup, reducer: WatchedCount, scheme: str, records: pa.Table, first: pa.Table) -> RunPlan:
    return plan_of(
        records,
        first,
        reducer,
        setup.layout.tasks,
        balance="none",
        consistency="migrate" if scheme == OURS else "merge",
        limits=_LIMITS,
    )


def outcome_of(case: Case, found: Noted, plans: Sequence[Redeployment], setup: RealSetup) -> Outcome:
    """What a run came to. A gap is the time from one record of a task's keys to the next, by whichever task."""
    order = np.argsort(found.done, kind="stable")
    tasks, done = setup.task_of[found.keys][order], found.done[order]
    gaps = {
        task: [Gap(begin, end) for begin, end in itertools.pairwise(done[tasks == task].tolist())]
        for task in range(setup.layout.tasks)
    }
    moved, stayed = longest_gaps(gaps, plans, float(setup.seconds))
    delays = found.done - found.due
    return Outcome(
        case,
        rates=tuple(np.histogram(done, np.arange(setup.seconds + 1.0))[0].astype(float).tolist()),
        p50=float(np.quantile(delays, 0.5)),
        p99=float(np.quantile(delays, 0.99)),
        gaps=moved,
        others=stayed,
    )


def measure(options: argparse.Namespace) -> Findings:
    """Every scheme with every number of tasks that move."""
    setup = RealSetup(20.0, 12) if options.quick else RealSetup()
    numbers = MOVED[-1:] if options.quick else MOVED
    by_moved = [(str(moved), OURS, case_of(OURS, moved)) for moved in numbers]
    rows = [("-", NONE, Case(NONE)), ("any", STOP, case_of(STOP, 1)), *by_moved]
    found = []
    with ray_session(None, actors=setup.layout.tasks + 3):
        for moved, scheme, case in rows:
            found.append(run(setup, case, options.seed))
            rate, longest = found[-1].rate, found[-1].longest_gap
            progress(f"{scheme}, {moved} tasks: {rate:,.0f} records/s, longest gap {longest:.3f} s")
    outcomes = Outcomes(tuple(found))
    ours = [each for each in found if each.case.scheme == OURS]
    worst = max(each.degraded(0.6, outcomes.usual) for each in ours)
    return Findings(
        data={"usual": outcomes.usual, "rate": RATE, "runs": [each.plain(outcomes.usual) for each in found]},
        targets=[
            below("ours: longest gap of a task that moved, s", max(each.longest_gap for each in ours), MAX_GAP),
            at_most("ours: seconds that lost at least 60 % of throughput", worst, MAX_DEGRADED),
        ],
        text=_text(setup, table(outcomes, rows)),
        figure=draw(outcomes, [case for _, _, case in rows[1:]], setup.moments),
    )


def _text(setup: RealSetup, rows: str) -> str:
    layout = setup.layout
    return "\n\n".join(
        (
            f"A count by key on Ray, {layout.tasks} reducers, {RATE:,} records a second for {setup.seconds} s; tasks "
            f"move after {setup.moments[0]:g} s and then every {60 / setup.shrink:g} s: the paper's times, divided by "
            f"{setup.shrink:g}. To stop the job, and to move tasks, takes as long as it takes: nothing of it is "
            "scaled.",
            "The stream is paced, and what was due meanwhile is read as soon as it can be. So throughput catches up, "
            "which it does not in virtual time, and delays count from when a record was due. A gap is the longest "
            "time from one record of a moved task's keys to the next: some hundredths of a second where nothing "
            "moves, as records come in batches.",
            rows,
        )
    )
