"""Which runs are made in virtual time, and what they came to together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from experiments.harness import progress
from experiments.redeploy import losses
from experiments.redeploy.losses import Runs, Storm
from experiments.redeploy.outcome import NONE, Case, Outcome
from experiments.redeploy.schemes import LAZY, OURS, PUBLISHED, RESTART, SCHEMES, SINGLE, STOP, Durations
from experiments.redeploy.virtual import Setup, simulate

MOVED = (1, 2, 4, 8, 16)
"""M: tasks that move at a time."""

CYCLES = ((30.0, 10.0), (10.0, 3.0), (3.0, 1.0), (1.0, 0.3), (0.3, 0.1))
"""`T_S` and `T_W` of the comparison of cycles, in seconds (5.2.4, and one that is longer)."""

DEFAULT, TUNED = CYCLES[1:3]
"""The paper's default, and the best published ones, with which N-Storm+ moves tasks in its later experiments (5.3)."""

SEEDS = 100
"""Runs of the model of each published scheme."""


@dataclass(frozen=True)
class Outcomes:
    """Runs of one length and seed, one of which is without redeployments.

    Attributes:
        modelled: the published schemes, each with its runs of many seeds; the first of them is among `runs`.
    """

    runs: tuple[Outcome, ...]
    modelled: Mapping[Case, Runs] = field(default_factory=dict)

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
    return of_cycles(*TUNED, moved) if scheme == LAZY else Case(scheme, moved)


def of_cycles(agent: float, worker: float, moved: int = MOVED[-1]) -> Case:
    """N-Storm+ with these cycles: most tasks move, as in the paper."""
    return Case(LAZY, moved, _with_cycles(agent, worker))


def _with_cycles(agent: float, worker: float) -> Durations:
    return replace(PUBLISHED, agent_cycle=agent, worker_cycle=worker)


def all_cases(moved: Sequence[int] = MOVED, cycles: Sequence[tuple[float, float]] = CYCLES) -> Iterator[Case]:
    """Every case once."""
    made = [Case(NONE)]
    made += [case_of(scheme, number) for number in moved for scheme in (STOP, RESTART, SINGLE, LAZY, OURS)]
    made += [of_cycles(*each, moved[-1]) for each in cycles]
    yield from dict.fromkeys(made)


def run_all(cases: Iterable[Case], setup: Setup, storm: Storm, seeds: Sequence[int], processes: int) -> Outcomes:
    """Run them: the published schemes with each seed, the others in virtual time with the first one, so many at a
    time."""
    cases = list(cases)
    simulated = [case for case in cases if case.scheme not in SCHEMES]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        found = {}
        for run in pool.map(partial(simulate, setup, seed=seeds[0]), simulated):
            found[run.case] = run
            progress(f"{run.case.scheme}, {run.case.moved} tasks: {run.rate:,.0f} records/s")
    usual = found[Case(NONE)].usual_rate
    modelled = {case: model(storm, setup, case, seeds) for case in cases if case.scheme in SCHEMES}
    found |= {case: _first(runs, usual) for case, runs in modelled.items()}
    return Outcomes(tuple(found[case] for case in cases), modelled)


def model(storm: Storm, setup: Setup, case: Case, seeds: Sequence[int]) -> Runs:
    """The runs of a published scheme."""
    return losses.run(storm, setup.layout, case, setup.moments, setup.seconds, seeds)


def _first(runs: Runs, usual: float) -> Outcome:
    """The first of the runs, in records a second; its gaps are those of all."""
    rates = tuple((runs.rates[0] * usual).tolist())
    return Outcome(runs.case, rates, None, None, runs.gaps, others=0.0)
