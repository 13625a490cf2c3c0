"""What the runs of the simulator reach: every rule of every machine in each of its states, and every pair of
conversations that can be under way together. What no run reaches is argued away in `experiments.coverage`.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from dpa.errors import JobFailedError
from experiments.coverage import APART, UNREACHED, Coverage, Triple, cells, pairs
from experiments.harness import Findings, Target, markdown_table, progress
from experiments.simulated_jobs.random_changes import with_random_changes, with_random_death
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulated_jobs.random_windows import endless_windows
from experiments.simulated_jobs.runs import run_made
from experiments.simulation.cluster import SimulatedCluster


def _run_endless_windows(seed: int, **machines: Any) -> None:
    run_made(endless_windows(seed), seed, changes=True, cuts=True, **machines)


_MODES = (
    run_random_job,
    partial(run_random_job, changes=True),
    partial(run_random_job, migrates=True),
    partial(run_random_job, migrates=True, changes=True),
    partial(run_random_job, changes=True, placed=True),
    run_random_graph,
    partial(run_random_graph, changes=True),
    partial(run_random_graph, changes=True, placed=True),
    partial(run_random_graph, changes=True, cuts=True, feeds=True),
    partial(run_random_job, migrates=True, changes=True, cuts=True),
    _run_endless_windows,
)
_SMALL = 5
"""Small chains of which somebody wants something all the time are run for each seed so often: they take little."""


def cover(coverage: Coverage, seed: int) -> None:
    """Run the jobs and graphs of a seed in all modes, one in which a task dies among them.

    Raises:
        InvariantViolationError: an invariant was broken.
    """
    with coverage.counting():
        for run in _MODES:
            run(seed, watch=coverage.watch)
        for small in range(_SMALL * seed, _SMALL * (seed + 1)):
            run_random_graph(small, asked=True, watch=coverage.watch)
        job = with_random_death(with_random_changes(random_job(seed).job, seed), seed)
        with suppress(JobFailedError):
            SimulatedCluster(job, seed, watch=coverage.watch).run()


def covered(seed: int) -> Coverage:
    """What the runs of a seed reach."""
    coverage = Coverage()
    cover(coverage, seed)
    return coverage


def measure(options: argparse.Namespace) -> Findings:
    """Count what the runs of some seeds reach."""
    seeds = min(options.seeds, 5) if options.quick else options.seeds
    coverage = Coverage()
    with ProcessPoolExecutor() as processes:
        for done, found in enumerate(processes.map(covered, range(options.seed, options.seed + seeds)), start=1):
            coverage.add(found)
            if done % 50 == 0:
                progress(f"{done} of {seeds} seeds in all modes")
    missing = coverage.missing()
    wrong = coverage.wrong()
    return Findings(
        data={
            "seeds": seeds,
            "cells": [[*cell, coverage.cells[cell]] for cell in cells()],
            "pairs": [[*pair, coverage.pairs[pair]] for pair in pairs()],
        },
        targets=[
            Target("combinations that no run reaches, and nobody argues away", "0", len(missing), not missing),
            Target("combinations that are argued away, and come", "0", len(wrong), not wrong),
        ],
        text=_text(coverage, seeds, missing, wrong),
    )


def _text(coverage: Coverage, seeds: int, missing: list[Triple], wrong: list[Triple]) -> str:
    rules = []
    for machine in dict.fromkeys(cell[0] for cell in cells()):
        of = [cell for cell in cells() if cell[0] == machine]
        reached = [cell for cell in of if coverage.cells[cell]]
        rarest = min(reached, key=coverage.cells.__getitem__, default=None)
        least = "" if rarest is None else f"`{rarest[1]}` while {rarest[2]}: {coverage.cells[rarest]:,}"
        rules.append((f"`{machine}`", len(of), len(reached), len(of) - len(reached), least))
    together = [(*pair, coverage.pairs[pair]) for pair in pairs() if coverage.pairs[pair]]
    parts = [
        f"Jobs and graphs of {seeds:,} seeds, in {len(_MODES) + 2} modes: the rules of every machine in each of its "
        "states (the cells of `experiments.report.transitions`).",
        markdown_table(("machine", "cells", "reached", "not", "the rarest"), rules),
        "What no run reaches:",
        markdown_table(("machine", "event", "state", "because"), [(*cell, why) for cell, why in UNREACHED.items()]),
        "Conversations that were under way together, and after how many events of the coordinator or load balancer:",
        markdown_table(("one", "other", "of", "events"), together),
        "Those that never are:",
        markdown_table(("one", "other", "of", "because"), [(*pair, why) for pair, why in APART.items()]),
    ]
    if missing or wrong:
        parts += ["Not so:", markdown_table(("", "", ""), [*missing, *wrong])]
    return "\n\n".join(parts)
