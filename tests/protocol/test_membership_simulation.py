"""Tasks that come, go and move while a simulated job runs: no interleaving loses a record or a state, and machines that
are broken on purpose are caught."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from dpa.errors import JobFailedError
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.coordinator.stage_progress import StageProgress
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.rules import State
from dpa.protocol.task.hand_over import Giving
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.events import CancelChange, FailureKind, MoveTasks, Rescale, TaskDied
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.messages.members import Left
from dpa.protocol.wire.metrics import TaskStats
from experiments.simulated_jobs.random_changes import with_random_changes, with_random_death
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedRun
from experiments.simulation.violation import InvariantViolationError

SEEDS, CHUNK = 66, 22

GRAPHS = 22
"""A graph takes as long as four jobs."""

PLACED = 18

DYING = 40


@cache
def run_of(seed: int, migrates: bool) -> SimulatedRun:
    """The run of a seed, for all tests that look at it."""
    return run_random_job(seed, migrates=migrates, changes=True)


def failed(seed: int, violation: InvariantViolationError) -> str:
    return "\n".join([f"seed {seed}: {violation}", *violation.history[-40:]])


@pytest.mark.parametrize("migrates", [False, True])
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_random_jobs_whose_tasks_change_keep_every_invariant(first: int, migrates: bool) -> None:
    for seed in range(first, first + CHUNK):
        try:
            run_of(seed, migrates)
        except InvariantViolationError as violation:
            pytest.fail(failed(seed, violation))


@pytest.mark.parametrize("first", range(0, 2 * GRAPHS, GRAPHS))
def test_random_graphs_whose_tasks_change_keep_every_invariant(first: int) -> None:
    for seed in range(first, first + GRAPHS):
        try:
            run_random_graph(seed, changes=True)
        except InvariantViolationError as violation:
            pytest.fail(failed(seed, violation))


def test_placements_follow_the_load_while_tasks_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.protocol.coordinator._planners._REST_SECONDS", 0.1)
    happened: Counter[str] = Counter()
    for seed in range(PLACED):
        try:
            if seed % 3:
                run = run_random_job(seed, migrates=seed % 3 == 1, changes=seed % 2 == 0, placed=True)
            else:
                run = run_random_graph(seed, changes=seed % 2 == 0, placed=True)
        except InvariantViolationError as violation:
            pytest.fail(failed(seed, violation))
        happened["looked"] += len(run.snapshot.placement_looks)
        happened["moved"] += sum(look.moves for look in run.snapshot.placement_looks)
        happened["not started"] += run.snapshot.placement_counts.get("a task did not start", 0)
    assert happened["looked"] > happened["moved"] >= 10 and happened["not started"], happened


@pytest.mark.parametrize("migrates", [False, True])
def test_a_task_that_dies_ends_the_job_with_an_error_whatever_is_under_way(migrates: bool) -> None:
    died: Counter[str] = Counter()
    for seed in range(DYING):
        job = with_random_death(with_random_changes(random_job(seed, migrates=migrates).job, seed), seed)
        [(_, victim)] = job.deaths
        cluster = SimulatedCluster(job, seed)
        try:
            cluster.run()
            died["too late, or was not there"] += 1
            continue
        except InvariantViolationError as violation:
            pytest.fail(failed(seed, violation))
        except JobFailedError as error:
            assert str(error) == f"{victim} died: the simulated job has it die now"
        told = [event for _, receiver, event in cluster.log if receiver == COORDINATOR and isinstance(event, TaskDied)]
        assert [(event.address, event.kind) for event in told] == [(victim, FailureKind.DIED)]
        asked = [event.request for _, _, event in cluster.log if isinstance(event, Rescale | MoveTasks | CancelChange)]
        assert cluster.answers.keys() == set(asked), "who asks learns what became of it"
        died[victim.stage] += 1
        died["during a change"] += any(answer.text == "the job has failed" for answer in cluster.answers.values())
    assert died[MAPPER] >= 5 and died[REDUCER] >= 5 and died["during a change"] >= 3, died


@pytest.mark.parametrize("migrates", [False, True])
def test_tasks_really_change_in_the_random_jobs(migrates: bool) -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS + 2):
        run = run_of(seed, migrates)
        for step in run.snapshot.steps:
            kind = "moved" if step.moved else "grown" if step.started else "shrunk"
            happened[f"{step.stage} {kind}"] += 1
        texts = [answer.text for answer in run.answers.values()]
        happened["refused"] += any(answer.refused for answer in run.answers.values())
        happened["cancelled"] += any("is cancelled" in text for text in texts)
        happened["too late to cancel"] += any("too late" in text for text in texts)
        happened["over"] += any("nothing was changed: reducer has processed all" in text for text in texts)
    for kind in ("moved", "grown", "shrunk"):
        assert happened[f"mapper {kind}"] >= 2 and happened[f"reducer {kind}"] >= 5, happened
    assert happened["refused"] and happened["cancelled"] >= 2 and happened["over"] >= 2, happened
    assert happened["too late to cancel"] or migrates, happened  # the coordinator does not look at the mode


# --- machines that are broken on purpose


class EndsWhileTasksChange(StageProgress):
    """Does not wait for tasks that leave."""

    is_changing = False  # type: ignore[assignment]


class WaitsForTasksThatNeverCameUp(Membership):
    """Leaves a stage that has nothing left to process open until its new tasks are up."""

    def _cancel_if_over(self) -> None:
        pass


class StopsAtOnce(Membership):
    """Stops tasks as soon as the table without them is published."""

    def _publish(self) -> State:
        following = super()._publish()
        self._awaited.clear()
        return following


class ForgetsWhatLeft(StageProgress):
    """Does not count what tasks that have left had processed."""

    def left(self, message: Left) -> None:
        self.roster.note(TaskStats(self.name, message.stats.index), 0.0)

    def _noted(self, sender: Address, message: Progress) -> None:
        if sender.index in self.roster.members or message.done:
            super()._noted(sender, message)


class WaitsForNoMarker(Giving):
    """Takes it that nobody sends anything any more."""

    def begin(self, receivers: Iterable[int], senders: Iterable[Address]) -> None:
        super().begin(receivers, ())


PROGRESS = "dpa.protocol.coordinator.machine.StageProgress"
GIVING = "dpa.protocol.task.hand_over.Giving"
BROKEN: dict[str, tuple[str, Any, str]] = {
    "ends while tasks change": (
        PROGRESS,
        EndsWhileTasksChange,
        "cannot be done while|cannot take a|before|while it had records|wrong result",
    ),
    "waits for tasks that never came up": (
        "dpa.protocol.coordinator.machine.Membership",
        WaitsForTasksThatNeverCameUp,
        "was open for tasks that were not up",
    ),
    "stops tasks at once": (
        "dpa.protocol.coordinator.machine.Membership",
        StopsAtOnce,
        "cannot take a Left|was stopped before|was stopped while|while it had records",
    ),
    "forgets what left": (PROGRESS, ForgetsWhatLeft, "did not end|were lost|were emitted"),
    "waits for no marker": (GIVING, WaitsForNoMarker, "was stopped before|cannot take a|still wait at"),
}
"""What a machine does wrong: the name that it replaces; its class; the finding."""

MOST, ENOUGH_STEPS = 150, 60_000

FIRST = (1, 22, 23, 45, 65)
"""Those that catch them, to begin with."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_machine_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, broken, expected = BROKEN[name]
    monkeypatch.setattr(where, broken)
    for seed in (*FIRST, *range(MOST)):
        try:
            run_random_job(seed, ENOUGH_STEPS, migrates=seed % 2 == 1, changes=True)
        except InvariantViolationError as error:
            assert re.search(expected, str(error)), error
            assert error.history
            return
    pytest.fail(f"{MOST} random jobs have not caught it")
