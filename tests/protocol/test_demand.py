"""What is offered to each stage of a graph, as its tasks report, and when that decides anything."""

from __future__ import annotations

from typing import cast

import pytest
from wires import INPUT, CoordinatorWire, last_table

from dpa.balance.elastic import ElasticOptions
from dpa.protocol.coordinator._demand import TrueRates
from dpa.protocol.coordinator._planners import Planners
from dpa.protocol.coordinator.membership import Membership
from dpa.protocol.graph import Edge, Graph, Stage, StageInput
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import TaskRequest

READ, SUMS, LAST = Address("read"), Address("sums"), Address("last")


class Seen:
    """A source, a stage that makes a record of all that have a key, and one that takes these."""

    def __init__(self, elastic: ElasticOptions | None = None) -> None:
        stages = (Stage("read", 1, StageInput(INPUT)), Stage("sums", 1, elastic=elastic), Stage("last", 1))
        self.wire = CoordinatorWire(graph=Graph(stages, (Edge("read", "sums"), Edge("sums", "last"))))
        self.demand = TrueRates(self.wire.graph, self.wire.coordinator.stages)

    def offered(self, stage: str, now: float) -> float:
        return self.demand.look(now)[stage].offered


def test_a_stage_is_offered_what_one_that_feeds_it_makes_of_what_is_offered_to_that() -> None:
    seen = Seen()
    seen.wire.progress(READ, emitted=(1_000,), mapped=1_000, supply=500.0)
    seen.wire.progress(SUMS, processed=1_000, ready_seconds=1.0, emitted=(250,))
    found = seen.demand.look(2.0)
    assert found["sums"].offered == pytest.approx(500)
    assert found["last"].offered == pytest.approx(125)


def test_of_a_stage_that_emits_its_result_counts_what_it_makes_of_that_alone() -> None:
    """What it made of the records that it took, none, says nothing of the rows of its result; nor does the rate at
    which it took them bound that at which it reads these."""
    seen = Seen()
    seen.wire.progress(READ, emitted=(10_000,), mapped=10_000, supply=500.0, done=True)
    seen.wire.progress(SUMS, processed=9_000, ready_seconds=900.0, emitted=(0,))
    assert seen.offered("last", 100.0) == 0.0
    seen.wire.progress(SUMS, processed=10_000, ready_seconds=1_000.0, emitted=(0,))
    seen.wire(BALANCER, last_table("sums", 0))
    seen.wire.finished(SUMS, 10_000)
    assert not seen.wire.coordinator.stages["sums"].is_running
    seen.wire.progress(SUMS, processed=10_000, ready_seconds=1_000.0, emitted=(40,), mapped=40, supply=80.0)
    assert seen.offered("last", 101.0) == pytest.approx(80)


class Idle:
    """The changes of tasks, of which none is under way at times."""

    def __init__(self) -> None:
        self.is_idle = True
        self.asked: list[TaskRequest] = []

    def ask(self, request: TaskRequest) -> None:
        self.asked.append(request)


def test_one_look_after_a_change_of_another_stage_decides_nothing() -> None:
    seen, changes = Seen(ElasticOptions(seconds=2.0)), Idle()
    planners = Planners(seen.wire.graph, seen.wire.coordinator.stages)
    asked: list[float] = []
    for number in range(30):
        now = number / 2
        seen.wire.progress(READ, emitted=(round(400 * now),), supply=400.0, now=now)
        seen.wire.progress(SUMS, processed=round(100 * now), ready_seconds=now, emitted=(0,), now=now)
        changes.is_idle = not 1.5 < now < 8
        planners.tick(now, 0.0, cast(Membership, changes))
        asked += [now] * len(changes.asked)
    assert asked[0] == 10.5


def test_the_time_of_a_change_of_another_stage_is_none_in_which_a_stage_was_behind() -> None:
    seen, changes = Seen(ElasticOptions(backlog_seconds=10.0)), Idle()
    planners = Planners(seen.wire.graph, seen.wire.coordinator.stages)
    for number in range(65):
        now = number / 2
        seen.wire.progress(READ, emitted=(round(50 * now) + 900,), supply=50.0, now=now)
        processed = round(50 * now)
        seen.wire.progress(SUMS, processed=processed, queue=900, ready_seconds=now / 2, emitted=(0,), now=now)
        changes.is_idle = now < 2.5 or now >= 30
        planners.tick(now, 0.0, cast(Membership, changes))
    assert changes.asked == []
