"""Random jobs and graphs with faults, whose results are compared with the model's: processes are killed or taken for
dead at any step, nodes are slow, partitions heal, the network keeps messages of dead generations, and the file system
of checkpoints fails, tears writes and lists late. Tasks come, go and move meanwhile.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from dpa.errors import JobFailedError
from experiments.harness import Findings, Target, markdown_table, progress
from experiments.simulated_jobs.generations import SimulatedGenerations
from experiments.simulated_jobs.meetings import PAIRS, Meetings
from experiments.simulated_jobs.random_faults import with_random_faults
from experiments.simulated_jobs.random_graphs import random_graph
from experiments.simulated_jobs.random_jobs import random_job
from experiments.simulated_jobs.random_windows import RandomWindows, endless_windows, with_finals
from experiments.simulated_jobs.runs import Made
from experiments.simulation.violation import InvariantViolationError

_MODES: tuple[tuple[str, Callable[[int], Made], dict[str, Any]], ...] = (
    ("jobs", random_job, {}),
    ("jobs whose states migrate", partial(random_job, migrates=True), {}),
    ("graphs", random_graph, {}),
    ("graphs whose tasks stay", random_graph, {"changes": False}),
    ("jobs whose placement follows the load", random_job, {"placed": True}),
)
"""In turn."""


def _publishing(seed: int) -> RandomWindows:
    """A job without end, stages of which publish closed windows with checkpoints."""
    return with_finals(endless_windows(seed), seed, cuts=True, faults=True)


_ENDLESS: tuple[tuple[str, Callable[[int], Made], dict[str, Any]], ...] = (
    ("jobs with windows and open inputs", _publishing, {}),
    ("jobs with windows and open inputs whose tasks stay", _publishing, {"changes": False}),
    ("jobs with windows and open inputs whose placement follows the load", _publishing, {"placed": True}),
)
"""The same of jobs with event time."""


def run(seed: int, *, windows: bool = False, **given: Any) -> SimulatedGenerations:
    """Run the job or graph of a seed with its faults, and check its result, or that it fails where it has to.
    `windows`: the job has windows of event time, and open inputs.

    Raises:
        InvariantViolationError: an invariant was broken, the job could not end, or its result is wrong.
    """
    _, make, ways = _mode(seed, windows=windows)
    made = make(seed)
    generations = with_random_faults(made.job, seed, **ways, **given)
    try:
        found = generations.run()
        made.check(found, generations.history)
        has_failed = False
        if windows:
            generations.counts["epochs of last generations"] += found.snapshot.epochs.number
            generations.counts["records that were late in last generations"] += sum(found.late.values())
    except JobFailedError:
        generations.counts["jobs of which more processes died than they bear: they fail"] += 1
        has_failed = True
    if has_failed != (generations.in_vain > generations.recovery.attempts):
        how = f"after {generations.in_vain} deaths without progress a job {'failed' if has_failed else 'went on'}"
        raise InvariantViolationError(f"{how}, with {generations.recovery.attempts} attempts", generations.history())
    return generations


def _mode(seed: int, *, windows: bool) -> tuple[str, Callable[[int], Made], dict[str, Any]]:
    modes = _ENDLESS if windows else _MODES
    return modes[seed % len(modes)]


@dataclass(frozen=True)
class _Found:
    """What happened in the run of a seed, and how it went wrong: the message and the events that led there."""

    seed: int
    counts: Counter[str]
    met: Counter[tuple[str, str]]
    violation: tuple[str, list[str]] | None = None


def _find(seed: int, *, windows: bool) -> _Found:
    meetings = Meetings()
    try:
        counts = run(seed, windows=windows, watch=meetings.watch, died=meetings.died).counts
    except InvariantViolationError as violation:
        return _Found(seed, Counter(), meetings.of, (str(violation), [*violation.history]))
    return _Found(seed, counts, meetings.of)


def measure(options: argparse.Namespace, show: Callable[[int, InvariantViolationError], None]) -> Findings:
    """Run some seeds, on all processors, and count what happened in them; `show` prints a violation."""
    seeds = min(options.seeds, 50) if options.quick else options.seeds
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    met: Counter[tuple[str, str]] = Counter()
    failed: list[int] = []
    began = time.time()
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        each = range(options.seed, options.seed + seeds)
        for done, found in enumerate(processes.map(partial(_find, windows=options.windows), each), start=1):
            kinds[_mode(found.seed, windows=options.windows)[0]] += 1
            counts.update(found.counts)
            met.update(found.met)
            if found.violation is not None:
                failed.append(found.seed)
                show(found.seed, InvariantViolationError(*found.violation))
            if done % 200 == 0:
                progress(f"{done} of {seeds} runs with faults, {len(failed)} violations")
    seconds = time.time() - began
    pairs = [(one, other, met[one, other]) for one, other in PAIRS]
    never = sum(not times for _, _, times in pairs)
    print(
        f"{seeds} runs with faults in {seconds:.1f} s: {f'VIOLATIONS with seeds {failed}' if failed else 'all right'}"
    )
    parts = [
        "Random jobs and graphs in the simulator, with faults. Every invariant is checked after every event, and every "
        "result is compared with the model's.",
        markdown_table(("what", "number"), [("runs", seeds), *kinds.items(), *sorted(counts.items())]),
        "What was under way together, and after how many events of the coordinator or the load balancer; of kills, how "
        "many there were meanwhile:",
        markdown_table(("one", "other", "times"), pairs),
    ]
    return Findings(
        data={"seeds": seeds, "failed": failed, "seconds": seconds, "counts": dict(counts), "pairs": pairs},
        targets=[
            Target("runs with faults whose result is wrong, or that break an invariant", "0", len(failed), not failed),
            Target("pairs of cut, hand-over, rescale, move and kill that never met", "0", never, not never),
        ],
        text="\n\n".join(parts),
    )
