"""What the two assumptions of the model do to its figures: how much clients have under way, and what senders lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from experiments.harness import markdown_table
from experiments.redeploy.cases import DEFAULT, MOVED, case_of, model, of_cycles
from experiments.redeploy.losses import Storm
from experiments.redeploy.outcome import Case
from experiments.redeploy.schemes import RESTART, SINGLE
from experiments.redeploy.virtual import Setup

WINDOWS = (4.0, 7.0, 15.0, 30.0, 1e9)
"""Seconds of the rate that clients have under way; the last one: clients wait for nothing."""

ROWS: Mapping[str, tuple[Case, bool, int]] = {
    "restart workers, 1 task, lost": (case_of(RESTART, 1), False, 155),
    "single tasks, 1 task": (case_of(SINGLE, 1), True, 20),
    "single tasks, 16 tasks": (case_of(SINGLE, MOVED[-1]), True, 118),
    "lazy kill, 16 tasks": (of_cycles(*DEFAULT), True, 84),
}
"""Cases, whether senders hold what is for a process that restarts, and published seconds that lost 60 % (5.2)."""


def by_window(storm: Storm, setup: Setup, seeds: Sequence[int]) -> dict[str, list[float]]:
    """The seconds that lost at least 60 % of throughput, means of the seeds: of each case, for each window."""
    return {
        name: [
            fmean(model(replace(storm, window=window, holds=holds), setup, case, seeds).degraded(0.6))
            for window in WINDOWS
        ]
        for name, (case, holds, _) in ROWS.items()
    }


def shown(windows: Mapping[str, Sequence[float]]) -> str:
    """The table."""
    head = ("seconds that lost 60 %", "published", *(f"{each:g} s" for each in WINDOWS[:-1]), "no limit")
    return markdown_table(
        head, [(name, ROWS[name][2], *(f"{each:.0f}" for each in row)) for name, row in windows.items()]
    )
