"""How far the event time of inputs has come, channel by channel; what stages make of it; and the windows that it
closes."""

from __future__ import annotations

from collections.abc import Mapping
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
from dpa.protocol.coordinator._event_times import EventTimes, WatermarkHolder
from dpa.protocol.graph import ClosingWindows, Edge, Graph, Publishing, Stage, StageInput
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import PollDone, ProcessDone, PublishDone, RangesExtracted, StatesInstalled, Tick
from dpa.protocol.wire.instructions import Instruction, ProcessBlocks, Publish
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.cuts import GoOn, Pause, Paused
from dpa.protocol.wire.messages.end import Freeze, Progress, RecordsFailed
from dpa.protocol.wire.messages.exchange import BeginExchange, Published
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer
from dpa.protocol.wire.messages.splits import SplitRequest, SplitReturned
from dpa.protocol.wire.messages.tables import CurrentTable
from dpa.protocol.wire.metrics import EventTimeStats, TaskStats
from dpa.protocol.wire.snapshots import ChannelTime, TimeReached
from dpa.routing.hashing import ALL_HASHES
from dpa.sources.event_time import SourceTime
from dpa.sources.feed import Position
from dpa.sources.splits import MemorySplit, NumberedSplit, channel_of
from dpa.tolerance import ErrorCount, Failed
from dpa.windows.times import EventTime

TIME = SourceTime(EventTime("at", "us"), out_of_order=10)


def split(rows: int, channel: str = "") -> MemorySplit:
    return MemorySplit(pa.table({"at": pa.array(range(rows), pa.int64())}), channel)


def times(*channels: str, known: Mapping[str, ChannelTime] | None = None, **options: float) -> EventTimes:
    """Of splits of these channels, numbered from 0 on."""
    found = EventTimes(replace(TIME, **options), known or {})
    for number, channel in enumerate(channels):
        found.comes(number, split(1, channel))
    return found


def test_the_watermark_follows_the_rows_that_are_read_without_a_gap() -> None:
    found = times("", "", "")
    assert found.held(is_open=False) == WatermarkHolder(None, "", 0)
    found.reaches(1, 500)
    found.is_read(1)
    # What is read ahead says nothing of what is before it.
    assert found.held(is_open=False) == WatermarkHolder(None, "", 0)
    found.reaches(0, 100)
    found.reaches(0, 90)
    assert found.held(is_open=False) == WatermarkHolder(90, "", 0)
    found.is_read(0)
    assert found.held(is_open=False) == WatermarkHolder(490, "", 2)
    found.is_read(2)
    assert found.held(is_open=True) == WatermarkHolder(490, "", None)
    assert found.held(is_open=False) is None


def test_the_slowest_channel_holds_the_watermark() -> None:
    found = times("a", "b", "a")
    found.reaches(0, 900)
    found.is_read(0)
    assert found.held(is_open=True) == WatermarkHolder(None, "b", 1)
    found.reaches(1, 50)
    found.is_read(1)
    assert found.held(is_open=True) == WatermarkHolder(40, "b", None)
    assert found.held(is_open=False) == WatermarkHolder(890, "a", 2)  # that is the end of the other


def test_a_closed_input_of_which_nobody_knows_how_far_it_is_out_of_order_has_no_watermark() -> None:
    found = EventTimes(replace(TIME, out_of_order=None), {})
    found.comes(0, split(1))
    found.reaches(0, 100)
    assert found.held(is_open=True) == WatermarkHolder(100, "", 0)
    assert found.held(is_open=False) == WatermarkHolder(None, "", 0)


def test_a_channel_that_is_quiet_and_read_holds_nothing_after_a_while() -> None:
    found = times("a", "b", idle=5.0)
    for number, time in ((0, 100), (1, 300)):
        found.reaches(number, time)
    found.is_read(0)
    found.polled(1.0)
    found.polled(7.0)
    assert found.held(is_open=True) == WatermarkHolder(290, "b", 1)
    found.is_read(1)
    found.polled(8.0)
    assert found.held(is_open=True) == WatermarkHolder(290, "b", None)
    found.polled(13.0)
    assert found.held(is_open=True) is None
    found.comes(2, split(1, "a"))
    assert found.held(is_open=True) == WatermarkHolder(90, "a", 2)
    found.is_read(2)
    found.polled(14.0)
    assert found.held(is_open=True) == WatermarkHolder(90, "a", None)


def test_the_clock_of_a_quiet_channel_stands_while_nobody_polls_and_one_that_has_given_nothing_has_one_too() -> None:
    found, empty = times("a", idle=5.0), times(idle=5.0)
    found.reaches(0, 100)
    found.is_read(0)
    assert found.held(is_open=True) == WatermarkHolder(90, "a", None)
    found.polled(100.0)
    assert found.held(is_open=True) == WatermarkHolder(90, "a", None)
    assert empty.held(is_open=True) == WatermarkHolder(None, "", None)
    empty.polled(1.0)
    empty.polled(6.0)
    assert empty.held(is_open=True) is None


def test_what_was_read_ahead_counts_behind_a_cut_when_what_is_before_it_is_read() -> None:
    found = times("", "x", "", "", "")
    found.reaches(0, 100)
    for number, time in ((2, 700), (3, 400)):
        found.reaches(number, time)
    found.is_read(2)
    assert found.behind([0, 1, 3, 4]) == {"": ChannelTime(100, {2: 700}), "x": ChannelTime()}
    again = times("", "x", "", "", known=found.behind([0, 1, 3, 4]))
    assert again.held(is_open=True) == WatermarkHolder(None, "x", 1)
    again.is_read(1)
    assert again.held(is_open=False) == WatermarkHolder(90, "", 0)
    again.is_read(0)
    assert again.held(is_open=False) == WatermarkHolder(690, "", 2)


def test_a_split_keeps_its_channel_when_a_part_of_it_is_read() -> None:
    assert channel_of(NumberedSplit(split(3, "p1"), 0).after(1)) == "p1"
    assert channel_of(MemorySplit(pa.table({"at": [1]}))) == ""


def test_times_too_far_ahead_of_the_clock_do_not_count() -> None:
    rows = pa.record_batch({"at": pa.array([5_000_000, 9_000_000, None, 400_000_000], pa.int64())})
    assert TIME.greatest(rows) == 400_000_000
    assert replace(TIME, clock=lambda: 2.0, max_ahead=4_000_000).greatest(rows) == 5_000_000
    assert replace(TIME, clock=lambda: -9.0, max_ahead=4_000_000).greatest(rows) is None
    assert TIME.greatest(rows.slice(2, 1)) is None


def test_what_holds_event_time_is_said_in_words() -> None:
    stats = EventTimeStats(5, source="clicks", channel="p1", task=3)
    assert stats.holder == "held by clicks, channel p1, which task 3 reads"
    assert replace(stats, channel="", task=None).holder == "held by clicks"
    assert EventTimeStats(5).holder == "nothing that comes holds it"


# --- of stages


class TwoSources(CoordinatorWire):
    """A chain of stages behind two sources, one of which has an input that is open."""

    def __init__(self, **options: object) -> None:
        fed = Stage("fed", 1)
        first = replace(fed, name="first", windows=ClosingWindows(lateness=5, back=20))
        stages = (
            Stage("left", 1, StageInput((split(3), split(3)), time=TIME)),
            Stage("right", 1, StageInput((split(3),), Position(1), time=replace(TIME, idle=5.0))),
            replace(fed, **options),
            first,
            replace(first, name="second", windows=ClosingWindows()),
        )
        ways = [("left", "fed"), ("right", "fed"), ("fed", "first"), ("first", "second")]
        super().__init__(graph=Graph(stages, tuple(Edge(*way) for way in ways)))
        for source in ("left", "right"):
            self(Address(source, 0), SplitRequest())

    def reads(self, source: str, time: int, now: float = 0.0) -> None:
        self.progress(Address(source, 0), event_time=time, now=now)

    @property
    def event_times(self) -> dict[str, EventTimeStats | None]:
        return {stage.name: stage.event_time for stage in self.coordinator.snapshot().stages}


def test_a_stage_has_come_as_far_as_the_last_of_those_that_feed_it() -> None:
    coordinator = TwoSources()
    coordinator.reads("left", 1000)
    by = ("right", "", 0)
    assert coordinator.event_times["fed"] == EventTimeStats(None, None, None, *by)
    coordinator.reads("right", 500)
    assert coordinator.event_times == {
        "left": EventTimeStats(990, None, None, "left", "", 0),
        "right": EventTimeStats(490, None, None, *by),
        "fed": EventTimeStats(490, None, None, *by),
        "first": EventTimeStats(490, None, None, *by),
        "second": EventTimeStats(465, None, None, *by),  # as the rows of windows may be stamped with their beginnings
    }
    coordinator = TwoSources(emits_at_end=True)
    coordinator.reads("left", 1000)
    coordinator.reads("right", 500)
    watermarks = [coordinator.event_times[name].watermark for name in ("fed", "first")]
    assert watermarks == [490, None], "nobody knows how early the rows are that it gives at its end"


def test_an_idle_input_and_one_that_is_read_hold_nobody_up() -> None:
    coordinator = TwoSources()
    right = Address("right", 0)
    coordinator.reads("left", 1000)
    coordinator(right, SplitRequest(500))
    for now in (1.0, 7.0):
        coordinator.coordinator.handle(PollDone("right", (), Position(1)), now)
    assert coordinator.event_times["fed"] == EventTimeStats(990, None, None, "left", "", 0)
    coordinator.progress(Address("left", 0), done=True, now=8.0)
    assert coordinator.event_times["fed"] == EventTimeStats(None)  # nothing holds it, and it is where it was


def test_what_a_task_gives_back_holds_the_watermark_of_its_split() -> None:
    coordinator = TwoSources()
    coordinator.reads("right", 2000)
    left = Address("left", 0)
    coordinator(left, SplitReturned(2, 300))
    coordinator(left, SplitRequest())
    coordinator.reads("left", 310)
    assert coordinator.event_times["fed"] == EventTimeStats(300, None, None, "left", "", 0)
    coordinator(left, SplitRequest(320))
    assert coordinator.event_times["fed"] == EventTimeStats(310, None, None, "left", "", 0)


# --- windows that are closed at the end of an epoch: what a task emits of them


def closing(closes: int, epoch: int = 1) -> BeginExchange:
    return BeginExchange(epoch, 0, transfer=False, closes=closes, publishes=())


def closed_of(instructions: list[Instruction]) -> list[int | None]:
    """By what user code judges which records are late."""
    return [process.closed for process in instructed(instructions, ProcessBlocks)]


def test_a_task_emits_what_its_windows_give_says_how_much_that_is_and_before_it_what_user_code_failed_on() -> None:
    """Else a checkpoint would have neither the windows nor the dead letters that their rows became."""
    emitter = emitter_for(table_giving({"r": 0}), 2, edge=1, stage="next", origin=reducer())
    task, failed = OperatorWire(emitter), Failed((ErrorCount("step", "ValueError", True, 1, "it failed"),))
    [publish] = instructed(task(COORDINATOR, closing(70)), Publish)
    assert (publish.epoch, publish.parts, publish.closes, publish.publishes) == (1, (), 70, ())
    blocks = ((0, block_of(["r", "r", "r"])),)
    done = task.task.handle(PublishDone({}, blocks=blocks, opens=90, failed=failed), 0.0)
    assert pushed(done) == [(0, "rr")]  # credit holds back the third
    report, (to, published) = (
        message for message in sent(done, Message) if isinstance(message[1], Progress | Published)
    )
    assert report[1].failed == RecordsFailed(failed) and report[1].stats.emitted == (3,)
    assert to == COORDINATOR and isinstance(published, Published) and published.stats is not None
    assert (published.stats.emitted, published.stats.opens) == ((3,), 90)


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
    comes = OperatorWire()
    comes(BALANCER, CurrentTable(reducer().stage, comes.tables[1], (), 70))
    assert closed_of(comes.push("a", version=1)) == [70]


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


# --- and what the coordinator waits for

SPLIT = MemorySplit(pa.table({"at": [0] * 9}))
SOURCE, FIRST, SECOND = (Address(stage) for stage in ("source", "first", "second"))


SECOND_STAGE = Stage("second", 1, windows=ClosingWindows())


class Coordinator(CoordinatorWire):
    """A source, and two stages of a task each, whose windows are closed every second at most."""

    def __init__(self, first: TimeReached | None = None, second: Stage = SECOND_STAGE, **publishes: object) -> None:
        """`publishes`: what the first stage publishes, and when."""
        reached = {} if first is None else {"reached": first}
        stages = (
            Stage("source", 1, StageInput((SPLIT,), time=SourceTime(EventTime("at", "us"), out_of_order=10))),
            Stage("first", 1, windows=ClosingWindows(lateness=5), **reached, **publishes),
            second,
        )
        super().__init__(graph=Graph(stages, (Edge("source", "first"), Edge("first", "second"))))
        self(SOURCE, SplitRequest())

    def told(self, now: float, event_time: int | None = None) -> list[Address]:
        """Whom a tick has pause, or the news that the source has read up to a time."""
        news = self.coordinator.handle(Tick(), now) if event_time is None else self.reads(event_time, now)
        return [to for to, _ in sent(news, Pause)]

    def reads(self, event_time: int, now: float) -> list[Instruction]:
        return self.progress(SOURCE, event_time=event_time, now=now)

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
    coordinator.reads(500, 0.5)
    assert [coordinator.told(now) for now in (0.9, 1.0)] == [[], [SOURCE]]
    coordinator = Coordinator()
    coordinator.processed(FIRST, 0, 0.5, opens=486)  # which stays open for 5 longer, and rows may be 10 late
    assert coordinator.told(9.0, event_time=500) == []
    assert coordinator.told(9.0, event_time=501) == [SOURCE]
    coordinator = Coordinator(TimeReached(400, 395, 480))  # so it does for those behind the cut with which a job begins
    assert coordinator.told(1.0, event_time=500) == [SOURCE]


def test_a_stage_closes_its_windows_when_those_before_it_have_and_their_records_are_processed() -> None:
    coordinator = Coordinator()
    coordinator.processed(FIRST, 0, 0.5, opens=480)
    coordinator.reads(500, 0.5)
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
    coordinator.reads(900, 3.0)
    assert [coordinator.told(now) for now in (4.9, 5.0)] == [[], [SOURCE]]  # as long as it had waited


def told_at(coordinator: Coordinator, *moments: float) -> list[bool]:
    """Whether the source is to pause, at each moment."""
    return [coordinator.told(now) == [SOURCE] for now in moments]


def test_who_publishes_closed_windows_alone_needs_no_epoch_before_one_can_be_closed() -> None:
    for closed, paused in ((False, True), (True, False)):
        coordinator = Coordinator(publishing=(Publishing(0.1, closed=closed),))
        coordinator.processed(FIRST, 7, 0.05, opens=600)
        coordinator.reads(500, 0.05)
        assert told_at(coordinator, 0.09, 0.1) == [False, paused]
    assert told_at(coordinator, 9.0) == [False]
    assert coordinator.told(9.1, event_time=615) == [SOURCE]
    second = replace(SECOND_STAGE, publishing=(Publishing(0.1, closed=True),), windows=ClosingWindows(lateness=5))
    coordinator = Coordinator(second=second)  # one that closes windows of a stage before is worth it
    coordinator.processed(FIRST, 7, 0.05, opens=480)
    coordinator.reads(500, 0.05)
    assert told_at(coordinator, 0.09, 0.1) == [False, True]  # what comes of that may be of windows that end with it


def test_windows_that_were_closed_before_it_was_time_to_publish_are_published_then() -> None:
    coordinator = Coordinator(publishing=(Publishing(3.0, closed=True),))
    coordinator.processed(FIRST, 0, 0.5, opens=480)
    coordinator.reads(500, 0.5)
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
