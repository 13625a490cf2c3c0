"""Jobs with faults in the simulator: whatever dies when, results are those of the model; and machines, or a store, that
are broken on purpose are caught."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from dpa.checkpoints._chain import Chain
from dpa.errors import JobFailedError
from dpa.execution._object_table import ObjectTable
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.snapshots import TaskSaving
from dpa.protocol.checkpointing import Checkpointing
from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.coordinator.cuts import Cuts
from dpa.protocol.recovery import RecoveryOptions
from dpa.protocol.rules import RuledMachine
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.channel import Inbox
from experiments.interleavings_faults import run
from experiments.simulated_jobs.generations import Fault, Faults, SimulatedGenerations
from experiments.simulated_jobs.meetings import KILL, PAIRS, Meetings
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulated_jobs.random_windows import run_random_windows
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.violation import InvariantViolationError

MADE = random_job(0)


def generations(faults: Faults, seed: int = 0, **options: Any) -> SimulatedGenerations:
    job = MADE.job
    return SimulatedGenerations(lambda number, graph: replace(job, graph=graph), job.graph, seed, faults, **options)


def test_a_job_survives_kills_at_any_step() -> None:
    cluster = SimulatedCluster(MADE.job, 0)
    cluster.run()
    kinds, deaths = ("source", "operator", BALANCER.stage, COORDINATOR.stage), 0
    for turn, step in enumerate(range(0, cluster.steps, cluster.steps // 40)):
        world = generations(Faults((Fault(step, kinds[turn % 4], turn),)), turn)
        MADE.check(world.run(), world.history)
        deaths += world.counts["deaths"]
    assert deaths > 30


def test_a_job_that_bears_no_death_fails_with_the_first_and_says_why() -> None:
    world = generations(Faults((Fault(40, "operator"),)), recovery=RecoveryOptions(attempts=0))
    with pytest.raises(JobFailedError, match=r"^reducer 0 died: it was killed$"):
        world.run()


def test_runs_with_faults_reach_what_they_are_to() -> None:
    meetings, counts = Meetings(), Counter[str]()
    for seed in SOUND:
        counts += run(seed, watch=meetings.watch, died=meetings.died).counts
    assert counts["generations that began behind a checkpoint"] > 8, counts
    assert counts["generations that found their checkpoints taken over"] > 3, counts
    assert counts["messages of dead generations"] > 50, counts
    assert all(meetings.of[pair] for pair in PAIRS if KILL not in pair), meetings.of
    assert sum(meetings.of[pair] for pair in PAIRS if KILL in pair) > 5, meetings.of


# --- machines, and a store, that are broken on purpose


BROKEN: dict[str, tuple[Any, str, str, str, int]] = {
    "a cut one record late": (SplitQueue, "pauses", "(task, read)", "(task, read + 1)", 5),
    "a state written twice": (TaskSaving, "_keep", "self._dumps(", "2 * self._dumps(", 5),
    "a state that has changed left out": (ObjectTable, "add", "self._changed[places] = True", "pass", 11),
    "rows restored by every task": (ReduceTask, "restore", "if found.rows and (", "if found.rows and (True or ", 23),
    "a stale generation accepted": (Inbox, "accept", "envelope.generation < self._generation or ", "", 4),
    "a claim ignored": (
        Chain,
        "_put",
        "if there is None or there.claimant != self._claimant:\n        return None",
        "if there.claimant != self._claimant:\n        self._files.content[self._path(slot.number)] = slot.encode()\n"
        "        return slot",
        1,
    ),
    "a snapshot before all is processed": (Cuts, "_drained", " and of.ledger.is_settled", "", 5),
    "rows that were read before forgotten": (Checkpointing, "write", "self._read + cut.read", "cut.read", 15),
}
"""What does it, and which text of which method is replaced by which; a seed that unmasks it."""

SOUND = (1, 3, 4, 5, 11, 15, 17, 19, 23, 29, 34, 105, 231, 246)
"""Seeds each of which unmasks a fault in what a cut has, in what is written and restored of it, or in who may write."""

RARE: dict[str, Callable[[], object]] = {
    "states are left where no grouping looks for them": partial(run_random_job, 12, changes=True, cuts=True),
    "epochs begin at zero behind a checkpoint": partial(run, 0, windows=True),
    "published rows are counted from zero behind a checkpoint": partial(run, 5, windows=True),
    "rounds are allowed again behind a checkpoint": partial(run_random_job, 33, cuts=True),
    "closed windows open again with more lateness": partial(run_random_windows, 0, cuts=True, feeds=True),
}
"""Runs that unmask what random faults show seldom, or never: the first only where tasks of a grouping without table
change, and a cut follows, which is drawn there."""


@pytest.mark.parametrize("fault", RARE)
def test_what_random_faults_show_seldom_does_not_happen(fault: str) -> None:
    RARE[fault]()


@pytest.mark.parametrize("fault", BROKEN)
def test_what_is_broken_is_caught(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    of, name, right, wrong, seed = BROKEN[fault]
    target = getattr(of, name)
    source = textwrap.dedent(inspect.getsource(target))
    assert right in source, f"{name} has no {right!r} to break"
    made: dict[str, Any] = {}
    exec(f"from __future__ import annotations\n{source.replace(right, wrong)}", vars(sys.modules[of.__module__]), made)
    monkeypatch.setattr(of, name, made[name])
    if issubclass(of, RuledMachine):  # its rules know their handlers
        for known in ("_by_event", "_by_state"):
            monkeypatch.setattr(of, known, getattr(of, known))
        of.__init_subclass__()
    with pytest.raises(InvariantViolationError):
        run(seed)
