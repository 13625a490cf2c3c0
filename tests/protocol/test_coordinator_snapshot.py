"""What the coordinator knows of a running job, and keeps of it in bounded memory."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from wires import CoordinatorWire, instructed, last_table, mapper, reducer

from dpa.balance.decision import Decision, Outcome
from dpa.measure.load import MeasuredKey, Traffic
from dpa.protocol.coordinator._ledger import LoadHistory
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import MAPPER, REDUCER, map_reduce
from dpa.protocol.wire.addresses import BALANCER
from dpa.protocol.wire.events import FailureKind, Start, TaskDied, Tick
from dpa.protocol.wire.instructions import JobFailed
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.messages.tables import DecisionReport
from dpa.protocol.wire.metrics import StageSnapshot, TaskStats
from dpa.protocol.wire.use import TaskUse


def decision(at: float, outcome: Outcome = Outcome.BELOW_THRESHOLD, version: int | None = None) -> Decision:
    return Decision(at, 0, outcome, "why", (1, 0), version, 1)


def decided(coordinator: CoordinatorWire, *decisions: Decision) -> None:
    coordinator(BALANCER, DecisionReport("reducer", decisions))


def last(coordinator: CoordinatorWire, *, history: bool = True) -> StageSnapshot:
    return coordinator.coordinator.snapshot(history=history)[REDUCER]


def test_a_snapshot_has_the_phase_and_the_time_since_the_stream_began() -> None:
    before = CoordinatorMachine(map_reduce((), 1, 1)).snapshot()
    assert (before.phase, before.at) == ("startup", 0.0)
    coordinator = CoordinatorWire(at=10.0)
    coordinator.coordinator.handle(Tick(), 12.5)
    snapshot = coordinator.coordinator.snapshot()
    assert (snapshot.phase, snapshot.at) == ("stream", 2.5)


def test_a_snapshot_has_the_stages_in_order_and_the_edges_by_name() -> None:
    coordinator = CoordinatorWire()
    coordinator.mapped(1, 5)
    snapshot = coordinator.coordinator.snapshot()
    assert [(stage.name, stage.phase, len(stage.tasks)) for stage in snapshot.stages] == [
        ("mapper", "streaming", 2),
        ("reducer", "streaming", 2),
    ]
    assert snapshot.edges == (("mapper", "reducer"),)
    assert [task.emitted for task in snapshot[MAPPER].tasks] == [(), (5,)]


def test_what_tasks_sent_each_other_is_part_of_the_history_of_their_use() -> None:
    coordinator = CoordinatorWire()
    for seconds in (1.0, 2.0):
        used = TaskUse("n1", cpu_seconds=seconds, sent={reducer(0): Traffic(1, 5, 100)})
        coordinator(mapper(0), Progress(TaskStats(MAPPER, 0), use=used))
        coordinator(mapper(0), Progress(TaskStats(MAPPER, 0)))
    assert coordinator.coordinator.snapshot().use == {mapper(0): used}
    assert coordinator.coordinator.snapshot(history=False).use == {mapper(0): replace(used, sent={})}


def test_a_job_that_fails_before_its_stream_begins_has_streamed_for_no_time() -> None:
    coordinator = CoordinatorMachine(map_reduce((), 1, 1))
    coordinator.handle(Start(), 999.0)
    assert instructed(coordinator.handle(TaskDied(reducer(), FailureKind.DIED, "why"), 1_000.0), JobFailed)
    assert (coordinator.snapshot().phase, coordinator.snapshot().at) == ("failed", 0.0)


def test_all_records_are_processed_before_the_result_is_merged() -> None:
    coordinator = CoordinatorWire()
    for index in (0, 1):
        coordinator.progress(mapper(index), emitted=(3,), done=True)
    assert (coordinator.coordinator.snapshot().phase, last(coordinator).phase) == ("stream", "draining")
    coordinator.reduced(0, 6)
    assert (coordinator.coordinator.snapshot().phase, last(coordinator).phase) == ("merge", "freezing")


def test_a_stage_began_with_its_first_record_and_ended_with_its_last() -> None:
    coordinator = CoordinatorWire(at=10.0)
    spans = []
    coordinator.progress(mapper(0), now=10.5)
    coordinator.progress(mapper(0), now=11.0, read=2, emitted=(3,))
    coordinator.progress(reducer(0), now=12.0, queue=3)
    spans += [(stage.began, stage.ended) for stage in coordinator.coordinator.snapshot(history=False).stages]
    coordinator.progress(reducer(0), now=13.0, processed=1)
    coordinator.progress(mapper(0), now=14.0, read=2, emitted=(3,), done=True)
    coordinator.progress(mapper(1), now=15.0, done=True)
    coordinator.progress(reducer(0), now=16.0, processed=3)
    spans += [(stage.began, stage.ended) for stage in coordinator.coordinator.snapshot().stages]
    assert spans == [(1.0, None), (None, None), (1.0, 5.0), (3.0, 6.0)]


def test_the_initial_load_is_known_once_all_shares_are_finished() -> None:
    coordinator = CoordinatorWire()
    for index in (0, 1):
        coordinator.progress(mapper(index), emitted=(3,), done=True)
    coordinator.reduced(0, 6)
    coordinator(BALANCER, last_table("reducer", 0))
    assert last(coordinator).initial_load == ()
    coordinator.finished(reducer(1), 2, initial_load=(1, 1))
    assert last(coordinator).initial_load == ()
    coordinator.finished(reducer(0), 4, initial_load=(4, 0))
    assert last(coordinator).initial_load == (5, 1)


def test_decisions_are_counted_put_in_order_and_timed_from_the_start_of_the_stream() -> None:
    coordinator = CoordinatorWire(at=10.0)
    decided(coordinator, decision(11.0), decision(12.0, Outcome.APPLIED, version=1))
    decided(coordinator, decision(11.5, Outcome.COOL_DOWN))
    snapshot = last(coordinator)
    assert [(noted.at, noted.outcome.value) for noted in snapshot.decisions] == [
        (1.0, "below_threshold"),
        (1.5, "cool_down"),
        (2.0, "applied"),
    ]
    assert snapshot.decision_counts == {"below_threshold": 1, "cool_down": 1, "applied": 1}
    assert snapshot.version == 1
    recent = last(coordinator, history=False).decisions
    assert [(noted.at, noted.reason) for noted in recent] == [(1.0, "why"), (1.5, "why"), (2.0, "why")]
    assert [noted.load_of for noted in recent] == [{}, {}, {0: 1, 1: 0}]  # of many tasks, loads would be long


def test_a_snapshot_has_the_hot_keys_that_the_load_balancer_reported_last() -> None:
    coordinator = CoordinatorWire()
    assert last(coordinator).hottest is None
    for keys in ((), (MeasuredKey("'a'", 0.5, 0.4, 0.6, task=1, split=True),)):
        coordinator(BALANCER, DecisionReport("reducer", (), keys))
        assert last(coordinator, history=False).hottest == keys


def test_of_very_many_refusals_the_last_are_kept_while_all_are_counted() -> None:
    coordinator = CoordinatorWire()
    decided(coordinator, decision(0.0, Outcome.APPLIED, version=1))
    for at in range(1, 3001):
        decided(coordinator, decision(float(at)))
    snapshot = last(coordinator)
    assert snapshot.decision_counts == {"applied": 1, "below_threshold": 3000}
    assert [noted.at for noted in snapshot.decisions] == [0.0, *map(float, range(1001, 3001))]
    recent = last(coordinator, history=False).decisions
    assert [noted.at for noted in recent] == [0.0, *map(float, range(2981, 3001))]


def test_a_snapshot_without_history_stays_small_however_many_tables_there_were() -> None:
    coordinator = CoordinatorWire()
    for at in range(1, 501):
        decided(coordinator, decision(float(at), Outcome.APPLIED, version=at))
    recent = last(coordinator, history=False)
    assert [noted.at for noted in recent.decisions] == [float(at) for at in range(401, 501)]
    assert recent.decision_counts == {"applied": 500}
    assert len(last(coordinator).decisions) == 500


def test_queues_are_sampled_at_every_tick_of_the_stream() -> None:
    coordinator = CoordinatorWire(at=1.0)
    coordinator.reduced(1, 3, queue=9)
    coordinator.coordinator.handle(Tick(), 1.5)
    [sample] = last(coordinator).samples
    assert (sample.at, sample.queues, sample.processed) == (0.5, (0, 9), (0, 3))


def test_a_task_that_left_keeps_what_it_had_processed_in_later_samples() -> None:
    history = LoadHistory()
    tasks = {index: TaskStats("reducer", index, processed=10 + index) for index in range(3)}
    for at, up in enumerate(((0, 1), (0, 1, 2), (0, 1))):
        history.add(float(at), [tasks[index] for index in up])
    assert [sample.processed for sample in history.samples(tasks)] == [(10, 11, 0), (10, 11, 12), (10, 11, 12)]


@given(st.integers(0, 6000))
def test_samples_of_a_long_stream_are_thinned_evenly(number: int) -> None:
    history = LoadHistory()
    for at in range(number):
        history.add(float(at), [TaskStats("reducer", 0)])
    times = [sample.at for sample in history.samples({0: TaskStats("reducer", 0)})]
    assert len(times) <= 1024
    assert times == [float(at) for at in range(0, number, int(times[1]) if len(times) > 1 else 1)]
