"""What the coordinator knows of a running job, and keeps of it in bounded memory."""

from __future__ import annotations

from builders import CoordinatorWire
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.decision import Decision, Outcome
from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.history import LoadHistory
from dpa.protocol.machine import Tick
from dpa.protocol.messages import (
    BALANCER,
    DecisionReport,
)
from dpa.protocol.metrics import ReducerStats


def decision(at: float, outcome: Outcome = Outcome.BELOW_THRESHOLD, epoch: int | None = None) -> Decision:
    return Decision(at, 0, outcome, "why", (1, 0), epoch, 1)


def test_a_snapshot_tells_the_phase_and_the_time_since_the_start() -> None:
    assert (CoordinatorMachine([], 1, 1).snapshot().phase, CoordinatorMachine([], 1, 1).snapshot().at) == (
        "startup",
        0.0,
    )
    coordinator = CoordinatorWire(at=10.0)
    coordinator.coordinator.handle(Tick(), 12.5)
    assert (coordinator.coordinator.snapshot().phase, coordinator.coordinator.snapshot().at) == ("stream", 2.5)


def test_a_job_that_fails_before_its_stream_begins_has_streamed_for_no_time() -> None:
    coordinator = CoordinatorMachine([], 1, 1)
    coordinator.handle(Tick(), 1_000.0)
    coordinator.state = "failed"
    assert coordinator.snapshot().at == 0.0


def test_decisions_are_counted_put_in_order_and_timed_from_the_start_of_the_stream() -> None:
    coordinator = CoordinatorWire(at=10.0)
    coordinator(BALANCER, DecisionReport((decision(11.0), decision(12.0, Outcome.APPLIED, epoch=1))))
    coordinator(BALANCER, DecisionReport((decision(11.5, Outcome.COOL_DOWN),)))
    snapshot = coordinator.coordinator.snapshot()
    assert [(noted.at, noted.outcome.value) for noted in snapshot.decisions] == [
        (1.0, "below_threshold"),
        (1.5, "cool_down"),
        (2.0, "applied"),
    ]
    assert snapshot.decision_counts == {"below_threshold": 1, "cool_down": 1, "applied": 1}
    assert snapshot.epoch == 1
    assert [noted.at for noted in coordinator.coordinator.snapshot(history=False).decisions] == [2.0]


def test_of_very_many_refusals_the_last_are_kept_while_all_are_counted() -> None:
    coordinator = CoordinatorWire()
    coordinator(BALANCER, DecisionReport((decision(0.0, Outcome.APPLIED, epoch=1),)))
    for at in range(1, 3001):
        coordinator(BALANCER, DecisionReport((decision(float(at)),)))
    snapshot = coordinator.coordinator.snapshot()
    assert snapshot.decision_counts == {"applied": 1, "below_threshold": 3000}
    assert [noted.at for noted in snapshot.decisions] == [0.0, *map(float, range(1001, 3001))]


def test_a_snapshot_without_history_stays_small_however_many_tables_there_were() -> None:
    coordinator = CoordinatorWire()
    for at in range(1, 501):
        coordinator(BALANCER, DecisionReport((decision(float(at), Outcome.APPLIED, epoch=at),)))
    recent = coordinator.coordinator.snapshot(history=False)
    assert [noted.at for noted in recent.decisions] == [float(at) for at in range(401, 501)]
    assert recent.decision_counts == {"applied": 500}
    assert len(coordinator.coordinator.snapshot().decisions) == 500


def test_queues_are_sampled_at_every_tick_of_the_stream() -> None:
    coordinator = CoordinatorWire(at=1.0)
    coordinator.reduced(1, 3, queue=9)
    coordinator.coordinator.handle(Tick(), 1.5)
    [sample] = coordinator.coordinator.snapshot().samples
    assert (sample.at, sample.queues, sample.processed) == (0.5, (0, 9), (0, 3))


@given(st.integers(0, 6000))
def test_samples_of_a_long_stream_are_thinned_evenly(number: int) -> None:
    history = LoadHistory()
    for at in range(number):
        history.add(float(at), [ReducerStats(0)])
    times = [sample.at for sample in history.samples]
    assert len(times) <= 1024
    assert times == [float(at) for at in range(0, number, int(times[1]) if len(times) > 1 else 1)]
