"""Timers in the simulator: each is called once, behind all that happened before it, whatever comes, goes and dies; and
what calls them wrongly on purpose is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import dpa.protocol.coordinator._watermarks as watermarks
from dpa.execution._object_table import ObjectTable
from dpa.execution.receivers._process import ProcessStates
from experiments.simulated_jobs.random_faults import with_random_faults
from experiments.simulated_jobs.random_timers import random_timers, run_random_timers
from experiments.simulation.violation import InvariantViolationError

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", [1, 2, 26])  # of the last, rows come when timers are due
def test_timers_are_called_once_while_tasks_come_and_go_and_behind_any_cut(seed: int) -> None:
    run_random_timers(seed, changes=True, cuts=True, feeds=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_timers_are_called_once_whatever_dies(seed: int) -> None:
    made = random_timers(seed)
    generations = with_random_faults(made.job, seed)
    made.check(generations.run(1_000_000), generations.history)


def calls_early(patch: pytest.MonkeyPatch) -> None:
    """Takes event time to be further than it is."""
    later = watermarks._later

    def early(stage: Any, low: Any) -> Any:
        return later(stage, None if low is None else replace(low, time=low.time + 10_000_000))

    patch.setattr(watermarks, "_later", early)


def leaves_timers_behind(patch: pytest.MonkeyPatch) -> None:
    """Forgets the timers of states that move."""
    patch.setattr(ProcessStates, "install", ObjectTable.install)
    patch.setattr(ProcessStates, "merge", ObjectTable.install)


def keeps_what_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Leaves a state of None."""
    patch.setattr(ObjectTable, "forget", lambda self, places: None)


def calls_before_rows_of_the_same_time(patch: pytest.MonkeyPatch) -> None:
    """Calls timers that are due where event time is, where rows may still come."""
    close = ProcessStates.close
    patch.setattr(ProcessStates, "close", lambda self, until, key: close(self, until + 1, key))


BROKEN: dict[Patch, int] = {
    calls_early: 2,
    calls_before_rows_of_the_same_time: 48,
    leaves_timers_behind: 1,
    keeps_what_is_forgotten: 1,
}
"""Each with a seed whose job shows it."""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_what_calls_timers_wrongly_is_caught(broken: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(InvariantViolationError):
        run_random_timers(BROKEN[broken], changes=True, cuts=broken is leaves_timers_behind)
