"""What is to come out: the right number in one change, no more changes than turns of the load, nothing undone, and what
waits worked off in the stated time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.elastic.loads import CROWD, HELD_OUT, LONG_WAVE, SHORT_WAVE, STEP
from experiments.elastic.outcome import Outcome
from experiments.elastic.virtual import OPTIONS, OURS, START_SECONDS
from experiments.harness import Target, at_most

DECIDE_SECONDS = 4.0
"""Within which a rise of the load is decided on: two seconds of it, two looks, and the reports of the tasks."""


def late_at_most(start_seconds: float) -> float:
    """The longest time for which records may be late: until more tasks are up, and what waits then is worked off."""
    return DECIDE_SECONDS + start_seconds + OPTIONS.backlog_seconds


def targets(runs: Sequence[Outcome]) -> Iterator[Target]:
    """Of all runs in virtual time; those of loads that are held out apart."""
    held_out = {load.name for load in HELD_OUT}
    yield from _of_loads([run for run in runs if run.load not in held_out])
    yield from _of_held_out([run for run in runs if run.load in held_out])


def _of_held_out(found: Sequence[Outcome]) -> Iterator[Target]:
    for load in dict.fromkeys(run.load for run in found):
        each = [run for run in found if run.load == load]
        yield at_most(
            f"held out, {load}: changes, most of all runs", max(len(run.changes) for run in each), each[0].turns
        )
    yield at_most("held out: changes undone, all runs", sum(run.undone for run in found), 0)
    longest = max(run.longest for run in found)
    yield at_most("held out: longest time for which records are late, s", longest, late_at_most(START_SECONDS))


def _of_loads(found: Sequence[Outcome]) -> Iterator[Target]:
    ours = [run for run in found if run.method == OURS]
    plateaus = [run for run in ours if run.load in (STEP.name, LONG_WAVE.name)]
    yield at_most(
        "ours: turns to a plateau without the ideal number in one change", sum(each.off for each in plateaus), 0
    )
    for load in dict.fromkeys(run.load for run in ours):
        runs = [run for run in ours if run.load == load]
        most = max(len(run.changes) for run in runs)
        yield at_most(f"ours, {load}: changes, most of all runs", most, runs[0].turns)
    waves = [run for run in ours if run.load == SHORT_WAVE.name]
    yield at_most("ours: changes that a short wave is chased with", max(len(run.changes) for run in waves), 1)
    yield at_most("ours: changes undone, all runs", sum(run.undone for run in ours), 0)
    longest = max(run.longest for run in ours if run.load in (STEP.name, LONG_WAVE.name, CROWD.name))
    yield at_most("ours: longest time for which records are late, s", longest, late_at_most(START_SECONDS))
