"""What is to come out: our bounds, and the values and the order of the schemes that the paper found."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.harness import Target, above, at_most, below, holds, interval, published
from experiments.redeploy.cases import CYCLES, DEFAULT, MOVED, TUNED, Outcomes, case_of, of_cycles
from experiments.redeploy.losses import Runs
from experiments.redeploy.outcome import Case, Outcome
from experiments.redeploy.schemes import OURS, RESTART, SINGLE, STOP

MAX_GAP = 0.1
"""Seconds in which nobody may work on the keys of a task that moves."""

MAX_DEGRADED = 2
"""Seconds of a run that may lose at least 60 % of the throughput."""

_TO_RESTART, _TO_STOP, _RESTART_TO_STOP = 1.25, 1.75, 1.41
"""By how much N-Storm's throughput exceeds that of both others, and theirs each other's (5.2.1, figure 10a)."""

LAZY_TO_SINGLE = 1.11
"""The throughput of lazy kill to that of single tasks, 16 tasks at a time (5.2.3, figure 10c)."""

SECONDS: dict[str, tuple[Case, int, int | None]] = {
    "9a: stopping the job": (case_of(STOP, 1), 279, 267),
    "9a: restarting workers": (case_of(RESTART, 1), 155, None),
    "9a: single tasks": (case_of(SINGLE, 1), 20, None),
    "9b: single tasks, 16 at a time": (case_of(SINGLE, MOVED[-1]), 118, None),
    "9c: lazy kill, 16 at a time": (of_cycles(*DEFAULT), 84, 53),
}
"""Of 600, that lost at least 60 % of the throughput, and all of it, by figure (5.2.1 - 5.2.3)."""


def targets(found: Outcomes) -> Iterator[Target]:
    """Of a run of all cases."""
    ours = [_run(found, case_of(OURS, moved)) for moved in MOVED]
    yield below("ours: longest gap of a task that moved, s", max(run.longest_gap for run in ours), MAX_GAP)
    worst = max(found.degraded(run.case) for run in ours)
    yield at_most("ours: seconds that lost at least 60 % of throughput", worst, MAX_DEGRADED)
    kept = _run(found, case_of(OURS, 1)).rate / found.usual
    for words, scheme, bound in (("restarting workers", RESTART, _TO_RESTART), ("stopping the job", STOP, _TO_STOP)):
        theirs = found.modelled[case_of(scheme, 1)].throughput.mean()
        yield above(f"ours, 1 task: throughput to that of {words}", kept / float(theirs), bound)
    yield from _published(found)
    yield from _orders(found)


def _published(found: Outcomes) -> Iterator[Target]:
    """Published values, each within the interval in which 95 % of the model's runs are."""
    for name, (case, most, whole) in SECONDS.items():
        yield published(f"{name}, s that lost 60 %", most, interval(found.modelled[case].degraded(0.6)))
        if whole is not None:
            yield published(f"{name}, s that lost all", whole, interval(found.modelled[case].degraded(1.0)))
    stop, restart, single = (found.modelled[case_of(scheme, 1)] for scheme in (STOP, RESTART, SINGLE))
    lazy, many = found.modelled[of_cycles(*DEFAULT)], found.modelled[case_of(SINGLE, MOVED[-1])]
    for name, of, to, value in (
        ("10a: restarting workers to stopping the job", restart, stop, _RESTART_TO_STOP),
        ("10a: single tasks to restarting workers", single, restart, _TO_RESTART),
        ("10a: single tasks to stopping the job", single, stop, _TO_STOP),
        ("10c: lazy kill to single tasks, 16 at a time", lazy, many, LAZY_TO_SINGLE),
    ):
        yield published(f"{name}, throughput", value, interval(of.throughput / to.throughput))


def _orders(found: Outcomes) -> Iterator[Target]:
    """The order of schemes and cycles, by means of all runs."""

    def lost(case: Case) -> float:
        return float(found.modelled[case].degraded(0.6).mean())

    one = [lost(case_of(scheme, 1)) for scheme in (STOP, RESTART, SINGLE)]
    yield holds("1 task: stopping the job degrades longest, then restarting workers", one[0] > one[1] > one[2])
    yield holds("single tasks: 16 tasks degrade longer than 1", lost(case_of(SINGLE, MOVED[-1])) > one[2])
    yield holds(
        "16 tasks: lazy kill degrades for less time", lost(of_cycles(*DEFAULT)) < lost(case_of(SINGLE, MOVED[-1]))
    )
    cycles = [lost(of_cycles(*each)) for each in CYCLES[:3]]
    yield holds("lazy kill: from 30 s to 3 s shorter cycles degrade for less time", cycles[0] > cycles[1] > cycles[2])
    tuned, short = (found.modelled[of_cycles(*each)] for each in (TUNED, CYCLES[-1]))
    yield holds("9d: lazy kill, cycles of 0.3 s degrade for longer than of 3 s", _any(short) > _any(tuned))
    yield holds(
        "10d: lazy kill, cycles of 0.3 s are slower than of 3 s", short.throughput.mean() < tuned.throughput.mean()
    )


def _any(runs: Runs) -> float:
    """Seconds that lost at least a fifth."""
    return float(runs.degraded(0.2).mean())


def _run(found: Outcomes, case: Case) -> Outcome:
    run = found.of(case)
    assert run is not None, case
    return run
