"""The published schemes on a model of a Storm job: sentences are lost while single tasks are away, and sent again.

Clients send sentences and wait for the answers (5.1). A word goes to the worker where the sender's one believes its
task to be. If that works but does not have the task, the word is lost, and with it its sentence, which is sent again
after a timeout (3.3). So its client sends nothing meanwhile: a short loss can cost throughput for as long as the
timeout.

Senders see that a process has gone, as its connections close; they hold what is for it, and before long the whole job
stands. That nothing is lost then is an assumption. What is queued in a task that is killed is not counted as lost:
queues are short.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.harness import interval
from experiments.redeploy.course import Floats
from experiments.redeploy.outcome import LEVELS, Case
from experiments.redeploy.plans import Layout, Redeployment, redeployments
from experiments.redeploy.schemes import FREE, RESTART, SCHEMES, STOP, Known, Polling

STEP = 0.1
"""Seconds of a step."""


@dataclass(frozen=True)
class Storm:
    """The job.

    Attributes:
        words: of a sentence. The paper's are those of a novel; that they have 12 words is assumed.
        rate: sentences a second of all clients, where nothing is lost.
        window: sentences under way, by the rate: the seconds that a client waits for an answer. The paper names no
            number of clients; this one is fitted to the 118 s of 16 tasks at a time (5.2.2).
        timeout: seconds until a lost sentence is sent again: `topology.message.timeout.secs`, by default 30 (Storm's
            documentation, "Guaranteeing message processing"); the paper does not change it.
        load: busy part of the tasks at that rate.
        polling: what looking for plans costs.
    """

    words: int = 12
    rate: float = 140.0
    window: float = 7.0
    timeout: float = 30.0
    load: float = 0.7
    polling: Polling = FREE


@dataclass(frozen=True)
class Runs:
    """A case in several runs.

    Attributes:
        rates: sentences answered in each second, by those where nothing is lost; shape (runs, seconds).
        gaps: of each task at each redeployment that moved it, in all runs: how long it was nowhere, in seconds.
    """

    case: Case
    rates: Floats
    gaps: tuple[float, ...]

    @property
    def throughput(self) -> Floats:
        """Of each run, by that where nothing moves."""
        return self.rates.mean(axis=1)

    def degraded(self, level: float) -> Floats:
        """The seconds of each run that lost at least this part of the throughput."""
        return np.count_nonzero(self.rates <= 1 - level, axis=1).astype(float)

    def plain(self) -> dict[str, Any]:
        """For a result file: means, and where 95 % of the runs are."""
        figures = {"throughput": self.throughput} | {f"{level:.0%}": self.degraded(level) for level in LEVELS}
        spread = {name: {"mean": values.mean(), "interval": interval(values)} for name, values in figures.items()}
        return {**asdict(self.case), "runs": len(self.rates), **spread}


def run(storm: Storm, layout: Layout, case: Case, moments: Sequence[float], seconds: int, seeds: Iterable[int]) -> Runs:
    """A run for each seed, which draws the plans and where cycles are: for a seed they are those of all schemes."""
    away = [list(_known(layout, case, moments, seed)) for seed in seeds]
    gaps = [
        max(0.0, until - since)
        for plans in away
        for plan, known in plans
        for task, (since, until) in SCHEMES[case.scheme](plan, known, layout, case.durations).items()
        if task in plan.moved
    ]
    if case.scheme in (STOP, RESTART):
        rates = np.stack([_standing(layout, case, plans, seconds) for plans in away])
    else:
        lost = np.stack([lost_parts(storm, layout, case, plans, seconds) for plans in away])
        rates = _answered(storm, layout, case, lost)
    each_second = rates.reshape(len(away), seconds, -1).mean(axis=2)
    return Runs(case, np.floor(each_second * storm.rate + 1e-6) / storm.rate, tuple(gaps))


def lost_parts(
    storm: Storm, layout: Layout, case: Case, plans: Iterable[tuple[Redeployment, Known]], seconds: int
) -> Floats:
    """The part of all sentences that is lost in each step, where single tasks move.

    A sender's worker learns of a move when it looks itself, as the workers do that stop and start the task (3.2): what
    it sends is lost if it still believes in the old place when the task has gone, or already in the new one before the
    task has started. Senders are spread evenly over workers, and words over tasks.
    """
    at = _middles(seconds)
    missing = np.zeros((len(at), layout.all_workers))
    for plan, known in plans:
        for since, until in SCHEMES[case.scheme](plan, known, layout, case.durations).values():
            learns = np.array(known.in_worker)[None, :]
            gone = (at[:, None] >= since) & (at[:, None] < learns)
            missing += gone | ((at[:, None] >= learns) & (at[:, None] < until))
    here: Floats = np.clip(1 - missing / layout.tasks, 0.0, 1.0)
    return 1 - (here**storm.words).mean(axis=1)


def _standing(layout: Layout, case: Case, plans: Iterable[tuple[Redeployment, Known]], seconds: int) -> Floats:
    """The sentences answered in each step, by those where nothing moves: none while any task is away."""
    at, rate = _middles(seconds), np.ones(round(seconds / STEP))
    for plan, known in plans:
        for since, until in SCHEMES[case.scheme](plan, known, layout, case.durations).values():
            rate[(at >= since) & (at < until)] = 0.0
    return rate


def _answered(storm: Storm, layout: Layout, case: Case, lost: Floats) -> Floats:
    """The sentences answered in each step, by those where nothing is lost; `lost` has the shape (runs, steps)."""
    runs, steps = lost.shape
    most = min(1.0, 1 / (storm.load * storm.polling.slowness(layout, case.durations)))
    wait = round(storm.timeout / STEP)
    free, back = np.ones(runs), np.zeros((runs, steps + wait))
    answered = np.zeros((runs, steps))
    for step in range(steps):
        free += back[:, step]
        sent = np.minimum(free, most)
        fails = sent * lost[:, step]
        answered[:, step] = sent - fails
        waiting = np.minimum(fails * STEP / storm.window, free)
        free -= waiting
        back[:, step + wait] += waiting
    return answered


def _known(layout: Layout, case: Case, moments: Sequence[float], seed: int) -> Iterator[tuple[Redeployment, Known]]:
    draw = random.Random(seed)
    for plan in redeployments(layout, case.moved, moments, seed):
        yield plan, Known.drawn(plan.at, layout, case.durations, draw)


def _middles(seconds: int) -> Floats:
    """The middle of each step."""
    return (np.arange(round(seconds / STEP)) + 0.5) * STEP
