"""The reducer's state machine while records flow: order, ownership, forwarding, acknowledgements and load reports."""

from __future__ import annotations

import pytest
from builders import Wire, push, records_of, sent, table_giving, told
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ProtocolError
from dpa.protocol.machine import Instruction, MapDone, Process, ProcessDone, Tick
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Ack,
    Drain,
    LoadReport,
    Push,
    ReducerReport,
    SplitGrant,
    TableUpdate,
    mapper,
    reducer,
)
from dpa.protocol.reducer import ReducerMachine, ReducerOptions
from dpa.protocol.slices import SliceSizer

TABLES = [
    table_giving({"a": 0, "b": 0, "c": 0, "x": 1, "y": 2}),
    table_giving({"a": 0, "b": 1, "c": 2, "x": 1, "y": 2}, epoch=1),
    table_giving({"a": 0, "b": 1, "c": 0, "x": 1, "y": 2}, epoch=2),
]
both_ways = pytest.mark.parametrize("eager", [True, False], ids=["eager", "lazy"])


class Reducer(Wire):
    """Reducer 0 of three, which owns a, b and c by table 0, a by table 1, and a and c by table 2."""

    def __init__(
        self, *, eager: bool = True, every: int | None = None, idle: bool = False, most: int = 1000, **more
    ) -> None:
        options = ReducerOptions(report_every=every, report_when_idle=idle, eager=eager, slice_records=most, **more)
        self.reducer = ReducerMachine(0, TABLES[0], options)
        super().__init__(self.reducer)

    def push(self, keys: str, *, epoch: int = 0, from_mapper: int = 0, now: float = 0.0) -> list[Instruction]:
        return self(mapper(from_mapper), push(list(keys), epoch=epoch, mapper=from_mapper), now)

    def update(self, epoch: int) -> list[Instruction]:
        return self(BALANCER, TableUpdate(TABLES[epoch]))

    def done(self, seconds: float = 0.0) -> list[Instruction]:
        """The records given to user code have been processed."""
        return self.reducer.handle(ProcessDone(seconds), seconds)


def processing(instructions: list[Instruction]) -> list[str]:
    """The keys of the records that user code is to process."""
    return ["".join(key for key, _ in records_of(given.block)) for given in told(instructions, Process)]


def forwarded(instructions: list[Instruction]) -> list[tuple[int, str]]:
    """The keys of the records that were forwarded, with their receivers."""
    return [
        (to.index, "".join(key for key, _ in records_of(message.block))) for to, message in sent(instructions, Push)
    ]


# --- the queue


def test_records_are_processed_one_batch_at_a_time_in_the_order_of_arrival() -> None:
    reducer_0 = Reducer()
    assert processing(reducer_0.push("aab")) == ["aab"]
    assert processing(reducer_0.push("c")) == []
    assert reducer_0.reducer.queue_length == 4
    assert processing(reducer_0.done()) == ["c"]
    assert processing(reducer_0.done()) == []
    assert (reducer_0.reducer.queue_length, reducer_0.reducer.peak_queue, reducer_0.reducer.processed) == (0, 4, 4)


def test_an_acknowledgement_goes_to_the_mapper_with_the_queue_that_is_left_and_the_epoch_held() -> None:
    reducer_0 = Reducer()
    reducer_0.push("aab", from_mapper=3)
    reducer_0.push("ca", from_mapper=1)
    assert sent(reducer_0.done(), Ack) == [(mapper(3), Ack(records=3, queue=2, epoch=0))]
    reducer_0.update(1)
    assert sent(reducer_0.done(), Ack) == [(mapper(1), Ack(records=2, queue=0, epoch=1))]


def test_a_long_batch_is_processed_in_slices() -> None:
    reducer_0 = Reducer(most=2)
    slices = processing(reducer_0.push("abcab"))
    while reducer_0.reducer.queue_length:
        slices += processing(reducer_0.done())
    assert slices == ["ab", "ca", "b"]


@given(st.integers(1, 200), st.lists(st.tuples(st.integers(1, 200), st.floats(0, 10)), max_size=10))
def test_slices_adapt_to_the_speed_of_user_code_within_their_bounds(
    most: int, observed: list[tuple[int, float]]
) -> None:
    sizer = SliceSizer(most, seconds=0.1)
    for records, seconds in observed:
        before = sizer.size
        sizer.observe(records, seconds)
        assert 1 <= sizer.size <= min(most, 8 * before)
        if seconds > 0:
            assert sizer.size <= max(1, records * 0.1 / seconds)


# --- tables and forwarding


@both_ways
def test_a_batch_of_an_older_epoch_is_split_and_what_moved_is_forwarded(eager: bool) -> None:
    reducer_0 = Reducer(eager=eager)
    reducer_0.update(1)
    instructions = reducer_0.push("abcab", from_mapper=2)
    assert forwarded(instructions) == [(1, "bb"), (2, "c")]
    assert processing(instructions) == ["aa"]
    messages = [message for _, message in sent(instructions, Push)]
    assert {(message.epoch, message.mapper, message.hops) for message in messages} == {(1, 2, 1)}
    assert (reducer_0.reducer.queue_length, reducer_0.reducer.forwarded) == (2, 3)


def test_eagerly_what_moved_is_forwarded_as_soon_as_the_table_comes() -> None:
    reducer_0 = Reducer(eager=True)
    for keys in ("ab", "bc", "ac"):
        reducer_0.push(keys)
    assert forwarded(reducer_0.update(1)) == [(1, "b"), (2, "c"), (2, "c")]
    assert reducer_0.reducer.queue_length == 3
    assert processing(reducer_0.done()) == ["a"]


def test_lazily_what_moved_is_forwarded_when_it_reaches_the_head() -> None:
    reducer_0 = Reducer(eager=False)
    for keys in ("ab", "bc", "ac"):
        reducer_0.push(keys)
    assert reducer_0.update(1) == []
    instructions = reducer_0.done()
    assert forwarded(instructions) == [(1, "b"), (2, "c"), (2, "c")]
    assert processing(instructions) == ["a"]


@both_ways
def test_what_user_code_works_on_already_is_not_forwarded(eager: bool) -> None:
    reducer_0 = Reducer(eager=eager, most=2)
    reducer_0.push("bcbcb")
    instructions = reducer_0.update(1) + reducer_0.done()
    assert (mapper(0), 2) in [(to, ack.records) for to, ack in sent(instructions, Ack)]
    assert sorted(forwarded(instructions)) == [(1, "bb"), (2, "c")]
    assert (reducer_0.reducer.processed, reducer_0.reducer.forwarded, reducer_0.reducer.queue_length) == (2, 3, 0)


@both_ways
def test_a_batch_of_a_newer_epoch_waits_for_its_table(eager: bool) -> None:
    reducer_0 = Reducer(eager=eager)
    assert reducer_0.push("ac", epoch=2) == []
    assert (reducer_0.reducer.queue_length, reducer_0.reducer.idle) == (2, False)
    assert reducer_0.update(1) == []
    instructions = reducer_0.update(2)
    assert processing(instructions) == ["ac"]
    assert told(instructions, Process)[0].epoch == 2


@both_ways
def test_a_batch_that_waited_is_forwarded_if_an_even_newer_table_moves_it(eager: bool) -> None:
    reducer_0 = Reducer(eager=eager)
    reducer_0.update(1)
    reducer_0.push("ac", epoch=2)
    instructions = reducer_0(BALANCER, TableUpdate(table_giving({"a": 2, "c": 0}, epoch=3)))
    assert (forwarded(instructions), processing(instructions)) == ([(2, "a")], ["c"])


@both_ways
def test_an_older_table_changes_nothing(eager: bool) -> None:
    reducer_0 = Reducer(eager=eager)
    reducer_0.update(2)
    assert reducer_0.update(1) == []
    assert reducer_0.reducer.table is TABLES[2]


def test_a_forwarded_batch_is_taken_whatever_the_credits_and_acknowledged_to_its_mapper() -> None:
    reducer_0 = Reducer()
    reducer_0.update(2)
    assert processing(reducer_0(reducer(2), push(["c"] * 5, epoch=2, mapper=7, hops=1))) == ["ccccc"]
    assert [to for to, _ in sent(reducer_0.done(), Ack)] == [mapper(7)]


# --- reports


def test_the_load_is_reported_at_every_nth_record_dequeued() -> None:
    reducer_0 = Reducer(every=3, most=1)
    reducer_0.push("aaaaaaa")
    reports = [[report.queue for _, report in sent(reducer_0.done(), LoadReport)] for _ in range(7)]
    assert reports == [[], [], [4], [], [], [1], []]


@both_ways
def test_forwarded_records_count_as_dequeued(eager: bool) -> None:
    reducer_0 = Reducer(eager=eager, every=3, most=1)
    reducer_0.update(1)
    instructions = reducer_0.push("aabbc")
    assert sent(instructions, LoadReport) == [(BALANCER, LoadReport(2, epoch=1))]
    assert [bool(sent(reducer_0.done(), LoadReport)) for _ in range(2)] == [False, False]


def test_an_empty_queue_is_reported_if_asked_for() -> None:
    reducer_0 = Reducer(every=100, idle=True)
    reducer_0.push("ab")
    reducer_0.push("c")
    assert sent(reducer_0.done(), LoadReport) == []
    assert sent(reducer_0.done(), LoadReport) == [(BALANCER, LoadReport(0, epoch=0))]


def test_a_queue_that_empties_by_forwarding_alone_is_reported_too() -> None:
    reducer_0 = Reducer(every=4, idle=True)
    reducer_0.update(1)
    reports = [report.queue for _, report in sent(reducer_0.push("bbbbc"), LoadReport)]
    assert (reducer_0.reducer.queue_length, reports[-1]) == (0, 0)


def test_without_balancing_no_load_is_reported() -> None:
    reducer_0 = Reducer(every=None, idle=True, report_seconds=0.1)
    reducer_0.push("ab")
    assert sent(reducer_0.done() + reducer_0.reducer.handle(Tick(), 9.0), LoadReport) == []


@pytest.mark.parametrize(("seconds", "reports"), [(0.5, [[], [2], [], [2]]), (None, [[]] * 4)])
def test_a_queue_that_makes_no_progress_is_reported_from_time_to_time(seconds, reports) -> None:
    reducer_0 = Reducer(every=100, report_seconds=seconds)
    reducer_0.push("ab")
    ticks = [sent(reducer_0.reducer.handle(Tick(), now), LoadReport) for now in (0.4, 0.6, 1.0, 1.2)]
    assert [[report.queue for _, report in tick] for tick in ticks] == reports


def test_the_first_records_processed_and_every_tick_are_told_to_the_coordinator() -> None:
    reducer_0 = Reducer()
    reducer_0.push("ab")
    reducer_0.push("c")
    [(to, first)] = sent(reducer_0.done(seconds=0.25), ReducerReport)
    assert (to, first.stats.processed, first.stats.busy_seconds) == (COORDINATOR, 2, 0.25)
    assert sent(reducer_0.done(), ReducerReport) == []
    [(_, tick)] = sent(reducer_0.reducer.handle(Tick(), 1.0), ReducerReport)
    assert (tick.stats.processed, tick.stats.queue) == (3, 0)


def test_while_draining_the_count_is_told_whenever_the_queue_runs_empty() -> None:
    reducer_0 = Reducer()
    reducer_0.push("ab")
    [(_, at_once)] = sent(reducer_0(COORDINATOR, Drain()), ReducerReport)
    assert (at_once.stats.processed, at_once.stats.queue) == (0, 2)
    assert sent(reducer_0.done(), ReducerReport)[-1][1].stats.processed == 2
    reducer_0.push("c")
    assert sent(reducer_0.done(), ReducerReport)[-1][1].stats.processed == 3


# --- what cannot come


def test_what_was_not_given_out_cannot_have_been_processed() -> None:
    with pytest.raises(ProtocolError, match="reducer 0 processed a block that it was not given"):
        Reducer().done()


@pytest.mark.parametrize("message", [SplitGrant(None), LoadReport(0, 0)], ids=lambda message: type(message).__name__)
def test_a_message_for_others_is_refused_by_name(message) -> None:
    with pytest.raises(ProtocolError, match=f"reducer 0 cannot take a {type(message).__name__} from coordinator"):
        Reducer()(COORDINATOR, message)


def test_an_event_of_a_mapper_is_refused() -> None:
    with pytest.raises(ProtocolError, match="reducer 0 cannot take a MapDone"):
        Reducer().reducer.handle(MapDone(None), 0.0)
