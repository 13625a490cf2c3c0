"""How far the event time of inputs has come, channel by channel, and what stages make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from wires import CoordinatorWire

from dpa.protocol.coordinator._event_times import EventTimes, WatermarkHolder
from dpa.protocol.graph import ClosingWindows, Edge, Graph, Stage, StageInput
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import PollDone
from dpa.protocol.wire.messages.splits import SplitRequest, SplitReturned
from dpa.protocol.wire.metrics import EventTimeStats
from dpa.protocol.wire.snapshots import ChannelTime
from dpa.sources.event_time import SourceTime
from dpa.sources.feed import Position
from dpa.sources.splits import MemorySplit, NumberedSplit, channel_of
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


def test_the_clock_of_a_quiet_channel_stands_while_nobody_polls() -> None:
    found = times("a", idle=5.0)
    found.reaches(0, 100)
    found.is_read(0)
    assert found.held(is_open=True) == WatermarkHolder(90, "a", None)
    found.polled(100.0)
    assert found.held(is_open=True) == WatermarkHolder(90, "a", None)


def test_an_input_that_has_given_nothing_yet_holds_the_watermark_until_it_is_idle() -> None:
    found = times(idle=5.0)
    assert found.held(is_open=True) == WatermarkHolder(None, "", None)
    found.polled(1.0)
    found.polled(6.0)
    assert found.held(is_open=True) is None


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


def test_a_stage_that_gives_its_rows_at_its_end_lets_nobody_know_how_early_they_are() -> None:
    coordinator = TwoSources(emits_at_end=True)
    coordinator.reads("left", 1000)
    coordinator.reads("right", 500)
    found = coordinator.event_times
    assert found["fed"].watermark == 490
    assert found["first"].watermark is None


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
