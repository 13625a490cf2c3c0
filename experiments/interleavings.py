"""Random jobs under a seeded scheduler that delays, reorders and duplicates messages: no invariant may break.

Prints the seed and the event history of any violation; a seed alone repeats it. Needs neither Ray nor Spark.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from dpa.routing.groupings.options import KINDS, RING
from dpa.simulation.cluster import InvariantViolationError
from dpa.simulation.random_jobs import random_job, run_random_job
from experiments.harness import Findings, Target, main, markdown_table, progress

_HISTORY_SHOWN = 60


def measure(options: argparse.Namespace) -> Findings:
    """Run the jobs of so many seeds and count what happened in them."""
    seeds = min(options.seeds, 100) if options.quick else options.seeds
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    failed: list[int] = []
    began = time.time()
    for seed in range(options.seed, options.seed + seeds):
        try:
            outcome = run_random_job(seed)
        except InvariantViolationError as violation:
            failed.append(seed)
            _show(seed, violation)
            continue
        kinds[random_job(seed)[0].grouping.kind] += 1
        counts["events"] += outcome.steps
        counts["records"] += sum(reducer.processed for reducer in outcome.snapshot.reducers)
        counts["records forwarded"] += sum(reducer.forwarded for reducer in outcome.snapshot.reducers)
        counts["redistributions"] += outcome.snapshot.decision_counts.get("applied", 0)
        counts["jobs that redistributed"] += outcome.snapshot.epoch > 0
        if (seed + 1) % 200 == 0:
            progress(f"{seed + 1 - options.seed} of {seeds} jobs, {len(failed)} violations")
    seconds = time.time() - began
    print(f"{seeds} jobs in {seconds:.1f} s: {'no violation' if not failed else f'VIOLATIONS with seeds {failed}'}")
    rows = [("jobs", seeds), *counts.items(), *((f"jobs with the grouping `{kind}`", kinds[kind]) for kind in KINDS)]
    return Findings(
        data={"seeds": seeds, "failed": failed, "seconds": seconds, "counts": dict(counts), "groupings": dict(kinds)},
        targets=[
            Target("violations", "0", len(failed), not failed),
            Target("jobs with other groupings than the ring", ">= 1000", *_others(kinds)),
            Target("seconds for 1,000 jobs", "< 120", 1000 * seconds / seeds, 1000 * seconds / seeds < 120),
        ],
        text="Random jobs in the simulator, every invariant checked after every event.\n\n"
        + markdown_table(("what", "number"), rows),
    )


def _others(kinds: Counter[str]) -> tuple[int, bool]:
    others = kinds.total() - kinds[RING]
    return others, others >= 1_000


def _show(seed: int, violation: InvariantViolationError) -> None:
    print(f"seed {seed}: {violation}", file=sys.stderr)
    for line in violation.history[-_HISTORY_SHOWN:]:
        print(f"    {line}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3_500, help="how many random jobs")
    main("interleavings", parser, measure)
