"""Where the time goes from the reading of a row until readers see it: each phase of an epoch, in exact seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from wires import (
    IN_CUT,
    INPUT,
    CoordinatorWire,
    SourceWire,
    emitter_for,
    instructed,
    job_of,
    last_table,
    reducer,
    sent,
    table_giving,
)

from dpa.balance.options import NoBalancingOptions
from dpa.measure.timing import Waited
from dpa.protocol.graph import MAPPER, REDUCER, CheckpointTimes, Publishing
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.epochs import EpochPhase, EpochStats, EpochWait, OpenEpoch, PhaseStats
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten, Committed, StepDone, Tick
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.messages.cuts import Pause, Paused, SnapshotTaken, SnapshotWritten
from dpa.protocol.wire.messages.exchange import Published
from dpa.protocol.wire.metrics import CheckpointTry, TaskStats
from experiments.simulated_jobs.map_reduce import map_reduce
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import Network


class Coordinator(CoordinatorWire):
    """The coordinator of two mappers and two reducers, whose stream begins at 10 s; results are due every two seconds,
    checkpoints, if there are any, every `checkpoint_every`."""

    def __init__(self, checkpoint_every: float | None = None, **options: Any) -> None:
        graph = map_reduce(INPUT, 2, 2, publishing=(Publishing(2.0, **options),))
        if checkpoint_every is not None:
            graph = replace(graph, checkpoints=CheckpointTimes(checkpoint_every))
        super().__init__(10.0, graph)
        self.records = 0

    def begin(self, now: float) -> None:
        """A cut begins, as a tick finds it due when another record has been processed."""
        self.records += 1
        found = self.progress(reducer(0), processed=self.records, now=now)
        assert sent([*found, *self.coordinator.handle(Tick(), now)], Pause)

    def paused(self, index: int, waited: Waited, now: float) -> None:
        stats = TaskStats(MAPPER, index, emitted=(0 if index else self.records + 1,))
        self(Address(MAPPER, index), Paused(stats, waited), now)

    def quiet(self, now: float) -> None:
        """All that was emitted is processed."""
        self.records += 1
        self.progress(reducer(0), processed=self.records, now=now)

    def frozen(self, now: float) -> None:
        self(BALANCER, last_table(REDUCER, 0), now)

    def published(self, index: int, epoch: int, now: float) -> list[Commit]:
        return instructed(self(reducer(index), Published(epoch, {0: "file"}, states=0, seconds=0.0), now), Commit)

    def committed(self, epoch: int, now: float) -> None:
        self.coordinator.handle(Committed(REDUCER, epoch), now)

    def snapshots(self, now: float) -> None:
        for index in range(2):
            self(reducer(index), SnapshotTaken(TaskStats(REDUCER, index, processed=index == 0 and self.records)), now)
        for index in range(2):
            self(reducer(index), SnapshotWritten(0), now)

    def reach(self, began: float, waited: Waited, seconds: float = 0.0) -> None:
        """A cut until tables are frozen; each of its phases takes so long, and each mapper's rows have waited."""
        self.begin(began)
        for index in range(2):
            self.paused(index, waited, began)
        self.quiet(began + seconds)
        self.frozen(began + 2 * seconds)

    @property
    def epochs(self) -> EpochStats:
        return self.coordinator.snapshot().epochs

    @property
    def of_rows(self) -> dict[str, float]:
        """Seconds of a row by phase."""
        return {found.phase.value: self.epochs.of_row(found) for found in self.epochs.phases if found.row_seconds}


def test_each_phase_of_an_epoch_has_its_seconds_and_its_rows() -> None:
    coordinator = Coordinator()
    assert coordinator.coordinator.snapshot().epoch == OpenEpoch(1, 0.0)
    coordinator.begin(12.5)
    assert coordinator.coordinator.snapshot().epoch == OpenEpoch(1, 0.0)
    coordinator.paused(0, Waited(rows=4, seconds=5.0, longest=2.0), 12.75)
    coordinator.paused(1, Waited(), 13.0)
    coordinator.quiet(13.25)
    coordinator.frozen(13.75)
    coordinator.published(0, 1, 14.0)
    assert coordinator.published(1, 1, 14.75)
    assert coordinator.epochs.visible_after is None, "nobody has seen them yet"
    assert coordinator.coordinator.snapshot().epoch == OpenEpoch(2, 4.75)
    coordinator.committed(1, 15.0)
    assert coordinator.coordinator.snapshot().epoch == OpenEpoch(2, 4.75, committed=1, commit_seconds=0.25)
    late = 4 * 0.5 * (1 - 0.5 / (2 * 2.5))  # of rows that came evenly in 2.5 s
    assert coordinator.epochs.phases == (
        PhaseStats(EpochPhase.WAITING, 1, 2.0, 2.0, pytest.approx(5.0 - 4 * 0.25 - late)),
        PhaseStats(EpochPhase.LATE, 1, 0.5, 0.5, pytest.approx(late)),
        PhaseStats(EpochPhase.SOURCES, 1, 0.5, 0.5, 4 * 0.5),
        PhaseStats(EpochPhase.QUEUES, 1, 0.25, 0.25, 4 * 0.25),
        PhaseStats(EpochPhase.TABLES, 1, 0.5, 0.5, 4 * 0.5),
        PhaseStats(EpochPhase.RESULTS, 1, 1.0, 1.0, 4 * 1.0),
        PhaseStats(EpochPhase.COMMIT, 1, 0.25, 0.25, 4 * 0.25),
    )
    read_at = 12.75 - 5.0 / 4
    assert coordinator.epochs.rows == 4
    assert coordinator.epochs.visible_after == pytest.approx(15.0 - read_at)
    assert coordinator.epochs.waited_for == EpochWait("reducer 1", "published its share", 0.75)


def test_a_row_that_came_when_the_epoch_was_due_already_makes_it_no_later() -> None:
    coordinator = Coordinator()
    coordinator.reach(20.0, Waited(1, 0.25, 0.25))  # due at 12 s, but for 8 s nothing came
    for index in range(2):
        coordinator.published(index, 1, 20.0)
    coordinator.committed(1, 20.0)
    late = next(found for found in coordinator.epochs.phases if found.phase is EpochPhase.LATE)
    assert late.longest == 0.25


def test_longest_and_mean_are_of_epochs_and_a_row_counts_in_proportion() -> None:
    coordinator = Coordinator()
    for epoch, rows, began, seconds in ((1, 30, 12.0, 1.0), (2, 10, 16.0, 3.0)):
        coordinator.reach(began, Waited(rows // 2, 0.0, 0.0))
        for index in range(2):
            coordinator.published(index, epoch, began + seconds)
        coordinator.committed(epoch, began + seconds)
    [results] = [found for found in coordinator.epochs.phases if found.phase is EpochPhase.RESULTS]
    assert (results.number, results.mean, results.longest) == (2, 2.0, 3.0)
    assert coordinator.epochs.of_row(results) == (30 * 1.0 + 10 * 3.0) / 40


def cut(coordinator: Coordinator, epoch: int, began: float, waited: Waited) -> None:
    """A cut until its snapshots are taken, each phase of which takes a second: results wait for the checkpoint."""
    coordinator.reach(began, waited, 1.0)
    for index in range(2):
        assert not coordinator.published(index, epoch, began + 3)
    coordinator.snapshots(began + 4)


def test_results_that_wait_for_a_checkpoint_wait_for_its_snapshots_and_until_it_is_written() -> None:
    coordinator = Coordinator(5.0, with_checkpoints=True)
    cut(coordinator, 1, 15.0, Waited(1, 3.0, 4.0))
    coordinator.coordinator.handle(CheckpointWritten(1, 1), 19.5)
    coordinator.committed(1, 19.75)
    phases = ("waiting", "queues", "tables", "results", "snapshots", "checkpoint", "commit")
    assert coordinator.of_rows == dict(zip(phases, (3.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.25), strict=True))
    assert coordinator.epochs.visible_after == 19.75 - 12.0


def test_where_a_checkpoint_fails_rows_wait_until_another_is_written() -> None:
    coordinator = Coordinator(5.0, with_checkpoints=True)
    cut(coordinator, 1, 15.0, Waited(1, 3.0, 4.0))
    coordinator.coordinator.handle(CheckpointFailed("the disk is full", 1), 20.0)
    cut(coordinator, 2, 25.0, Waited(1, 0.0, 0.0))
    coordinator.coordinator.handle(CheckpointWritten(2, 700), 30.0)
    tries = (CheckpointTry(0, 5.0, 5.0, error="the disk is full"), CheckpointTry(1, 15.0, 5.0, 700))
    assert coordinator.coordinator.snapshot(history=False).checkpoint_tries == tries
    for epoch in (1, 2):
        coordinator.committed(epoch, 30.0)
    assert coordinator.epochs.rows == 4
    assert coordinator.epochs.visible_after == pytest.approx(((30.0 - 12.0) + (30.0 - 25.0)) / 2)
    [checkpoints] = [found for found in coordinator.epochs.phases if found.phase is EpochPhase.CHECKPOINT]
    assert (checkpoints.number, checkpoints.seconds) == (2, 1.0 + 1.0)
    assert checkpoints.row_seconds == 2 * (30.0 - 19.0) + 2 * (30.0 - 29.0)


def test_rows_before_a_checkpoint_that_publishes_nothing_wait_for_the_next_epoch() -> None:
    coordinator = Coordinator(1.0)
    coordinator.reach(11.0, Waited(1, 0.5, 0.5))
    coordinator.snapshots(11.5)
    coordinator.coordinator.handle(CheckpointWritten(1, 1), 11.5)
    assert coordinator.epochs.rows == 0
    coordinator.reach(12.0, Waited(1, 0.25, 0.25))
    for index in range(2):
        coordinator.published(index, 2, 12.0)
    coordinator.committed(2, 13.0)
    assert coordinator.epochs.rows == 4
    assert coordinator.of_rows == {"waiting": (1.5 + 0.25) / 2, "commit": 1.0}


def test_a_source_says_how_long_its_rows_have_waited_when_it_pauses() -> None:
    source = SourceWire(emitter_for(table_giving({"a": 0}), credit=100))  # the first step begins at 0 s
    source.stepped("aaa", read=3, now=2.0)
    source.stepped("a", read=1, now=3.0)
    source(COORDINATOR, Pause(), 3.5)
    [(_, paused)] = sent(source.exhausted(now=4.0), Paused)
    assert paused.waited == Waited(rows=4, seconds=3 * 4.0 + 1 * 2.0, longest=4.0)


def test_in_virtual_time_the_phases_add_up_to_what_rows_have_waited() -> None:
    """The log of all events says when each step of reading began, and when readers saw which epoch."""
    job = job_of(
        [f"k{row % 7}" for row in range(600)],
        20,
        5,
        mappers=2,
        reducers=2,
        map_seconds=0.01,
        service_seconds=lambda index: 0.004,
        network=Network(0.003, 0.003),
        ticks=None,
        tick_seconds=0.05,
        publishing=(Publishing(0.25),),
        balance=NoBalancingOptions(),
    )
    cluster = SimulatedCluster(replace(job, variation=0.0), seed=3)
    found = cluster.run().snapshot.epochs
    read: list[tuple[int, float]] = []
    seconds = rows = 0.0
    paused: list[tuple[int, float]] = []
    for at, address, event in cluster.log:
        if isinstance(event, StepDone) and event.step is not None and address.stage == MAPPER:
            read.append((event.step.read, at - event.seconds))
        if isinstance(event, Envelope) and isinstance(event.message, Paused):
            paused = [*read]  # of the last one: nobody reads until the cut is over
        if isinstance(event, Committed):
            seconds += sum(rows * (at - began) for rows, began in paused)
            rows += sum(rows for rows, _ in paused)
            read, paused = read[len(paused) :], []
    assert found.number > 5 and found.rows == rows
    on_its_way = 0.003  # what a source says of its rows is as of when it said so
    assert found.visible_after == pytest.approx(seconds / rows - on_its_way)
    assert sum(phase.seconds for phase in found.phases if phase.phase in IN_CUT) == pytest.approx(found.seconds)
