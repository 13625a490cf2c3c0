"""Cuts in the simulator: whatever a job is at, what it makes of its input behind a cut and before it is what it makes
without one; and machines that cut wrongly on purpose are caught."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from dpa.protocol.coordinator._ledger import Ledger
from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.graph import REDUCER, CheckpointTimes
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.source import SourceMachine
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import MoveTasks
from dpa.protocol.wire.messages.cuts import Pause
from dpa.simulation.cluster import InvariantViolationError, SimulatedCluster
from dpa.simulation.job import behind
from experiments.simulated_jobs.random_graphs import run_random_graph
from experiments.simulated_jobs.random_jobs import random_job, run_random_job


@pytest.mark.parametrize("seed", range(10))
def test_a_graph_goes_on_behind_any_cut(seed: int) -> None:
    run_random_graph(seed, cuts=True)


@pytest.mark.parametrize("mode", [{}, {"migrates": True}, {"placed": True}], ids=lambda mode: next(iter(mode), "merge"))
def test_a_job_whose_tasks_come_and_go_goes_on_behind_any_cut(mode: dict[str, bool]) -> None:
    happened: Counter[str] = Counter()

    def note(cluster: SimulatedCluster) -> None:
        happened[str(cluster.coordinator.states()["cut"])] += 1
        happened["goes on behind a cut"] += any(stage.first is not None for stage in cluster.graph.stages)

    for seed in range(4):
        run_random_job(seed, changes=True, cuts=True, watch=note, **mode)
    assert min(happened.values()) >= 5, happened


@pytest.mark.parametrize("seed", [8, 12])
def test_a_task_that_took_the_place_of_another_keeps_its_keys_where_they_go_by_no_table(seed: int) -> None:
    made = random_job(seed)
    assert not made.job.graph[REDUCER].grouping.is_ring
    graph = replace(made.job.graph, checkpoints=CheckpointTimes(0.003))
    job = replace(made.job, graph=graph, requests=((0.001, MoveTasks(1, REDUCER, (0,))),))
    cluster = SimulatedCluster(job, seed)
    cluster.run()
    assert cluster.checkpoints[-1].operators[REDUCER].table.members[0] != 0, "it has moved"
    for cut in cluster.checkpoints:
        shares = SimulatedCluster(behind(job, cut), seed).run().shares[REDUCER]
        rows = [row for share in shares for row in share.table.to_pylist()]
        assert sorted(len(row["records"]) for row in rows) == sorted(map(len, made.expected.values()))


# --- machines that are broken on purpose


class PausesEarly(SourceMachine):
    """Says that it has paused while it still reads."""

    def _pause(self, sender: Address, message: Pause) -> None:
        super()._pause(sender, message)
        self._pause_now()


class GivesNothingBack(SplitQueue):
    """Forgets what a task that pauses has not read."""

    def pauses(self, task: int, read: int) -> None:
        self._read.pop(task)


class GivesAllBack(SplitQueue):
    """Lets the whole split be read again."""

    def pauses(self, task: int, read: int) -> None:
        super().pauses(task, 0)


class CountsPushedAlone(Emitter):
    """Reports records as emitted when credit lets them go, and not when they are made."""

    @property
    def made(self) -> int:
        return self.emitted


class NeverWaits(Ledger):
    """Takes a stage for settled whatever was emitted to it."""

    @property
    def is_settled(self) -> bool:
        return True


def restored_twice(stage: Any, snapshots: Any, index: int) -> Any:
    """Every task begins with all states."""
    return snapshots, None


@pytest.mark.parametrize(
    ("target", "broken"),
    [
        ("dpa.protocol.machines.SourceMachine", PausesEarly),
        ("dpa.protocol.coordinator.stage_progress.SplitQueue", GivesNothingBack),
        ("dpa.protocol.coordinator.stage_progress.SplitQueue", GivesAllBack),
        ("dpa.protocol.machines.Emitter", CountsPushedAlone),
        ("dpa.protocol.coordinator.stage_progress.Ledger", NeverWaits),
        ("dpa.simulation.cluster.begins_with", restored_twice),
    ],
    ids=lambda given: getattr(given, "__name__", "") if not isinstance(given, str) else given.rpartition(".")[2],
)
def test_what_cuts_wrongly_is_caught(target: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, broken)
    machines = {"source": broken} if broken is PausesEarly else {}
    with pytest.raises(InvariantViolationError):
        for seed in range(8):
            run_random_graph(seed, cuts=True, **machines)
