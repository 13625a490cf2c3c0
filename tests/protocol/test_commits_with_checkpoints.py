"""Results of epochs: when one ends, what the coordinator waits for, and what is committed with which checkpoint."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from wires import INPUT, CoordinatorWire, instructed, last_table, reducer, sent

from dpa.errors import ProtocolError
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import MAPPER, REDUCER, CheckpointTimes, Edge, Graph, Publishing, Stage, StageInput
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.epochs import EpochWait
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten, Committed, Tick
from dpa.protocol.wire.instructions import Commit, Instruction
from dpa.protocol.wire.messages.cuts import GoOn, Pause, Paused, SnapshotTaken, SnapshotWritten, Thaw
from dpa.protocol.wire.messages.end import Freeze
from dpa.protocol.wire.messages.exchange import BeginExchange, Published
from dpa.protocol.wire.metrics import AggregationStats, TaskStats
from dpa.protocol.wire.snapshots import WriteCheckpoint
from experiments.simulated_jobs.map_reduce import map_reduce


class Coordinator(CoordinatorWire):
    """Of two mappers and two reducers, whose stream begins at `at`; with a checkpoint every `checkpoints` seconds."""

    def __init__(
        self, *outputs: Publishing, at: float = 0.0, checkpoints: float | None = 10.0, published: int = 0, **times: Any
    ) -> None:
        """By default results are published every second, with checkpoints; `times` are more of those."""
        self.outputs = outputs or (Publishing(1.0, with_checkpoints=True),)
        graph = map_reduce(INPUT, 2, 2, publishing=self.outputs, published=published)
        if checkpoints is not None:
            graph = replace(graph, checkpoints=CheckpointTimes(checkpoints, **times))
        super().__init__(at, graph)
        self.records = 0

    def tick(self, now: float, *, records: int = 1) -> list[Address]:
        """Whom a tick has pause, when that many more records were emitted and processed."""
        self.records += records
        reported = self.progress(reducer(0), processed=self.records, now=now)
        return [to for to, _ in sent([*reported, *self.coordinator.handle(Tick(), now)], Pause)]

    def quiet(self, now: float) -> list[tuple[Address, BeginExchange]]:
        """All that mappers have emitted is processed; whom the table then has publish."""
        found = []
        for index, emitted in enumerate((self.records, 0)):
            found += self(Address(MAPPER, index), Paused(TaskStats(MAPPER, index, emitted=(emitted,))), now)
        assert [to for to, _ in sent(found, Freeze)] == [BALANCER]
        return sent(self(BALANCER, last_table(REDUCER, 3), now), BeginExchange)

    def published(self, index: int, epoch: int = 1, now: float = 0.0, *, sees: bool = True) -> list[Instruction]:
        """A reducer has published its share; readers see it at once if nobody else's is missing."""
        found = self(reducer(index), Published(epoch, {0: f"{epoch}.{index}"}, states=2, seconds=0.5), now)
        for commit in instructed(found, Commit) if sees else ():
            found += self.coordinator.handle(Committed(commit.stage, commit.epoch), now)
        return found

    def checkpoint(self, epoch: int, now: float) -> list[Instruction]:
        """One is due: all is staged and marked; what the coordinator has its driver do then."""
        assert self.tick(now)
        assert [message.epoch for _, message in self.quiet(now)] == [epoch, epoch]
        done = []
        for index in range(2):
            staged = {number: f"{epoch}.{index}" + " exact" * number for number in range(len(self.outputs))}
            done += self(reducer(index), Published(epoch, staged, states=0, seconds=0.0, rows=3), now)
        for index in range(2):
            done += self(reducer(index), SnapshotTaken(TaskStats(REDUCER, index, processed=0)), now)
        for index in range(2):
            done += self(reducer(index), SnapshotWritten(None), now)
        return done

    def written(self, slot: int, now: float) -> list[Instruction]:
        return self.coordinator.handle(CheckpointWritten(slot, 1), now)

    @property
    def aggregation(self) -> AggregationStats | None:
        return self.coordinator.snapshot()[REDUCER].aggregation


def named(instructions: list[Instruction]) -> list[tuple[int, tuple[Any, ...]]]:
    """What the checkpoint that is to be written says is staged."""
    [write] = instructed(instructions, WriteCheckpoint)
    return [(commit.epoch, commit.staged) for commit in write.snapshot.staged]


def commits(instructions: list[Instruction]) -> list[int]:
    return [commit.epoch for commit in instructed(instructions, Commit)]


FIRST, SECOND = (1, ("1.0", "1.1")), (2, ("2.0", "2.1"))


def test_what_is_staged_is_committed_once_the_checkpoint_is_written_that_names_it() -> None:
    coordinator = Coordinator()
    assert coordinator.tick(5.0) == [], "results wait for checkpoints"
    done = coordinator.checkpoint(1, 10.0)
    assert named(done) == [FIRST] and commits(done) == []
    assert commits(coordinator.written(1, 11.0)) == [1]
    coordinator.coordinator.handle(Committed(REDUCER, 1), 12.0)
    assert coordinator.coordinator.cuts.staged == {}
    done = coordinator.checkpoint(2, 21.0)
    assert named(done) == [SECOND]


def test_the_rows_that_were_published_are_counted_also_those_before_the_checkpoint_with_which_a_job_begins() -> None:
    coordinator = Coordinator(published=100)
    [write] = instructed(coordinator.checkpoint(1, 10.0), WriteCheckpoint)
    assert write.snapshot.operators[REDUCER].published == 106
    assert coordinator.aggregation is not None and coordinator.aggregation.rows == 106


def test_a_checkpoint_names_what_those_before_have_not_brought_to_readers() -> None:
    coordinator = Coordinator()
    coordinator.checkpoint(1, 10.0)
    assert commits(coordinator.coordinator.handle(CheckpointFailed("the disk is full", 1), 11.0)) == []
    done = coordinator.checkpoint(2, 21.0)
    assert named(done) == [FIRST, SECOND] and commits(done) == []
    assert commits(coordinator.written(2, 22.0)) == [1, 2]


def test_what_the_newest_checkpoint_names_is_committed_before_anything_else() -> None:
    pending = (Commit(REDUCER, 4, 3.0, ("4.0",)), Commit(REDUCER, 6, 5.0, ("6.0",)))
    coordinator = Coordinator(epoch=6, staged=pending)
    assert commits(coordinator.began) == [4, 6]
    coordinator.coordinator.handle(Committed(REDUCER, 4), 1.0)
    done = coordinator.checkpoint(7, 10.0)
    assert named(done) == [(6, ("6.0",)), (7, ("7.0", "7.1"))]
    assert commits(coordinator.written(1, 11.0)) == [7], "the other is on its way"


def test_what_no_checkpoint_names_is_left_for_the_end() -> None:
    coordinator = Coordinator()
    coordinator.checkpoint(1, 10.0)
    assert coordinator.coordinator.cuts.staged == {(REDUCER, 0): FIRST[1]}


def test_rows_that_come_once_are_published_with_each_checkpoint_too_which_names_them() -> None:
    """Or a job that begins behind it would take what it had not given to readers yet for given."""
    coordinator = Coordinator(Publishing(100.0, once=True))
    done = coordinator.checkpoint(1, 10.0)
    assert named(done) == [FIRST] and commits(done) == [1], "which waits for no checkpoint"
    coordinator.written(1, 11.0)
    assert coordinator.tick(30.0) == [], "no checkpoint comes before readers have what the last one names"
    assert sent(coordinator.coordinator.handle(Committed(REDUCER, 1), 31.0), Pause)


def test_a_table_that_is_published_whole_is_named_in_no_checkpoint() -> None:
    coordinator = Coordinator(Publishing(1.0))
    done = coordinator.checkpoint(1, 10.0)
    assert named(done) == [] and commits(done) == [1]
    assert coordinator.coordinator.handle(Committed(REDUCER, 1), 10.5) == [], "while the checkpoint is written"
    assert coordinator.coordinator.cuts.staged == {} and commits(coordinator.written(1, 11.0)) == []


def test_a_stage_that_has_just_processed_all_publishes_with_the_checkpoint_too() -> None:
    """Its states go with the checkpoint, so who begins with it takes their rows for published."""
    exact = Publishing(1.0, with_checkpoints=True)
    stages = [Stage(name, 1, StageInput((INPUT[0], INPUT[1]))) for name in ("one", "two")]
    stages += [Stage("first", 1, publishing=(exact,)), Stage("second", 1, publishing=(exact,))]
    graph = Graph(tuple(stages), (Edge("one", "first"), Edge("two", "second")), checkpoints=CheckpointTimes(10.0))
    coordinator = CoordinatorWire(graph=graph)
    one, two, first, second = map(Address, ("one", "two", "first", "second"))
    coordinator.progress(one, emitted=(5,), done=True, now=8.0)
    coordinator.progress(two, emitted=(1,), now=9.0)
    done = coordinator.progress(first, processed=5, now=11.0)
    assert [to for to, _ in sent(done, Pause)] == [two]
    coordinator(two, Paused(TaskStats("two", 0, emitted=(1,))), 12.0)
    coordinator.progress(second, processed=1, now=12.0)
    done = [each for name in ("first", "second") for each in coordinator(BALANCER, last_table(name, 0), 13.0)]
    assert {to for to, _ in sent(done, BeginExchange)} == {first, second}


def test_of_one_stage_an_output_is_committed_at_once_and_another_with_a_checkpoint() -> None:
    coordinator = Coordinator(Publishing(1.0), Publishing(1.0, with_checkpoints=True))
    assert len(coordinator.tick(2.0)) == 2, "the first is due"
    assert [message.publishes for _, message in coordinator.quiet(2.0)] == [(0,), (0,)]
    done = [coordinator.published(index, now=2.0, sees=False) for index in (0, 1)]
    [commit] = instructed(done[1], Commit)
    assert (commit.output, commit.staged) == (0, ("1.0", "1.1"))
    coordinator.coordinator.handle(Committed(REDUCER, 1, 0), 2.5)
    done = coordinator.checkpoint(2, 10.0)
    assert [(each.output, each.staged) for each in instructed(done, Commit)] == [(0, ("2.0", "2.1"))]
    [write] = instructed(done, WriteCheckpoint)
    assert [(each.output, each.staged) for each in write.snapshot.staged] == [(1, ("2.0 exact", "2.1 exact"))]
    assert [commit.output for commit in instructed(coordinator.written(1, 11.0), Commit)] == [1]


# --- without checkpoints


def publishing(seconds: float = 2.0) -> Coordinator:
    """Results are due every so many seconds from 10 s on."""
    return Coordinator(Publishing(seconds), at=10.0, checkpoints=None)


def test_an_epoch_ends_when_partial_results_are_due_and_the_time_runs_from_when_they_are_complete() -> None:
    coordinator = publishing()
    assert [len(coordinator.tick(now)) for now in (10.25, 11.9, 12.0)] == [0, 0, 2]
    begun = coordinator.quiet(12.5)
    assert begun == [(reducer(index), BeginExchange(1, 3)) for index in (0, 1)]
    assert not instructed(coordinator.published(1, now=13.0), Commit)
    ended = coordinator.published(0, now=14.0)
    assert instructed(ended, Commit) == [Commit(REDUCER, 1, at=2.0, staged=FIRST[1])]
    assert [to for to, _ in sent(ended, Thaw)] == [BALANCER] and len(sent(ended, GoOn)) == 2
    assert [len(coordinator.tick(now)) for now in (15.9, 16.0)] == [0, 2]


def test_what_partial_results_take_is_added_up_and_whom_the_longest_epoch_waited_for_is_known() -> None:
    coordinator = publishing()
    assert coordinator.aggregation == AggregationStats()
    for epoch, now, seconds in ((1, 12.0, 1.0), (2, 15.0, 3.0), (3, 22.0, 0.5)):
        coordinator.tick(now)
        coordinator.quiet(now)
        coordinator.published(0, epoch, now)
        coordinator.published(1, epoch, now + seconds)
        assert coordinator.aggregation == AggregationStats(epoch, epoch, 4 * epoch)
    epochs = coordinator.coordinator.snapshot().epochs
    assert (epochs.number, epochs.seconds, epochs.longest) == (3, 4.5, 3.0)
    assert epochs.waited_for == EpochWait("reducer 1", "published its share", 3.0)


def test_no_epoch_ends_for_a_stage_that_has_processed_nothing_since_the_last_or_before_readers_see_that() -> None:
    coordinator = publishing()
    assert coordinator.tick(12.0, records=0) == []
    assert len(coordinator.tick(12.5)) == 2
    coordinator.quiet(12.5)
    coordinator.published(0, now=12.5)
    coordinator.published(1, now=12.5, sees=False)
    assert coordinator.tick(20.0) == []
    assert len(sent(coordinator.coordinator.handle(Committed(REDUCER, 1), 20.5), Pause)) == 2
    coordinator.quiet(20.5)
    coordinator.published(0, 2, now=20.5)
    coordinator.published(1, 2, now=20.5)
    assert coordinator.tick(30.0, records=0) == []
    assert len(coordinator.tick(30.25)) == 2


def test_no_epoch_ends_before_the_stream_begins_once_all_is_processed_or_without_results_to_publish() -> None:
    unstarted = CoordinatorMachine(map_reduce((), 2, 2, publishing=(Publishing(2.0),)))
    assert unstarted.handle(Tick(), 50.0) == []
    never = publishing(math.inf)
    assert never.tick(1e9) == []
    assert never.aggregation is None
    coordinator = publishing()
    coordinator.mapped(0, 4, done=True)
    coordinator.mapped(1, 3, done=True)
    coordinator.reduced(0, 5)
    assert sent(coordinator.reduced(1, 2), Freeze)
    assert coordinator.tick(50.0) == []
    [(_, last), _] = sent(coordinator(BALANCER, last_table(REDUCER, 1)), BeginExchange)
    assert last == BeginExchange(1, 1, last=True)
    assert coordinator.tick(60.0) == []


@pytest.mark.parametrize(("epoch", "twice"), [(2, False), (0, False), (1, True)])
def test_a_share_that_nobody_waits_for_is_refused(epoch: int, twice: bool) -> None:
    coordinator = publishing()
    coordinator.tick(12.0)
    coordinator.quiet(12.0)
    if twice:
        coordinator.published(0)
    with pytest.raises(ProtocolError, match=f"reducer 0 has published an unexpected share of epoch {epoch}"):
        coordinator.published(0, epoch)
