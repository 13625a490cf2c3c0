"""Partial results at the end of an epoch: an exchange, states that overtake, and what the coordinator waits for."""

from __future__ import annotations

import math

import pytest
from builders import block_of, table_giving
from wires import CoordinatorWire, OperatorWire, emitter_for, instructed, last_table, part, reducer, sent

from dpa.errors import ProtocolError
from dpa.execution.mapping import Emitted
from dpa.execution.states import StatePart
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import MAPPER, REDUCER, Publishing, map_reduce
from dpa.protocol.task.operator import OperatorState
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.epochs import EpochWait
from dpa.protocol.wire.events import Committed, ExtractDone, FinishDone, PublishDone, StepDone, Tick, WriteDone
from dpa.protocol.wire.instructions import Commit, Extract, Instruction, NextStep, ProcessBlock, Publish
from dpa.protocol.wire.messages.cuts import GoOn, Pause, Paused, Thaw
from dpa.protocol.wire.messages.end import Deliver, Drain, Freeze, Progress
from dpa.protocol.wire.messages.exchange import BeginExchange, Published, StateTransfer
from dpa.protocol.wire.messages.splits import SplitGrant, SplitRequest, SplitReturned
from dpa.protocol.wire.metrics import AggregationStats, TaskStats


class Operator(OperatorWire):
    """Reducer 0 of three."""

    def end_epoch(self, epoch: int = 1, version: int = 0) -> list[Instruction]:
        return self(COORDINATOR, BeginExchange(epoch, version))

    def transferred(self, sender: int, states: StatePart | None = None, epoch: int = 1) -> list[Instruction]:
        return self(reducer(sender), StateTransfer(epoch, states))

    def extracted(self, **parts: StatePart) -> list[Instruction]:
        """The states of other owners are out; `to_1=...` are those of reducer 1."""
        event = ExtractDone({int(to[-1]): states for to, states in parts.items()}, seconds=0.25)
        return self.task.handle(event, 0.0)

    def published(self, staged: object = "a file") -> list[Instruction]:
        return self.task.handle(PublishDone({0: staged}, seconds=0.5), 0.0)

    def whole(self, epoch: int = 1) -> list[Instruction]:
        """A whole exchange in which nobody has anything for another."""
        self.end_epoch(epoch)
        self.extracted()
        self.transferred(1, epoch=epoch)
        self.transferred(2, epoch=epoch)
        return self.published()


# --- a task


def test_states_are_extracted_by_the_newest_table_once_the_task_has_it() -> None:
    reducer_0 = Operator()
    reducer_0.update(1)
    assert instructed(reducer_0.end_epoch(version=2), Extract) == []
    [extract] = instructed(reducer_0.update(2), Extract)
    assert extract.table is reducer_0.task.table


def test_a_staged_share_is_reported_with_what_it_took() -> None:
    reducer_0 = Operator()
    reducer_0.end_epoch()
    reducer_0.extracted(to_1=part("x"), to_2=part("y", "z"))
    reducer_0.transferred(1)
    reducer_0.transferred(2)
    published = Published(1, {0: "a file"}, states=3, seconds=0.75, stats=reducer_0.task.stats)
    assert sent(reducer_0.published(), Published) == [(COORDINATOR, published)]
    assert reducer_0.task.idle


def test_where_no_states_move_a_task_publishes_what_it_has_at_once() -> None:
    [publish] = instructed(Operator()(COORDINATOR, BeginExchange(4, 0, transfer=False)), Publish)
    assert (publish.epoch, publish.parts) == (4, ())


def test_one_task_alone_publishes_what_it_has() -> None:
    alone = OperatorWire(tables=[table_giving({"a": 0})])
    assert instructed(alone(COORDINATOR, BeginExchange(1, 0)), Extract)
    assert instructed(alone.task.handle(ExtractDone({}), 0.0), Publish)


def test_epochs_ascend_and_the_last_exchange_is_behind_them() -> None:
    reducer_0 = Operator()
    for epoch in (1, 2, 5):
        [(_, share)] = sent(reducer_0.whole(epoch), Published)
        assert share.epoch == epoch
    reducer_0.update(1)
    [extract] = instructed(reducer_0(COORDINATOR, BeginExchange(6, 1, last=True)), Extract)
    assert extract.table is reducer_0.task.table
    assert reducer_0.task.state is OperatorState.EXCHANGING


def test_a_task_with_records_cannot_publish() -> None:
    reducer_0 = Operator()
    reducer_0.push("a")
    with pytest.raises(ProtocolError, match="reducer 0 is to publish with 1 records in its queue"):
        reducer_0.end_epoch()


def test_a_task_says_when_its_queue_is_empty_until_the_cut_is_over() -> None:
    reducer_0 = Operator()
    reducer_0(COORDINATOR, Drain())
    reducer_0.push("a")
    assert sent(reducer_0.done(), Progress)
    reducer_0(COORDINATOR, GoOn(draining=False))
    for _ in range(2):
        reducer_0.push("a")
        reports = sent(reducer_0.done(), Progress)
    assert not reports


def test_a_task_that_emits_its_result_pauses_after_the_step_at_hand() -> None:
    emitter = emitter_for(table_giving({"r": 0}), 5, edge=1, stage="next", origin=reducer())
    operator = OperatorWire(emitter)
    operator(COORDINATOR, BeginExchange(1, 0, last=True, transfer=False))
    operator.task.handle(FinishDone(None, ()), 0.0)
    operator(COORDINATOR, Deliver(None))
    assert instructed(operator.task.handle(WriteDone(), 0.0), NextStep)
    assert not sent(operator(COORDINATOR, Pause()), Paused)
    stepped = operator.task.handle(StepDone(Emitted(((0, block_of(["r"])),), 1, 1)), 0.0)
    [(_, paused)] = sent(stepped, Paused)
    assert paused.stats.emitted == (1,) and not instructed(stepped, NextStep)
    assert instructed(operator(COORDINATOR, GoOn(draining=False)), NextStep)


# --- what a task cannot take


def fresh() -> Operator:
    return Operator()


def extracting() -> Operator:
    reducer_0 = Operator()
    reducer_0.end_epoch()
    return reducer_0


def collecting() -> Operator:
    reducer_0 = extracting()
    reducer_0.extracted()
    reducer_0.transferred(2)
    return reducer_0


def publishing() -> Operator:
    reducer_0 = collecting()
    reducer_0.transferred(1)
    return reducer_0


def early() -> Operator:
    reducer_0 = Operator()
    reducer_0.transferred(1, epoch=3)
    return reducer_0


CANNOT_COME = [
    (fresh, StateTransfer(0, None)),
    (fresh, BeginExchange(0, 0)),
    (early, BeginExchange(2, 0)),
    (early, StateTransfer(2, None)),
    (extracting, StateTransfer(2, None)),
    (collecting, StateTransfer(2, None)),
    (publishing, BeginExchange(2, 0)),
    (publishing, BeginExchange(2, 0, last=True)),
]


@pytest.mark.parametrize(
    ("state", "message"), CANNOT_COME, ids=[f"{what} while {state.__name__}" for state, what in CANNOT_COME]
)
def test_what_cannot_come_in_an_exchange_is_refused(state, message) -> None:
    """Of another epoch, or while user code is at work."""
    with pytest.raises(ProtocolError, match=r"reducer 0 (cannot take states of|is to)"):
        state()(COORDINATOR if isinstance(message, BeginExchange) else reducer(2), message)


def test_a_task_sends_its_states_only_once_in_an_exchange() -> None:
    with pytest.raises(ProtocolError, match="reducer 0 cannot take states of epoch 1 from reducer 2"):
        collecting().transferred(2)


# --- the coordinator


class Coordinator(CoordinatorWire):
    """The coordinator of two mappers and two reducers, with partial results every two seconds, at 10 s."""

    def __init__(self, seconds: float = 2.0) -> None:
        super().__init__(10.0, publishing=(Publishing(seconds),))
        self.records = 0

    def tick(self, now: float, *, records: int = 1) -> list[Address]:
        """Whom a tick has pause, when that many more records were emitted and processed."""
        self.records += records
        reported = self.progress(reducer(0), processed=self.records, now=now)
        return [to for to, _ in sent([*reported, *self.coordinator.handle(Tick(), now)], Pause)]

    def paused(self, index: int, emitted: int = 0, now: float = 0.0) -> list[Instruction]:
        return self(Address(MAPPER, index), Paused(TaskStats(MAPPER, index, emitted=(emitted,))), now)

    def quiet(self, now: float) -> list[tuple[Address, BeginExchange]]:
        """All that mappers have emitted is processed; whom the table then has publish."""
        instructions = [*self.paused(0, self.records, now=now), *self.paused(1, now=now)]
        assert [to for to, _ in sent(instructions, Freeze)] == [BALANCER]
        return sent(self(BALANCER, last_table(REDUCER, 3), now), BeginExchange)

    def published(
        self, index: int, epoch: int = 1, now: float = 0.0, *, is_committed: bool = True
    ) -> list[Instruction]:
        found = self(reducer(index), Published(epoch, {0: f"file {index}"}, states=2, seconds=0.5), now)
        for commit in instructed(found, Commit) if is_committed else ():
            found += self.coordinator.handle(Committed(commit.stage, commit.epoch), now)
        return found

    @property
    def aggregation(self) -> AggregationStats | None:
        return self.coordinator.snapshot()[REDUCER].aggregation


def test_an_epoch_ends_when_partial_results_are_due_and_the_time_runs_from_when_they_are_complete() -> None:
    coordinator = Coordinator()
    assert [len(coordinator.tick(now)) for now in (10.25, 11.9, 12.0)] == [0, 0, 2]
    begun = coordinator.quiet(12.5)
    assert begun == [(reducer(index), BeginExchange(1, 3)) for index in (0, 1)]
    assert not instructed(coordinator.published(1, now=13.0), Commit)
    ended = coordinator.published(0, now=14.0)
    assert instructed(ended, Commit) == [Commit(REDUCER, 1, at=2.0, staged=("file 0", "file 1"))]
    assert [to for to, _ in sent(ended, Thaw)] == [BALANCER] and len(sent(ended, GoOn)) == 2
    assert [len(coordinator.tick(now)) for now in (15.9, 16.0)] == [0, 2]


def test_no_epoch_ends_before_readers_see_the_one_before() -> None:
    coordinator = Coordinator()
    coordinator.tick(12.0)
    coordinator.quiet(12.0)
    coordinator.published(0, now=12.0)
    coordinator.published(1, now=12.0, is_committed=False)
    assert coordinator.tick(20.0) == []
    assert len(sent(coordinator.coordinator.handle(Committed(REDUCER, 1), 20.5), Pause)) == 2


def test_sources_go_on_for_as_long_as_they_had_waited() -> None:
    coordinator = Coordinator()
    coordinator.tick(12.0)
    coordinator.quiet(12.0)
    coordinator.published(0, now=20.0)
    coordinator.published(1, now=20.0)
    assert [len(coordinator.tick(now)) for now in (22.0, 27.9, 28.0)] == [0, 0, 2]


def test_what_a_source_gives_back_is_granted_first_behind_the_cut() -> None:
    coordinator = Coordinator()
    [(_, first)] = sent(coordinator(Address(MAPPER, 0), SplitRequest()), SplitGrant)
    coordinator.tick(12.0)
    coordinator(Address(MAPPER, 0), SplitReturned(2))
    coordinator(Address(MAPPER, 1), SplitRequest())
    coordinator.quiet(12.0)
    coordinator.published(0)
    [(_, rest)] = sent(coordinator.published(1), SplitGrant)
    assert first.split is not None and rest.split is not None and rest.split.rows == first.split.rows - 2


def test_what_partial_results_take_is_added_up_and_whom_the_longest_epoch_waited_for_is_known() -> None:
    coordinator = Coordinator()
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


def test_no_epoch_ends_for_a_stage_that_has_processed_nothing_since_the_last() -> None:
    coordinator = Coordinator()
    assert coordinator.tick(12.0, records=0) == []
    assert len(coordinator.tick(12.5)) == 2
    coordinator.quiet(12.5)
    coordinator.published(0, now=12.5)
    coordinator.published(1, now=12.5)
    assert coordinator.tick(20.0, records=0) == []
    assert len(coordinator.tick(20.25)) == 2


def test_without_partial_results_and_checkpoints_no_epoch_ends() -> None:
    coordinator = Coordinator(math.inf)
    assert coordinator.tick(1e9) == []
    assert coordinator.aggregation is None


def test_no_epoch_ends_before_the_stream_begins_or_once_all_is_processed() -> None:
    coordinator = Coordinator()
    unstarted = CoordinatorMachine(map_reduce((), 2, 2, publishing=(Publishing(2.0),)))
    assert unstarted.handle(Tick(), 50.0) == []
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
    coordinator = Coordinator()
    coordinator.tick(12.0)
    coordinator.quiet(12.0)
    if twice:
        coordinator.published(0)
    with pytest.raises(ProtocolError, match=f"reducer 0 has published an unexpected share of epoch {epoch}"):
        coordinator.published(0, epoch)


def test_user_code_has_one_thing_to_do_at_a_time() -> None:
    """Whatever comes while it extracts or publishes states: nothing else is given to it."""
    for at_work in (extracting, publishing):
        reducer_0 = at_work()
        given = [*reducer_0.push("abc"), *reducer_0.update(2), *reducer_0.task.handle(Tick(), 1.0)]
        assert instructed(given, ProcessBlock) == instructed(given, Extract) == instructed(given, Publish) == []
