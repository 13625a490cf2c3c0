"""Which runs are made in virtual time, and what they came to together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from experiments.harness import progress
from experiments.redeploy.outcome import NONE, Case, Outcome
from experiments.redeploy.schemes import LAZY, OURS, PUBLISHED, RESTART, SINGLE, STOP, Durations, Polling
from experiments.redeploy.virtual import Setup, simulate

MOVED = (1, 2, 4, 8, 16)
"""M: tasks that move at a time."""

CYCLES = ((30.0, 10.0), (10.0, 3.0), (3.0, 1.0), (1.0, 0.3), (0.3, 0.1))
"""`T_S` and `T_W` of the comparison of cycles, in seconds (5.2.4, and one that is longer)."""

TUNED = CYCLES[2]
"""The best published ones, with which N-Storm+ moves tasks in the paper's later experiments (5.3)."""

CHEAP, DEAR = Polling(), Polling(0.035, 0.035)
"""What a look for a plan may cost: both are assumed, as nobody has published a figure. Where tasks are busy for 70 %, a
look every 0.1 s may cost 30 ms before they cannot keep up: one is well below that, the other chosen to be above."""


@dataclass(frozen=True)
class Outcomes:
    """Runs of one length and seed, one of which is without redeployments."""

    runs: tuple[Outcome, ...]

    @property
    def usual(self) -> float:
        """Records a second where nothing moves."""
        return next(run for run in self.runs if run.case.scheme == NONE).usual_rate

    def of(self, case: Case) -> Outcome | None:
        """The run of a case, if it was made; of the whole job's stop there is one for any number of tasks."""
        return next((run for run in self.runs if run.case == case), None)

    def degraded(self, case: Case, level: float = 0.6) -> int:
        """The seconds in which a run lost at least this part of the usual throughput."""
        run = self.of(case)
        assert run is not None, case
        return run.degraded(level, self.usual)


def case_of(scheme: str, moved: int) -> Case:
    """A scheme that moves so many tasks at a time, at its best."""
    if scheme == OURS:
        return Case(OURS, moved)
    if scheme == STOP:
        return Case(STOP, 1)  # whatever moves
    return Case(scheme, moved, _with_cycles(*TUNED) if scheme == LAZY else PUBLISHED, CHEAP)


def of_cycles(agent: float, worker: float, polling: Polling, moved: int = MOVED[-1]) -> Case:
    """N-Storm+ with these cycles: most tasks move, as in the paper."""
    return Case(LAZY, moved, _with_cycles(agent, worker), polling)


def _with_cycles(agent: float, worker: float) -> Durations:
    return replace(PUBLISHED, agent_cycle=agent, worker_cycle=worker)


def all_cases(moved: Sequence[int] = MOVED, cycles: Sequence[tuple[float, float]] = CYCLES) -> Iterator[Case]:
    """Every case once."""
    made = [Case(NONE)]
    made += [case_of(scheme, number) for number in moved for scheme in (STOP, RESTART, SINGLE, LAZY, OURS)]
    made += [of_cycles(*each, polling, moved[-1]) for each in cycles for polling in (CHEAP, DEAR)]
    yield from dict.fromkeys(made)


def run_all(cases: Iterable[Case], setup: Setup, seed: int, processes: int) -> Outcomes:
    """Run them, so many at a time."""
    found = []
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for run in pool.map(partial(simulate, setup, seed=seed), cases):
            found.append(run)
            case = run.case
            progress(f"{case.scheme}, {case.moved} tasks, {case.durations.agent_cycle:g} s: {run.rate:,.0f} records/s")
    return Outcomes(tuple(found))
