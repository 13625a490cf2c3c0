"""What is kept of the use of tasks that are gone: sums by stage."""

from __future__ import annotations

import pytest
from wires import mapper, reducer

from dpa.driver.summary import traffic_between
from dpa.measure.load import Traffic, TrafficMeter
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.wire.addresses import Address, Present
from dpa.protocol.wire.metrics import Forgotten, Snapshot, StageSnapshot, TaskStats
from dpa.protocol.wire.use import EARLIER, TaskUse, forget_receivers, with_sums

USE = {
    mapper(0): TaskUse("a", 5, 1.0, {reducer(0): Traffic(1, 10, 100), reducer(2): Traffic(2, 20, 200)}),
    mapper(1): TaskUse("b", 7, 2.0, {reducer(0): Traffic(4, 40, 400)}),
    mapper(2): TaskUse("a", 6, 4.0, {reducer(2): Traffic(8, 80, 800)}),
}


def test_what_forgotten_tasks_used_is_that_of_one() -> None:
    found = with_sums(with_sums(USE, {mapper(1), mapper(2)}), {mapper(2)})
    assert found == {
        mapper(2): USE[mapper(2)],
        Address(MAPPER, EARLIER): TaskUse("", 7, 3.0, {Address(REDUCER, EARLIER): Traffic(7, 70, 700)}),
    }
    assert with_sums(USE, USE) == USE


def test_the_traffic_of_forgotten_tasks_is_in_the_sums_alone() -> None:
    def stage(name: str, forgotten: int, *tasks: int) -> StageSnapshot:
        stats = tuple(TaskStats(name, index) for index in tasks)
        return StageSnapshot(name, "done", stats, forgotten=Forgotten(forgotten, TaskStats(name, 0)))

    use = {**with_sums(USE, {mapper(2)}), reducer(2): TaskUse()}
    snapshot = Snapshot("done", 1.0, 0, (stage(MAPPER, 2, 2), stage(REDUCER, 2, 2)))
    [traffic] = traffic_between(use, snapshot)
    assert (traffic.messages, traffic.records, traffic.bytes, traffic.pairs) == (15, 150, 1_500, ((800,),))


def test_the_traffic_has_a_row_for_each_task_that_there_is_or_was_whatever_its_number() -> None:
    use = {mapper(1_000): TaskUse("a", 1, 1.0, {reducer(0): Traffic(1, 10, 100)}), reducer(0): TaskUse()}
    stages = (
        StageSnapshot(MAPPER, "done", (TaskStats(MAPPER, 1_000),)),
        StageSnapshot(REDUCER, "done", (TaskStats(REDUCER, 0),)),
    )
    [traffic] = traffic_between(use, Snapshot("done", 1.0, 0, stages))
    assert traffic.pairs == ((100,),)


def test_receivers_that_are_gone_are_counted_one_by_one_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.protocol.wire.use._GONE_KEPT", 2)
    meter: TrafficMeter[Address] = TrafficMeter()
    for index in range(6):
        meter.sent(reducer(index), 1, 10)
    for _ in range(2):
        forget_receivers(meter, Present(REDUCER, (4,), 5))
    kept = {reducer(index): Traffic(1, 1, 10) for index in (2, 3, 4, 5)}
    assert meter.found() == {Address(REDUCER, EARLIER): Traffic(2, 2, 20), **kept}
