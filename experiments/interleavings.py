"""Random jobs, or random graphs of stages, under a seeded scheduler that delays, reorders and duplicates messages: no
invariant may break.

Prints the seed and the event history of any violation; a seed alone repeats it. Needs neither Ray nor Spark.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from functools import partial

from dpa.routing.groupings.options import RING
from experiments import interleavings_coverage, interleavings_faults
from experiments.harness import Findings, Target, main, markdown_table, progress
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulated_jobs.random_timers import run_random_timers
from experiments.simulated_jobs.random_windows import run_random_windows
from experiments.simulation.job import SimulatedRun
from experiments.simulation.violation import InvariantViolationError

_HISTORY_SHOWN = 60

_SEEDS = {"coverage": 200, "faults": 1_500, "windows_faults": 600}
"""How many run by default of the ways that take long."""


def measure(options: argparse.Namespace) -> Findings:
    """Run the job or graph of each seed, and count what happened in them."""
    seeds = min(options.seeds, 25) if options.quick else options.seeds
    run, what = run_random_job, "jobs"
    if options.graphs:
        run, what = run_random_graph, "graphs"
    elif options.windows:
        run, what = partial(run_random_windows, feeds=True, finals=True), "jobs with windows"
    elif options.timers:
        run, what = partial(run_random_timers, feeds=True), "jobs with timers"
    run = partial(run, changes=options.changes, cuts=options.cuts, relays=options.relays)
    counts: Counter[str] = Counter()
    failed: list[int] = []
    began = time.time()
    for seed in range(options.seed, options.seed + seeds):
        try:
            _count(run(seed), counts)
        except InvariantViolationError as violation:
            failed.append(seed)
            _show(seed, violation)
        if (seed + 1) % 200 == 0:
            progress(f"{seed + 1 - options.seed} of {seeds} {what}, {len(failed)} violations")
    seconds = time.time() - began
    print(f"{seeds} {what} in {seconds:.1f} s: {f'VIOLATIONS with seeds {failed}' if failed else 'no violation'}")
    rows = [(what, seeds), *counts.items()]
    targets = [Target("violations", "0", len(failed), not failed)]
    if what == "jobs" and not options.changes:
        graphs = [random_job(seed).job.graph for seed in range(options.seed, options.seed + seeds)]
        others = sum(stage.grouping.kind != RING for graph in graphs for stage in graph.queue_fed())
        per_thousand = 1000 * seconds / seeds
        targets += [
            Target("jobs with other groupings than the ring", ">= 1000", others, others >= 1_000),
            Target("seconds for 1,000 jobs", "< 120", per_thousand, per_thousand < 120),
        ]
    return Findings(
        data={"seeds": seeds, "failed": failed, "seconds": seconds, "counts": dict(counts)},
        targets=targets,
        text=f"Random {what} in the simulator, every invariant checked after every event.\n\n"
        + markdown_table(("what", "number"), rows),
    )


def _count(run: SimulatedRun, counts: Counter[str]) -> None:
    counts["events"] += run.steps
    counts["records processed"] += sum(task.processed for stage in run.snapshot.stages for task in stage.tasks)
    counts["records forwarded"] += sum(task.forwarded for stage in run.snapshot.stages for task in stage.tasks)
    counts["redistributions"] += sum(stage.decision_counts.get("applied", 0) for stage in run.snapshot.stages)
    for step in run.snapshot.steps:
        counts["tasks that came"] += len(step.started) - len(step.moved)
        counts["tasks that went"] += len(step.stopped) - len(step.moved)
        counts["tasks that moved"] += len(step.moved)
    if run.late:
        counts["epochs"] += run.snapshot.epochs.number
        counts["records that were late"] += sum(run.late.values())
    if run.snapshot.checkpoints is not None:
        counts["checkpoints, of each run two of which it begins again behind"] += run.snapshot.checkpoints.written
    counts["stages that were redistributed"] += sum(stage.version > 0 for stage in run.snapshot.stages)


def _show(seed: int, violation: InvariantViolationError) -> None:
    print(f"seed {seed}: {violation}", file=sys.stderr)
    for line in violation.history[-_HISTORY_SHOWN:]:
        print(f"    {line}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", action="store_true", help="graphs of up to six stages instead of jobs of one")
    parser.add_argument("--windows", action="store_true", help="jobs with windows, and open inputs")
    parser.add_argument("--timers", action="store_true", help="jobs with timers of event time, and open inputs")
    parser.add_argument("--changes", action="store_true", help="tasks come, go and move meanwhile")
    parser.add_argument("--cuts", action="store_true", help="make checkpoints, and begin again behind some of them")
    parser.add_argument("--relays", action="store_true", help="tasks and the coordinator speak through relays")
    parser.add_argument("--coverage", action="store_true", help="count what runs in all modes reach")
    parser.add_argument("--faults", action="store_true", help="kill processes, and whatever else goes wrong")
    given = parser.parse_known_args()[0]
    every = ("graphs", "windows", "timers", "changes", "cuts", "relays", "coverage", "faults")
    ways = [way for way in every if getattr(given, way)]
    way_of = {"coverage": interleavings_coverage.measure, "faults": partial(interleavings_faults.measure, show=_show)}
    seeds = _SEEDS.get("_".join(ways), 4_000)
    parser.add_argument("--seeds", type=int, default=seeds, help="how many random jobs or graphs")
    others = [f"--seeds {asked}"] if (asked := parser.parse_known_args()[0].seeds) != seeds else []
    command = " ".join(["python -m experiments.interleavings", *(f"--{way}" for way in ways), *others])
    main("_".join(["interleavings", *ways]), parser, way_of.get(ways[-1] if ways else "", measure), command=command)
