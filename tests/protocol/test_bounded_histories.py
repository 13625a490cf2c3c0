"""What grows in a job without end, whose tasks come, move and go: nothing but the numbers of tasks and tables."""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from builders import Total
from wires import job_of

from dpa.balance.options import BY_STRATEGY
from dpa.executors import Reducer
from dpa.measure.skew import even_shares
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.history.recording import Segment
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import MoveTasks, Redistribute, Rescale, TaskRequest
from dpa.protocol.wire.metrics import StageSnapshot
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network, SimulatedJob

PACE = 0.02
"""Virtual seconds from one change to the next."""


class TotalAlone(Total):
    """A sum without a merge."""

    merge = Reducer.merge


def endless(changes: int, mode: str = "merge", strategy: str = "halving", redistributions: int = 0) -> SimulatedJob:
    """A job of two mappers and three reducers whose tasks come, move and go again, eight changes a round."""
    rows = int(3000 * (changes * PACE + 0.3))
    job = job_of(
        [f"key {row * row % 997 % 40}" for row in range(rows)],
        100,
        10,
        Total() if mode == "merge" else TotalAlone(),
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
        at = 0.02 + number * PACE
        requests.append((at, request))
        asked = redistributions // changes
        requests += [(at + PACE * part / asked, Redistribute(REDUCER, there[REDUCER][0])) for part in range(asked)]
    return replace(job, requests=tuple(requests))


def size_of(thing: Any) -> int:
    """Bytes, when it is pickled."""
    return len(pickle.dumps(thing, protocol=5))


def sizes_of(cluster: SimulatedCluster, messages_from: int) -> dict[str, int]:
    """The coordinator, the load balancer, the largest task of each stage, the largest of each kind of message since one
    of them, and snapshots."""
    sizes: dict[str, int] = defaultdict(int)
    for address in (COORDINATOR, BALANCER, *cluster.coordinator.present):
        segment = Segment.begin(cluster.machines[address])
        size = len(segment.pickled) + sum(map(size_of, segment.shared))
        sizes[f"machine of {address.stage}"] = max(sizes[f"machine of {address.stage}"], size)
    for _, _, event in cluster.log[messages_from:]:
        if isinstance(event, Envelope):
            kind = f"message {type(event.message).__name__}"
            sizes[kind] = max(sizes[kind], size_of(event))
    sizes["snapshot"] = size_of(cluster.coordinator.snapshot(history=False))
    sizes["snapshot with history"] = size_of(cluster.coordinator.snapshot())
    return sizes


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
    found: list[dict[str, int]] = []
    looked_at = 0
    moments = [*range(16, 73, 8)]

    def look(cluster: SimulatedCluster) -> None:
        nonlocal looked_at
        if moments and len(cluster.answers) >= moments[0]:
            moments.pop(0)
            found.append(sizes_of(cluster, looked_at))
            looked_at = len(cluster.log)

    answers = SimulatedCluster(endless(72, mode, strategy, 288), 1, watch=look).run(10_000_000).answers
    assert not moments and not any(answer.refused for answer in answers.values())
    late = {what: [sizes.get(what, 0) for sizes in found] for what in found[0]}
    grown = {what: sizes for what, sizes in late.items() if max(sizes[-3:]) > SLACK * max(sizes[:4])}
    assert not grown
