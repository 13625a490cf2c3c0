"""Windows in the simulator: each has its records and is given once, whatever comes and goes, and behind any cut; and
machines that close them wrongly on purpose are caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import dpa.protocol.coordinator._watermarks as watermarks
from dpa.execution.receivers._sessions import SessionStates
from dpa.execution.reduce_task import ReduceTask
from dpa.protocol.balancer.machine import StageBalance
from dpa.protocol.graph import CheckpointTimes, Stage
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.wire.events import Rescale
from dpa.windows.options import Windows
from experiments.interleavings_faults import run as run_with_random_faults
from experiments.simulated_jobs.random_windows import random_windows, run_random_windows
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import behind
from experiments.simulation.violation import InvariantViolationError

Patch = Callable[[pytest.MonkeyPatch], None]


# of 37 and 142, rows come where windows end; 38 has rows of earlier splits that nobody has read
@pytest.mark.parametrize("seed", [0, 1, 5, 37, 38, 142])
def test_windows_have_their_records(seed: int) -> None:
    run_random_windows(seed)


@pytest.mark.parametrize("seed", [1, 5, 30292])  # there a task is stopped that never took that it may go on
def test_windows_have_their_records_while_tasks_come_and_go_and_behind_any_cut(seed: int) -> None:
    run_random_windows(seed, changes=True, cuts=True, feeds=True)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_rows_of_closed_windows_are_published_once_in_the_epoch_that_closes_them(seed: int) -> None:
    run_random_windows(seed, feeds=True, finals=True)


# of 19, 24 and 41, a cut begins at the end of another; of 369, a task hears late of an earlier cut
@pytest.mark.parametrize("seed", [1, 2, 19, 24, 41, 369])
def test_so_they_are_while_tasks_come_and_go_and_behind_any_cut(seed: int) -> None:
    run_random_windows(seed, changes=True, cuts=True, feeds=True, finals=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_windows_have_their_records_whatever_dies(seed: int) -> None:
    run_with_random_faults(seed, windows=True)


# --- closed wrongly on purpose


def closes_early(patch: pytest.MonkeyPatch) -> None:
    """Takes windows for final that still get records."""
    later = watermarks._later

    def early(stage: Any, low: Any) -> Any:
        return later(stage, None if low is None else replace(low, time=low.time + 10_000_000))

    patch.setattr(watermarks, "_later", early)


def closes_sessions_at_their_ends(patch: pytest.MonkeyPatch) -> None:
    """Closes what a row of the watermark's own time still joins."""
    patch.setattr(Windows, "past_end_us", 0)
    close = SessionStates.close
    patch.setattr(SessionStates, "close", lambda self, until, key: close(self, until + 1, key))


BROKEN: dict[Patch, int] = {
    closes_sessions_at_their_ends: 37,
    closes_early: 1,
}
"""Each with a seed whose job shows it."""


def publishes_again(patch: pytest.MonkeyPatch) -> None:
    """Keeps the rows that it has published."""
    published = ReduceTask.published

    def keeping(self: ReduceTask, epoch: int, output: int) -> Any:
        kept = [*self._kept]
        rows = published(self, epoch, output)
        self._kept = kept
        return rows

    patch.setattr(ReduceTask, "published", keeping)


def test_who_publishes_closed_windows_wrongly_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    publishes_again(monkeypatch)
    with pytest.raises(InvariantViolationError, match="publish"):
        run_random_windows(0, feeds=True, finals=True)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_who_closes_windows_wrongly_is_caught(broken: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(InvariantViolationError):
        run_random_windows(BROKEN[broken])


def test_a_task_that_comes_and_takes_what_is_late_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = StageBalance._tell
    monkeypatch.setattr(StageBalance, "_tell", lambda self, task, table, closed=None: tell(self, task, table))
    job = random_windows(12).job
    requests = tuple((0.03 * turn, Rescale(turn, "first", job.graph["first"].tasks + turn)) for turn in (1, 2, 3))
    with pytest.raises(InvariantViolationError, match="judges by None"):
        SimulatedCluster(replace(job, requests=requests), 12).run()


class Forgets(OperatorMachine):
    """Begins behind a cut as if no window had been closed."""

    def __init__(self, address: Any, emitters: Any, stage: Stage, *given: Any) -> None:
        super().__init__(address, emitters, replace(stage, reached=replace(stage.reached, closed=None)), *given)


def test_a_task_that_takes_what_is_late_behind_a_cut_is_caught() -> None:
    job = random_windows(12).job
    job = replace(job, graph=replace(job.graph, checkpoints=CheckpointTimes(0.01)))
    cluster = SimulatedCluster(job, 12)
    cluster.run()
    cut = next(cut for cut in cluster.checkpoints if cut.operators["first"].reached.closed is not None)
    again = behind(job, cut)
    assert again.graph["first"].reached == cut.operators["first"].reached
    with pytest.raises(InvariantViolationError, match="judges by None"):
        SimulatedCluster(again, 12, operator=Forgets).run()
