"""A tenth of a large state moves while records flow: what the records feel of it, by every way to move it.

A paced stream of random keys is counted by five reducers, which have a state for each key before it begins. In its
middle the first reducer gives half of what it has to the others: a tenth of all states. Ways:

- none: nothing moves;
- merge: records are forwarded, states stay where they are and are merged in the end;
- migrate, in pieces, as jobs do it; and all at once;
- stop: the job is ended, its states are written to a file, and a job with the other division begins with them. Records
  that are due meanwhile wait.

A record's delay counts from when it was due. Real Ray, on this machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import ray

from dpa.balance.options import HalvingOptions
from dpa.protocol.graph import REDUCER, Graph
from dpa.protocol.plan import RunPlan
from dpa.routing.hashing import hash_column
from dpa.runtime.cluster import ray_session
from experiments.charts import COLOURS, panels
from experiments.harness import Findings, at_most, main, markdown_table, progress
from experiments.watching import (
    Floats,
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
    from matplotlib.figure import Figure
    from ray.actor import ActorHandle

KEYS, REDUCERS = 1_000_000, 5
"""States, and who has them: half of what one reducer has is a tenth of all."""

RATE = 5_000
"""Records a second: about half of what two cores can do here."""

_LIMITS = {"batch_records": 250, "split_records": 10_000_000}
"""Batches of 50 ms; all else is as jobs have it by default. With 20 ms the stream has not come to rest from the making
of the states when some move, so that there is nothing steady to compare with."""
_BALANCE = HalvingOptions(max_rounds=0)
_WINDOW = 0.25

WAYS = ("none", "merge", "migrate in pieces", "migrate at once", "stop")
QUICK_WAYS = ("none", "migrate in pieces", "stop")
"""Those that targets compare, and the one that is made of two jobs."""


@dataclass(frozen=True)
class Watched:
    """What was noted of one run.

    Attributes:
        due: when each record was due, in seconds since the stream began; shape (records,), ascending.
        delay: by how much later it was processed, in seconds.
        moves: whether its key is one of those that move.
        processed: when each reducer was done with each of its records, in seconds since the stream began; ascending.
    """

    due: Floats
    delay: Floats
    moves: npt.NDArray[np.bool_]
    processed: tuple[Floats, ...]

    def p99(self, since: float, until: float, *, moves: bool) -> float:
        """The delay that 99 % of the records due in this time did not exceed, of keys that move or of the others."""
        chosen = (self.due >= since) & (self.due < until) & (self.moves == moves)
        return float(np.quantile(self.delay[chosen], 0.99)) if chosen.any() else float("nan")

    def rate(self, since: float, until: float) -> float:
        """The least records a second that were processed in any window of this time, by the records a second due."""
        done = self.due + self.delay
        bounds = np.arange(since, until, _WINDOW)
        return float(np.min(np.histogram(done, bounds)[0])) / (RATE * _WINDOW)

    def silent(self, since: float, until: float) -> float:
        """The longest time in which a reducer processed nothing, of those that begin in this time, in seconds."""
        gaps = (np.diff(at)[(at[:-1] >= since) & (at[:-1] < until)] for at in self.processed)
        return max(float(of_reducer.max(initial=0.0)) for of_reducer in gaps)


@dataclass(frozen=True)
class Setup:
    """How large a run is: states, who has them, seconds of the stream, and the second at which states move."""

    keys: int = KEYS
    reducers: int = REDUCERS
    seconds: float = 16.0
    at: float = 8.0


def moving(setup: Setup) -> npt.NDArray[np.bool_]:
    """Whether each key moves when reducer 0 halves its tokens, shape (keys,)."""
    ring = _BALANCE.ring(setup.reducers)
    hashes = hash_column(pa.array(np.arange(setup.keys)))
    before = ring.snapshot(0).owners_of(hashes)
    ring.set_tokens(0, _BALANCE.initial_tokens // 2)
    return before != ring.snapshot(1).owners_of(hashes)


def run(way: str, setup: Setup, seed: int) -> Watched:
    """One run of the stream.

    Raises:
        AssertionError: the counts are wrong.
    """
    first, records = one_of_each(setup.keys), stream(setup.keys, setup.seconds, RATE, seed)
    with tempfile.TemporaryDirectory(prefix="dpa-migration-") as directory:
        if way == "stop":
            cut, seeds = int(setup.at * RATE), iter((0, 1))
            parts = (records.slice(0, cut), records.slice(cut))

            def with_other_hashes(part: pa.Table, begun: pa.Table) -> RunPlan:
                return _plan(setup, part, begun, directory, hash_seed=next(seeds))

            counted = counts_with_stops(parts, first, with_other_hashes, directory)
        else:
            plan = _plan(setup, records, first, directory, migrates=way.startswith("migrate"))
            if way == "migrate at once":
                plan = replace(plan, graph=_at_once(plan.graph))
            counted = _counts(plan, directory, None if way == "none" else setup.at)
        found = _watched(noted(Path(directory)), setup)
    check_counts(counted, records, setup.keys, way)
    return found


def _plan(
    setup: Setup,
    records: pa.Table,
    first: pa.Table,
    directory: str,
    *,
    migrates: bool = False,
    hash_seed: int = 0,
) -> RunPlan:
    """The plan of a job that counts the records after it has made the states."""
    return plan_of(
        records,
        first,
        WatchedCount(directory),
        setup.reducers,
        balance={"strategy": "halving", "max_rounds": 0, "hash_seed": hash_seed},
        consistency="migrate" if migrates else "merge",
        limits=_LIMITS,
    )


def _at_once(graph: Graph) -> Graph:
    stages = tuple(replace(stage, piece_keys=2**31) for stage in graph.stages)
    return replace(graph, stages=stages)


def _counts(plan: RunPlan, directory: str, move_at: float | None) -> pa.Table:
    """The counts of all keys; so many seconds after the stream began reducer 0 gives half of its tokens to others."""
    moved: list[bool] = []

    def move(coordinator: ActorHandle, seconds: float) -> None:
        if move_at is not None and not moved and seconds >= move_at:
            moved.append(True)
            balancer = ray.get(coordinator.balancer.remote())
            ray.get(balancer.redistribute.remote(0, REDUCER))

    counted = counts_of(plan, directory, move)
    assert move_at is None or moved, "the stream ended before anything moved"
    return counted


def _watched(found: Noted, setup: Setup) -> Watched:
    return Watched(found.due, found.done - found.due, moving(setup)[found.keys], found.of_process)


def measure(options: argparse.Namespace) -> Findings:
    """Run every way `repeats` times, in turn."""
    setup, ways = (Setup(20_000, 2, 4.0, 2.0), QUICK_WAYS) if options.quick else (Setup(), WAYS)
    runs: dict[str, list[Watched]] = {way: [] for way in ways}
    with ray_session(None):
        for repeat in range(1 if options.quick else options.repeats):
            for way in ways:
                runs[way].append(run(way, setup, options.seed + repeat))
                progress(f"run {repeat + 1} of {way}: {_in_words(runs[way][-1], setup)}")
    rows = [_row(way, runs[way], setup) for way in ways]
    by_way = {row["way"]: row for row in rows}
    ours = by_way["migrate in pieces"]
    targets = [
        at_most("p99 of keys that stay, while others move, to before", ours["stay"] / ours["before"], 2.0),
        at_most("longest silence of a reducer, in seconds", ours["silent"], 0.05),
        at_most("dip of throughput", 1 - ours["rate"] / by_way["none"]["rate"], 0.1),
    ]
    head = (
        "way",
        "p99 before (s)",
        "p99, keys that stay (s)",
        "p99, keys that move (s)",
        "longest silence (s)",
        "least rate",
    )
    shown = [(row["way"], *(f"{row[name]:.3f}" for name in _COLUMNS)) for row in rows]
    return Findings(
        data={"rows": rows, "rate": RATE, "keys": setup.keys, "reducers": setup.reducers},
        targets=targets,
        text=f"{setup.keys:,} states on {setup.reducers} reducers, {RATE:,} records a second; "
        f"{moving(setup).mean():.0%} of the states move. The delays are of records due in the two seconds after that, "
        f"the longest silence is of these seconds too: batches come {_LIMITS['batch_records'] / RATE:g} s apart. The "
        f"least rate is of any {_WINDOW:g} s, by what was due. Medians of the runs.\n\n" + markdown_table(head, shown),
        figure=_picture({way: found[0] for way, found in runs.items()}, setup),
    )


_COLUMNS = ("before", "stay", "move", "silent", "rate")


def _row(way: str, runs: list[Watched], setup: Setup) -> dict[str, Any]:
    numbers = [_numbers(one, setup) for one in runs]
    return {"way": way, **{name: statistics.median(found[name] for found in numbers) for name in _COLUMNS}}


def _numbers(watched: Watched, setup: Setup) -> dict[str, float]:
    at = setup.at
    return {
        "before": watched.p99(1.0, at - 0.5, moves=False),
        "stay": watched.p99(at, at + 2.0, moves=False),
        "move": watched.p99(at, at + 2.0, moves=True),
        "silent": watched.silent(at - _WINDOW, at + 2.0),
        "rate": watched.rate(at, at + 2.0),
    }


def _in_words(watched: Watched, setup: Setup) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in _numbers(watched, setup).items())


def _picture(runs: Mapping[str, Watched], setup: Setup) -> Figure:
    """The delay over time, of keys that stay and of those that move."""
    figure, axes = panels(2, (10.0, 4.0))
    bounds = np.arange(0, setup.seconds, _WINDOW)
    for place, (axis, moves) in enumerate(zip(axes, (False, True), strict=True)):
        for colour, (way, watched) in zip(COLOURS, runs.items(), strict=False):
            delays = [watched.p99(since, since + _WINDOW, moves=moves) for since in bounds]
            axis.plot(bounds - setup.at, delays, color=colour, linewidth=1.4, label=way)
        axis.set_yscale("log")
        axis.set_title(f"keys that {'move' if moves else 'stay'}", fontsize=10)
        axis.set_xlabel("seconds since states move")
        if not place:
            axis.set_ylabel("delay that 99 % do not exceed (s)")
            axis.legend(fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each way")
    main("migration", parser, measure)
