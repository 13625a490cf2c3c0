"""Timers in the simulator: each is called once, behind all that happened before it, whatever comes, goes and dies; and
what calls them wrongly on purpose is caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import dpa.protocol.coordinator._watermarks as watermarks
from experiments.simulated_jobs.random_faults import with_random_faults
from experiments.simulated_jobs.random_timers import random_timers, run_random_timers
from experiments.simulation.violation import InvariantViolationError


@pytest.mark.parametrize("seed", [1, 2, 26])  # of the last, rows come when timers are due
def test_timers_are_called_once_while_tasks_come_and_go_and_behind_any_cut(seed: int) -> None:
    run_random_timers(seed, changes=True, cuts=True, feeds=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_timers_are_called_once_whatever_dies(seed: int) -> None:
    made = random_timers(seed)
    generations = with_random_faults(made.job, seed)
    made.check(generations.run(1_000_000), generations.history)


def test_what_calls_timers_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes event time to be further than it is."""
    later = watermarks._later

    def early(stage: Any, low: Any) -> Any:
        return later(stage, None if low is None else replace(low, time=low.time + 10_000_000))

    monkeypatch.setattr(watermarks, "_later", early)
    with pytest.raises(InvariantViolationError):
        run_random_timers(2, changes=True)
