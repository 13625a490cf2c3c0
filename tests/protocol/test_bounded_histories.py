"""What grows in a job without end: nothing but the numbers of tasks and tables."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from endless_job import Measured, endless

from dpa.measure.skew import even_shares
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.metrics import StageSnapshot
from experiments.simulation.cluster import SimulatedCluster

KEPT = 8
"""Changes that are kept, in place of some hundreds."""


def totals(stage: StageSnapshot) -> tuple[Any, ...]:
    tasks = stage.every_task
    return (
        *(sum(getattr(task, name) for task in tasks) for name in ("read", "mapped", "processed", "forwarded")),
        sum(sum(task.emitted) for task in tasks),
        max(task.peak_queue for task in tasks),
        pytest.approx(sum(task.busy_seconds for task in tasks)),
    )


def even_of(stage: StageSnapshot) -> dict[int, Fraction]:
    lives = [stage.life(task.index) for task in stage.tasks]
    processed = sum(task.processed for task in stage.every_task)
    return dict(zip((task.index for task in stage.tasks), even_shares(lives, processed), strict=True))


@pytest.mark.parametrize("history", [False, True])
def test_tasks_that_are_forgotten_change_neither_sums_nor_the_shares_of_others(
    history: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SimulatedCluster(endless(24), 1).run().snapshot
    monkeypatch.setattr("dpa.protocol.coordinator.membership._STEPS_KEPT", KEPT)
    cluster = SimulatedCluster(endless(24), 1)
    cluster.run()
    found = cluster.coordinator.snapshot(history=history)
    assert found.steps == whole.steps[-KEPT:]
    for name in (MAPPER, REDUCER):
        stage, before = found[name], whole[name]
        forgotten = stage.forgotten
        assert forgotten is not None and before.forgotten is None
        assert forgotten.tasks + len(stage.tasks) == len(before.tasks)
        stopped = sum(len(step.stopped) for step in found.steps if step.stage == name)
        assert len(stage.tasks) == len(stage.members) + stopped
        assert totals(stage) == totals(before)
        assert even_of(stage).items() <= even_of(before).items()
        gone = {task.index for task in before.tasks} - {task.index for task in stage.tasks}
        lived = sum(before.life(index).seconds(found.at) for index in gone)
        assert forgotten.seconds == pytest.approx(lived)


BOUNDS = {
    "dpa.protocol.coordinator.membership._STEPS_KEPT": KEPT,
    "dpa.protocol.coordinator._ledger._REFUSALS_KEPT": 8,
    "dpa.protocol.coordinator._ledger._APPLIED_KEPT": 8,
    "dpa.protocol.coordinator._ledger._MAX_SAMPLES": 8,
    "dpa.balance.adaptive._arrivals._MOST_FRESH": 8,
}
"""What is kept of the past in place of hundreds or more, so that a short job gets there."""

SLACK = 1.25
"""Sizes go up and down with what is under way, and numbers get more digits."""


@pytest.mark.parametrize(("mode", "strategy"), [("merge", "halving"), ("migrate", "adaptive")])
def test_neither_machines_nor_messages_grow_with_the_changes_that_there_have_been(
    mode: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in BOUNDS.items():
        monkeypatch.setattr(name, number)
    found = Measured(endless(72, mode, strategy, 288), tuple(range(16, 73, 8))).sizes
    late = {
        **{f"machine of {name}": [one[name] for one in found.machines] for name in found.machines[0]},
        **{f"message {name}": [one.get(name, 0) for one in found.messages] for name in found.messages[0]},
        "snapshot": [size for size, _ in found.snapshots],
        "snapshot with history": [size for _, size in found.snapshots],
    }
    grown = {what: sizes for what, sizes in late.items() if max(sizes[-3:]) > SLACK * max(sizes[:4])}
    assert not grown
