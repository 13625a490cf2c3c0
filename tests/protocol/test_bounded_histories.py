"""What grows in a job without end: nothing but the numbers of tasks and tables."""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from dpa.balance.options import BY_STRATEGY
from dpa.execution.mapping import MapTask
from dpa.executors import Reducer
from dpa.measure.lives import even_shares
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.history.recording import Segment
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import MoveTasks, Redistribute, Rescale, TaskRequest
from dpa.protocol.wire.metrics import StageSnapshot
from dpa.simulation.cluster import SimulatedCluster
from dpa.simulation.job import Network, SimulatedJob, SimulatedRun, map_reduce_job
from dpa.sources.splits import memory_splits

PACE = 0.02
"""Virtual seconds from one change to the next."""

KEPT = 8
"""Changes that are kept, in place of a thousand."""


class SumAlone(Reducer[int, int]):
    """Its states do not grow with the records."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        return state + value

    def finish(self, state: int) -> dict[str, Any]:
        return {"sum": state}


class Sum(SumAlone):
    """The same of a key that may have several states."""

    def merge(self, left: int, right: int) -> int:
        return left + right


def endless(changes: int, mode: str = "merge", strategy: str = "halving", redistributions: int = 0) -> SimulatedJob:
    """A job of two mappers and three reducers whose tasks come, move and go again, eight changes a round."""
    rows = int(3000 * (changes * PACE + 0.3))
    table = pa.table({"key": [f"key {row * row % 997 % 40}" for row in range(rows)], "number": list(range(rows))})
    job = map_reduce_job(
        memory_splits(table, 100),
        MapTask(None, "key", ("number",), Sum() if mode == "merge" else SumAlone(), False, 0, 10, 1.0),
        mappers=2,
        reducers=3,
        map_seconds=0.001,
        service_seconds=lambda index: 0.0006,
        network=Network(0.0001, 0.0005, duplicates=0.05),
        ticks=None,
        tick_seconds=0.05,
        balance=BY_STRATEGY[strategy](),
        consistency=mode,
        drain_seconds=0.001,
    )
    there = {MAPPER: [0, 1], REDUCER: [0, 1, 2]}
    following = {MAPPER: 2, REDUCER: 3}
    requests: list[tuple[float, TaskRequest | Redistribute]] = []
    for number in range(changes):
        stage = (REDUCER, MAPPER)[number // 2 % 2]
        request: TaskRequest
        if number % 2:  # the one that is there for longest moves
            request = MoveTasks(number, stage, (there[stage].pop(0),))
        elif number % 8 < 4:
            request = Rescale(number, stage, len(there[stage]) + 1)
        else:  # the newest goes
            there[stage].pop()
            request = Rescale(number, stage, len(there[stage]))
        if number % 2 or number % 8 < 4:
            there[stage].append(following[stage])
            following[stage] += 1
        requests.append((0.02 + number * PACE, request))
    every = changes * PACE / max(redistributions, 1)
    requests += [(0.025 + number * every, Redistribute(REDUCER, 0)) for number in range(redistributions)]
    return replace(job, requests=tuple(requests))


@dataclass
class Sizes:
    """Bytes, of what is pickled, at the moments when a job had carried out so many changes.

    Attributes:
        machines: the coordinator, the load balancer, and the largest task of each stage.
        messages: the largest of each kind since the last moment.
        snapshots: without and with their history.
    """

    machines: list[dict[str, int]] = field(default_factory=list)
    messages: list[dict[str, int]] = field(default_factory=list)
    snapshots: list[tuple[int, int]] = field(default_factory=list)


def size_of(thing: Any) -> int:
    return len(pickle.dumps(thing, protocol=5))


class Measured:
    """A run that is measured after so many changes."""

    def __init__(self, job: SimulatedJob, moments: tuple[int, ...], seed: int = 1) -> None:
        self.sizes = Sizes()
        self.cluster = SimulatedCluster(job, seed, watch=self._look)
        self._left = list(moments)
        self._messages_from = 0
        self.run: SimulatedRun = self.cluster.run(10_000_000)
        refused = [answer.text for answer in self.run.answers.values() if answer.refused]
        assert not self._left and not refused

    def _look(self, cluster: SimulatedCluster) -> None:
        if self._left and len(cluster.answers) >= self._left[0]:
            self._left.pop(0)
            self._measure()

    def _measure(self) -> None:
        machines: dict[str, int] = defaultdict(int)
        for address in (COORDINATOR, BALANCER, *self.cluster.coordinator.present):
            segment = Segment.begin(self.cluster.machines[address])
            shared = sum(map(size_of, segment.shared))
            machines[address.stage] = max(machines[address.stage], len(segment.pickled) + shared)
        messages: dict[str, int] = defaultdict(int)
        for _, _, event in self.cluster.log[self._messages_from :]:
            if isinstance(event, Envelope):
                kind = type(event.message).__name__
                messages[kind] = max(messages[kind], size_of(event))
        self._messages_from = len(self.cluster.log)
        coordinator = self.cluster.coordinator
        self.sizes.machines.append(dict(machines))
        self.sizes.messages.append(dict(messages))
        self.sizes.snapshots.append((size_of(coordinator.snapshot(history=False)), size_of(coordinator.snapshot())))


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


def test_tasks_that_are_forgotten_change_neither_sums_nor_the_shares_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SimulatedCluster(endless(24), 1).run().snapshot
    monkeypatch.setattr("dpa.protocol.coordinator.membership._STEPS_KEPT", KEPT)
    found = SimulatedCluster(endless(24), 1).run().snapshot
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
    "dpa.protocol.coordinator.decisions._REFUSALS_KEPT": 8,
    "dpa.protocol.coordinator.decisions._APPLIED_KEPT": 8,
    "dpa.protocol.coordinator.load_history._MAX_SAMPLES": 8,
    "dpa.balance.adaptive.arrivals._MOST_FRESH": 8,
}
"""What is kept of the past in place of a thousand or more, so that a short job gets there."""

SLACK = 1.25
"""Sizes go up and down with what is under way, and numbers get more digits."""


@pytest.mark.parametrize(("mode", "strategy"), [("merge", "halving"), ("migrate", "adaptive")])
def test_neither_machines_nor_messages_grow_with_the_changes_that_there_have_been(
    mode: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in BOUNDS.items():
        monkeypatch.setattr(name, number)
    found = Measured(endless(96, mode, strategy, 300), tuple(range(16, 97, 8))).sizes
    late = {
        **{f"machine of {name}": [one[name] for one in found.machines] for name in found.machines[0]},
        **{f"message {name}": [one.get(name, 0) for one in found.messages] for name in found.messages[0]},
        "snapshot": [size for size, _ in found.snapshots],
        "snapshot with history": [size for _, size in found.snapshots],
    }
    grown = {what: sizes for what, sizes in late.items() if max(sizes[-3:]) > SLACK * max(sizes[:4])}
    assert not grown
