"""Jobs with faults in the simulator: whatever dies when, results are those of the model; and machines, or a store, that
are broken on purpose are caught."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any

import pytest

from dpa.checkpoints._chain import Chain
from dpa.errors import JobFailedError
from dpa.execution._object_table import ObjectTable
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.snapshots import TaskSaving
from dpa.protocol.balancer.machine import BalanceState, StageBalance
from dpa.protocol.checkpointing import Archive, Checkpointing
from dpa.protocol.coordinator._split_queue import SplitQueue
from dpa.protocol.coordinator.cuts import Cuts
from dpa.protocol.recovery import Recoveries, RecoveryOptions
from dpa.protocol.rules import RuledMachine, State
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.channel import Inbox
from dpa.protocol.wire.messages.cuts import Thaw
from dpa.protocol.wire.messages.end import Freeze
from experiments.interleavings_faults import run
from experiments.simulated_jobs._files import SimulatedFiles
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


def die_too_often(seed: int) -> None:
    """A job that bears no death fails with the first, and says why."""
    world = generations(Faults((Fault(40, "operator"),)), seed, recovery=RecoveryOptions(attempts=0))
    try:
        world.run()
    except JobFailedError as error:
        assert str(error) == "reducer 0 died: it was killed"
        return
    raise InvariantViolationError("the job went on")


def test_a_job_that_bears_no_death_fails_with_the_first_and_says_why() -> None:
    die_too_often(0)


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


class WritesFilesLast(SimulatedFiles):
    """Puts a manifest before the files that it names."""

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        stream = BytesIO()
        yield stream
        vars(self).setdefault("later", []).append((path, stream.getvalue()))

    def put(self, path: str, data: bytes, tag: str | None = None, draft: str | None = None) -> str | None:
        new = super().put(path, data, tag, draft)
        for name, content in vars(self).pop("later", []):
            with super().writing(name) as stream:
                stream.write(content)
        return new


class AnswersAtOnce(StageBalance):
    """Names the last table while states move by it."""

    has_answered = False

    def _freeze_settled(self, sender: Address, message: Freeze) -> State:
        self._end()
        self.has_answered = True
        return BalanceState.FREEZING

    def _end(self) -> State:
        return BalanceState.FROZEN if self.has_answered else super()._end()

    def _thaw(self, sender: Address, message: Thaw) -> State:
        self.has_answered = False
        return super()._thaw(sender, message)


BROKEN: dict[str, tuple[Any, str, str, str, int]] = {
    "a cut one record late": (SplitQueue, "pauses", "(task, read)", "(task, read + 1)", 5),
    "a cut one record early": (SplitQueue, "pauses", "(task, read)", "(task, max(0, read - 1))", 5),
    "the rest of a split given twice": (SplitQueue, "rest", "in sorted(", "in 2 * sorted(", 5),
    "a state written twice": (TaskSaving, "_keep", "self._dumps(", "2 * self._dumps(", 5),
    "a state as it is when it is written": (ObjectTable, "add", "self._take(places)", "pass", 19),
    "a state that has changed left out": (ObjectTable, "add", "self._changed[places] = True", "pass", 11),
    "a key that is gone comes back": (
        ObjectTable,
        "_remove",
        "[*self._removed, *removed] if few else None",
        "self._removed",
        105,
    ),
    "an increment of a checkpoint that failed taken for written": (
        Archive,
        "start_saving",
        "self._parts if slot == self._slot + 1 and not self._is_long() else ()",
        "tuple(part for part in self._parts if part.file.number < slot)",
        246,
    ),
    "a state that could not be written, and is left out": (
        Checkpointing,
        "write",
        "in stage.snapshots.items()",
        "in stage.snapshots.items() if not isinstance(snapshot, str)",
        17,
    ),
    "states for tasks that come while records flow": (
        Checkpointing,
        "beginning",
        "if is_first else ()",
        "",
        34,
    ),
    "rows restored by every task": (ReduceTask, "restore", "if found.rows and (", "if found.rows and (True or ", 23),
    "a stale generation accepted": (
        Inbox,
        "accept",
        "envelope.generation < self._generation or ",
        "",
        4,
    ),
    "a doubled message counted": (
        Inbox,
        "accept",
        "is_old = envelope.generation < self._generation or seq < expected",
        "is_old = envelope.generation < self._generation\n    if seq < expected:\n        return (envelope.message,)",
        3,
    ),
    "a claim ignored": (
        Chain,
        "_put",
        "if there is None or there.claimant != self._claimant:\n        return None",
        "if there.claimant != self._claimant:\n        self._files.content[self._path(slot.number)] = slot.encode()\n"
        "        return slot",
        1,
    ),
    "a claim that forgets the checkpoint": (
        Chain,
        "claim",
        "back_to or newest.checkpoint",
        "None",
        5,
    ),
    "sources that go on before the mark": (
        Cuts,
        "is_holding",
        ", CutState.TAKING_SNAPSHOTS)",
        ")",
        5,
    ),
    "a snapshot before all is processed": (
        Cuts,
        "_drained",
        " and of.ledger.is_settled",
        "",
        5,
    ),
    "a checkpoint while states are on their way": ("dpa.protocol.balancer.machine", "StageBalance", "", "", 1),
    "a table other than the states' owners": (
        "dpa.protocol.checkpointing",
        "begins_with",
        "stage.first_table()",
        "stage.ring_table()",
        231,
    ),
    "states left where no grouping looks for them": (
        "dpa.protocol.restore",
        "_with_table",
        "scattered=table.version > 0",
        "scattered=False",
        12,
    ),
    "rows that were read before forgotten": (Checkpointing, "write", "self._read + cut.read", "cut.read", 15),
    "a job begun again for ever": (Recoveries, "after", "> self.options.attempts", "> 100", 0),
    "epochs numbered from zero behind a checkpoint": (Checkpointing, "__init__", "epoch=cut.epoch, ", "", 0),
    "published rows counted from zero behind a checkpoint": (
        "dpa.protocol.checkpointing",
        "continued",
        ", published=operator.published",
        "",
        5,
    ),
    "rounds allowed again behind a checkpoint": (
        "dpa.protocol.restore",
        "_with_table",
        "cut.rounds.get(member, 0)",
        "0",
        33,
    ),
    "closed windows open again with more lateness": (
        "dpa.protocol.coordinator._watermarks",
        "_later",
        "if closed is None else max(closed, watermark - windows.lateness)",
        "",
        0,
    ),
    "a manifest before its files": ("experiments.simulated_jobs.generations", "SimulatedFiles", "", "", 29),
}
"""What does it, and which text of which method is replaced by which; a seed that unmasks it."""

RUNS: dict[str, Callable[[int], object]] = {
    "states left where no grouping looks for them": partial(run_random_job, changes=True, cuts=True),
    "a job begun again for ever": die_too_often,
    "epochs numbered from zero behind a checkpoint": partial(run, windows=True),
    "published rows counted from zero behind a checkpoint": partial(run, windows=True),
    "rounds allowed again behind a checkpoint": partial(run_random_job, cuts=True),
    "closed windows open again with more lateness": partial(run_random_windows, cuts=True, feeds=True),
}
"""How those are run that random faults show seldom, or never: the first only where tasks of a grouping without table
change, and a cut follows, which is drawn there."""

SOUND = sorted({seed for fault, (*_, seed) in BROKEN.items() if fault not in RUNS})


def break_it(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    of, name, right, wrong, _ = BROKEN[fault]
    if not right:
        monkeypatch.setattr(f"{of}.{name}", {"SimulatedFiles": WritesFilesLast, "StageBalance": AnswersAtOnce}[name])
        return
    target = getattr(sys.modules[of] if isinstance(of, str) else of, name)
    is_property = isinstance(target, property)
    source = textwrap.dedent(inspect.getsource(target.fget if is_property else target)).replace("@property\n", "")
    assert right in source, f"{name} has no {right!r} to break"
    made: dict[str, Any] = {}
    module = sys.modules[(target.fget if is_property else target).__module__]
    exec(f"from __future__ import annotations\n{source.replace(right, wrong)}", vars(module), made)
    broken = property(made[name]) if is_property else made[name]
    monkeypatch.setattr(sys.modules[of] if isinstance(of, str) else of, name, broken)
    if isinstance(of, type) and issubclass(of, RuledMachine):  # its rules know their handlers
        for known in ("_by_event", "_by_state"):
            monkeypatch.setattr(of, known, getattr(of, known))
        of.__init_subclass__()


@pytest.mark.parametrize("fault", BROKEN)
def test_what_is_broken_is_caught(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    break_it(monkeypatch, fault)
    with pytest.raises(InvariantViolationError):
        RUNS.get(fault, run)(BROKEN[fault][-1])
