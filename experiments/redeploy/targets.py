"""What is to come out in virtual time: our bounds, and the order of the schemes that the paper found."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.harness import Target, above, at_most, below, holds
from experiments.redeploy.cases import CHEAP, CYCLES, MOVED, TUNED, Outcomes, case_of, of_cycles
from experiments.redeploy.outcome import Case, Outcome
from experiments.redeploy.schemes import OURS, RESTART, SINGLE, STOP

MAX_GAP = 0.1
"""Seconds in which nobody may work on the keys of a task that moves."""

MAX_DEGRADED = 2
"""Seconds of a run that may lose at least 60 % of the throughput."""

_TO_RESTART, _TO_STOP = 1.25, 1.75
"""By how much N-Storm's throughput exceeds that of both others (5.2.1)."""


def targets(found: Outcomes) -> Iterator[Target]:
    """Of a run of all cases."""
    ours = [_run(found, case_of(OURS, moved)) for moved in MOVED]
    yield below("ours: longest gap of a task that moved, s", max(run.longest_gap for run in ours), MAX_GAP)
    worst = max(found.degraded(run.case) for run in ours)
    yield at_most("ours: seconds that lost at least 60 % of throughput", worst, MAX_DEGRADED)
    rate = _run(found, case_of(OURS, 1)).rate
    restarting = rate / _run(found, case_of(RESTART, 1)).rate
    stopping = rate / _run(found, case_of(STOP, 1)).rate
    yield above("ours, 1 task: throughput to that of restarting workers", restarting, _TO_RESTART)
    yield above("ours, 1 task: throughput to that of stopping the job", stopping, _TO_STOP)
    yield from _orders(found)


def _orders(found: Outcomes) -> Iterator[Target]:
    """What the paper found."""
    single = [found.degraded(case_of(scheme, 1)) for scheme in (STOP, RESTART, SINGLE)]
    yield holds("1 task: stopping the job degrades longest, then restarting workers", single[0] > single[1] > single[2])
    many = found.degraded(case_of(SINGLE, MOVED[-1]))
    yield holds("single tasks: 16 tasks degrade longer than 1", many > single[2])
    lazy = [found.degraded(of_cycles(*cycles, CHEAP)) for cycles in CYCLES]
    yield holds("16 tasks: lazy kill degrades for less time", lazy[CYCLES.index((10.0, 3.0))] < many)
    yield holds("lazy kill: from 30 s to 3 s shorter cycles degrade for less time", lazy[0] > lazy[1] > lazy[2])
    tuned, short = (_run(found, of_cycles(*cycles, CHEAP)).rate for cycles in (TUNED, CYCLES[-1]))
    name = f"lazy kill: cycles of 0.3 s are slower than of 3 s where a look costs {1000 * CHEAP.worker:g} ms"
    yield holds(name, short < tuned)


def _run(found: Outcomes, case: Case) -> Outcome:
    run = found.of(case)
    assert run is not None, case
    return run
