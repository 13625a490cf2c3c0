"""Results of epochs that are committed when a checkpoint names what was staged of them."""

from dataclasses import replace
from typing import Any

from wires import INPUT, CoordinatorWire, instructed, last_table, reducer, sent

from dpa.protocol.graph import MAPPER, REDUCER, CheckpointTimes, Edge, Graph, Publishing, Stage, StageInput, map_reduce
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import CheckpointFailed, CheckpointWritten, Committed, Tick
from dpa.protocol.wire.instructions import Commit, Instruction
from dpa.protocol.wire.messages.cuts import Pause, Paused, SnapshotTaken, SnapshotWritten
from dpa.protocol.wire.messages.exchange import BeginExchange, Published
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.snapshots import WriteCheckpoint


class Coordinator(CoordinatorWire):
    """A coordinator of a job with a checkpoint every ten seconds, and results every second."""

    def __init__(
        self,
        published: int = 0,
        options: dict[str, Any] | None = None,
        outputs: tuple[Publishing, ...] = (),
        **times: Any,
    ) -> None:
        how = {"with_checkpoints": True} if options is None else options
        self.outputs = outputs or (Publishing(**{"every": 1.0, **how}),)
        graph = map_reduce(INPUT, 2, 2, publishing=self.outputs, published=published)
        super().__init__(graph=replace(graph, checkpoints=CheckpointTimes(10.0, **times)))
        self.records = 0

    def tick(self, now: float) -> list[Address]:
        """Whom a tick has pause, when another record was emitted and processed."""
        self.records += 1
        reported = self.progress(reducer(0), processed=self.records, now=now)
        return [to for to, _ in sent([*reported, *self.coordinator.handle(Tick(), now)], Pause)]

    def checkpoint(self, epoch: int, now: float) -> list[Instruction]:
        """One is due: all is staged and marked; what the coordinator has its driver do then."""
        assert self.tick(now)
        for index, emitted in enumerate((self.records, 0)):
            self(Address(MAPPER, index), Paused(TaskStats(MAPPER, index, emitted=(emitted,))), now)
        begun = sent(self(BALANCER, last_table(REDUCER, 0), now), BeginExchange)
        assert [message.epoch for _, message in begun] == [epoch, epoch]
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
    aggregation = coordinator.coordinator.snapshot()[REDUCER].aggregation
    assert aggregation is not None and aggregation.rows == 106


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
    coordinator = Coordinator(options={"once": True, "every": 100.0})
    done = coordinator.checkpoint(1, 10.0)
    assert named(done) == [FIRST] and commits(done) == [1], "which waits for no checkpoint"
    coordinator.written(1, 11.0)
    assert coordinator.tick(30.0) == [], "no checkpoint comes before readers have what the last one names"
    assert sent(coordinator.coordinator.handle(Committed(REDUCER, 1), 31.0), Pause)


def test_a_table_that_is_published_whole_is_named_in_no_checkpoint() -> None:
    coordinator = Coordinator(options={})
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
    coordinator = Coordinator(outputs=(Publishing(1.0), Publishing(1.0, with_checkpoints=True)))
    assert len(coordinator.tick(2.0)) == 2, "the first is due"
    for index, emitted in enumerate((coordinator.records, 0)):
        coordinator(Address(MAPPER, index), Paused(TaskStats(MAPPER, index, emitted=(emitted,))), 2.0)
    begun = sent(coordinator(BALANCER, last_table(REDUCER, 0), 2.0), BeginExchange)
    assert [message.publishes for _, message in begun] == [(0,), (0,)]
    done = [
        coordinator(reducer(index), Published(1, {0: f"1.{index}"}, states=0, seconds=0.0), 2.0) for index in (0, 1)
    ]
    [commit] = instructed(done[1], Commit)
    assert (commit.output, commit.staged) == (0, ("1.0", "1.1"))
    coordinator.coordinator.handle(Committed(REDUCER, 1, 0), 2.5)
    done = coordinator.checkpoint(2, 10.0)
    assert [(each.output, each.staged) for each in instructed(done, Commit)] == [(0, ("2.0", "2.1"))]
    [write] = instructed(done, WriteCheckpoint)
    assert [(each.output, each.staged) for each in write.snapshot.staged] == [(1, ("2.0 exact", "2.1 exact"))]
    assert [commit.output for commit in instructed(coordinator.written(1, 11.0), Commit)] == [1]
