"""Windows that are closed at the end of an epoch: what a task emits of them, and what the coordinator waits for."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from builders import block_of, table_giving
from wires import (
    CoordinatorWire,
    OperatorWire,
    emitter_for,
    instructed,
    last_table,
    mapper,
    part,
    pushed,
    reducer,
    sent,
)

from dpa.execution.reduce_task import Piece
from dpa.protocol.graph import ClosingWindows, Edge, Graph, Publishing, Stage, StageInput
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import ProcessDone, PublishDone, RangesExtracted, StatesInstalled, Tick
from dpa.protocol.wire.instructions import Instruction, ProcessBlock, Publish
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.cuts import GoOn, Pause, Paused
from dpa.protocol.wire.messages.end import Freeze, Progress, RecordsFailed
from dpa.protocol.wire.messages.exchange import BeginExchange, Published
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer
from dpa.protocol.wire.messages.splits import SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import CurrentTable
from dpa.protocol.wire.metrics import EventTimeStats, TaskStats
from dpa.protocol.wire.snapshots import TimeReached
from dpa.routing.hashing import ALL_HASHES
from dpa.sources.event_time import SourceTime
from dpa.sources.splits import MemorySplit
from dpa.tolerance import ErrorCount, Failed
from dpa.windows.times import EventTime

# --- a task


def closing(closes: int, epoch: int = 1) -> BeginExchange:
    return BeginExchange(epoch, 0, transfer=False, closes=closes, publishes=())


def closed_of(instructions: list[Instruction]) -> list[int | None]:
    """By what user code judges which records are late."""
    return [process.closed for process in instructed(instructions, ProcessBlock)]


def test_a_task_emits_what_its_windows_give_and_says_how_much_that_is() -> None:
    emitter = emitter_for(table_giving({"r": 0}), 2, edge=1, stage="next", origin=reducer())
    task = OperatorWire(emitter)
    [publish] = instructed(task(COORDINATOR, closing(70)), Publish)
    assert (publish.closes, publish.publishes) == (70, ())
    done = task.task.handle(PublishDone({}, blocks=((0, block_of(["r", "r", "r"])),), opens=90), 0.0)
    assert pushed(done) == [(0, "rr")]  # credit holds back the third
    [(to, published)] = sent(done, Published)
    assert to == COORDINATOR and published.stats is not None
    assert (published.stats.emitted, published.stats.opens) == ((3,), 90)


def test_what_user_code_fails_on_when_windows_close_is_said_before_the_task_has_closed_them() -> None:
    """Or a checkpoint would have neither the windows nor the dead letters that their rows became."""
    emitter = emitter_for(table_giving({"r": 0}), edge=1, stage="next", origin=reducer())
    task, failed = OperatorWire(emitter), Failed((ErrorCount("step", "ValueError", True, 1, "it failed"),))
    task(COORDINATOR, closing(70))
    done = task.task.handle(PublishDone({}, blocks=((0, block_of(["r"])),), failed=failed), 0.0)
    [(_, report)] = sent(done, Progress)
    assert report.failed == RecordsFailed(failed) and report.stats.emitted == (1,)
    said = [type(message) for _, message in sent(done, Message) if isinstance(message, Progress | Published)]
    assert said == [Progress, Published]


def test_a_task_judges_by_the_windows_that_were_closed_at_the_last_cut() -> None:
    task = OperatorWire()
    assert closed_of(task.push("a")) == [None]
    task.done()
    task(COORDINATOR, closing(70))
    task.task.handle(PublishDone({}), 0.0)
    assert closed_of(task.push("a")) == [70]
    task.done()
    task(COORDINATOR, BeginExchange(2, 0, transfer=False))  # which publishes alone
    task.task.handle(PublishDone({}), 0.0)
    assert closed_of(task.push("a")) == [70]


def test_a_task_that_comes_judges_as_the_others_do() -> None:
    task = OperatorWire()
    task(BALANCER, CurrentTable(reducer().stage, task.tables[1], (), 70))
    assert closed_of(task.push("a", version=1)) == [70]


def opens_of(task: OperatorWire) -> list[int | None]:
    """What a task says at a tick of the first of its windows that are open."""
    return [message.stats.opens for _, message in sent(task.task.handle(Tick(), 0.0), Progress)]


def test_a_task_that_takes_states_says_which_windows_come_with_them_before_its_next_record() -> None:
    task = OperatorWire(migrates_with=[mapper()])
    task.update(1)
    task.task.handle(RangesExtracted(Piece({}, ALL_HASHES, is_last=True)), 0.0)
    task(mapper(), Marker(1))
    assert opens_of(task) == [None]
    task.update(2)
    task(reducer(2), RangeTransfer(2, part("c")))
    task(reducer(2), PassedMarkers(2, (mapper(),)))
    task.task.handle(StatesInstalled(480), 0.0)
    assert opens_of(task) == [480]


def test_a_task_that_gives_states_speaks_for_their_windows_until_some_are_closed() -> None:
    task = OperatorWire(migrates_with=[mapper()])

    def process(opens: int) -> None:
        task.push("a", version=task.task.table.version)
        task.task.handle(ProcessDone(0.0, opens=opens), 0.0)

    process(opens=480)
    task.update(1)
    task.task.handle(RangesExtracted(Piece({1: part("b")}, ALL_HASHES, is_last=True)), 0.0)
    task(mapper(), Marker(1))
    process(opens=600)
    assert opens_of(task) == [480], "who has the states now may not have said so yet"
    task(COORDINATOR, replace(closing(70), version=1))
    task.task.handle(PublishDone({}, opens=600), 0.0)
    assert opens_of(task) == [600]


# --- the coordinator

SPLIT = MemorySplit(pa.table({"at": [0] * 9}))
SOURCE, FIRST, SECOND = (Address(stage) for stage in ("source", "first", "second"))


SECOND_STAGE = Stage("second", 1, windows=ClosingWindows())
CLOSING = ClosingWindows(lateness=5)


class Coordinator(CoordinatorWire):
    """A source, and two stages of a task each, whose windows are closed every second at most."""

    def __init__(self, first: TimeReached | None = None, second: Stage = SECOND_STAGE, **publishes: object) -> None:
        """`publishes`: what the first stage publishes, and when."""
        windows = Stage("first", 1, **{"windows": ClosingWindows(lateness=5), **publishes})
        stages = (
            Stage("source", 1, StageInput((SPLIT,), time=SourceTime(EventTime("at", "us"), out_of_order=10))),
            windows if first is None else replace(windows, reached=first),
            second,
        )
        super().__init__(graph=Graph(stages, (Edge("source", "first"), Edge("first", "second"))))
        self(SOURCE, SplitRequest())

    def told(self, now: float, event_time: int | None = None) -> list[Address]:
        """Whom a tick has pause, or the news that the source has read up to a time."""
        known = event_time is None
        instructions = (
            self.coordinator.handle(Tick(), now) if known else self.progress(SOURCE, event_time=event_time, now=now)
        )
        return [to for to, _ in sent(instructions, Pause)]

    def stats(self, task: Address, **stats: object) -> TaskStats:
        return TaskStats(task.stage, task.index, **stats)

    def paused(self, event_time: int, now: float) -> list[Instruction]:
        """The source has read up to a time, emitted a record, and nothing else is on its way."""
        self(SOURCE, SplitReturned(1, event_time), now)
        self(SOURCE, SplitRequest(), now)
        return self(SOURCE, Paused(self.stats(SOURCE, read=1, emitted=(1,))), now)

    def processed(self, task: Address, records: int, now: float, **stats: object) -> list[Instruction]:
        return self.progress(task, now=now, processed=records, **stats)

    def frozen(self, stage: str, now: float) -> list[tuple[Address, BeginExchange]]:
        """Whom a stage's last table has exchange states."""
        return sent(self(BALANCER, last_table(stage, 0), now), BeginExchange)

    def published(self, task: Address, now: float, **stats: object) -> list[Instruction]:
        return self(task, Published(1, {}, 0, 0.0, self.stats(task, **stats)), now)


def freezes(instructions: list[Instruction]) -> list[str]:
    return [freeze.stage for _, freeze in sent(instructions, Freeze)]


def test_an_epoch_ends_when_event_time_has_passed_the_end_of_an_open_window() -> None:
    coordinator = Coordinator()
    coordinator.processed(FIRST, 0, 0.5, opens=480)
    coordinator.progress(SOURCE, event_time=500, now=0.5)
    assert [coordinator.told(now) for now in (0.9, 1.0)] == [[], [SOURCE]]
    coordinator = Coordinator()
    coordinator.processed(FIRST, 0, 0.5, opens=486)  # which stays open for 5 longer, and rows may be 10 late
    assert coordinator.told(9.0, event_time=500) == []
    assert coordinator.told(9.0, event_time=501) == [SOURCE]


def test_so_it_does_for_windows_that_were_open_behind_the_cut_with_which_the_job_begins() -> None:
    coordinator = Coordinator(TimeReached(400, 395, 480))
    assert coordinator.told(1.0, event_time=500) == [SOURCE]


def test_a_stage_closes_its_windows_when_those_before_it_have_and_their_records_are_processed() -> None:
    coordinator = Coordinator()
    coordinator.processed(FIRST, 0, 0.5, opens=480)
    coordinator.progress(SOURCE, event_time=500, now=0.5)
    coordinator.told(1.0)
    assert freezes(coordinator.paused(520, 1.0)) == []
    assert freezes(coordinator.processed(FIRST, 1, 1.0, opens=480)) == ["first"]
    begun = BeginExchange(1, 0, transfer=False, closes=505, publishes=())
    assert coordinator.frozen("first", 1.0) == [(FIRST, begun)]
    assert freezes(coordinator.published(FIRST, 1.0, processed=1, emitted=(3,), opens=600)) == []
    assert freezes(coordinator.processed(SECOND, 3, 2.0)) == ["second"]
    assert coordinator.frozen("second", 2.0) == [(SECOND, begun)]
    over = coordinator.published(SECOND, 3.0, processed=3)
    of_first = coordinator.coordinator.snapshot()["first"].event_time
    assert of_first == EventTimeStats(510, 505, 600, "source", "", 0)
    assert [to for to, _ in sent(over, GoOn)] == [FIRST, SECOND]
    coordinator.progress(SOURCE, event_time=900, now=3.0)
    assert [coordinator.told(now) for now in (4.9, 5.0)] == [[], [SOURCE]]  # as long as it had waited


def told_at(coordinator: Coordinator, *moments: float) -> list[bool]:
    """Whether the source is told to pause, at each moment."""
    return [coordinator.told(now) == [SOURCE] for now in moments]


def test_who_publishes_closed_windows_alone_needs_no_epoch_before_one_can_be_closed() -> None:
    for closed, paused in ((False, True), (True, False)):
        coordinator = Coordinator(publishing=(Publishing(0.1, closed=closed),), windows=CLOSING)
        coordinator.processed(FIRST, 7, 0.05, opens=600)
        coordinator.progress(SOURCE, event_time=500, now=0.05)
        assert told_at(coordinator, 0.09, 0.1) == [False, paused]
    assert told_at(coordinator, 9.0) == [False]
    assert coordinator.told(9.1, event_time=615) == [SOURCE]


def test_an_epoch_that_closes_windows_of_a_stage_before_is_worth_it() -> None:
    second = replace(SECOND_STAGE, publishing=(Publishing(0.1, closed=True),), windows=CLOSING)
    coordinator = Coordinator(second=second)
    coordinator.processed(FIRST, 7, 0.05, opens=480)
    coordinator.progress(SOURCE, event_time=500, now=0.05)
    assert told_at(coordinator, 0.09, 0.1) == [False, True]  # what comes of that may be of windows that end with it


def test_windows_that_were_closed_before_it_was_time_to_publish_are_published_then() -> None:
    coordinator = Coordinator(publishing=(Publishing(3.0, closed=True),), windows=CLOSING)
    coordinator.processed(FIRST, 0, 0.5, opens=480)
    coordinator.progress(SOURCE, event_time=500, now=0.5)
    assert told_at(coordinator, 1.0) == [True]
    coordinator.paused(520, 1.0)
    coordinator.processed(FIRST, 1, 1.0, opens=480)
    assert [begun.publishes for _, begun in coordinator.frozen("first", 1.0)] == [()]
    assert coordinator.coordinator.cuts.is_holding
    coordinator.published(FIRST, 1.0, processed=1, emitted=(0,), opens=600)
    coordinator.frozen("second", 1.0)
    coordinator.published(SECOND, 1.0)
    assert told_at(coordinator, 2.9, 3.0) == [False, True]
    coordinator.paused(520, 3.0)
    coordinator.processed(FIRST, 2, 3.0, opens=600)
    assert [begun.publishes for _, begun in coordinator.frozen("first", 3.0)] == [(0,)]
