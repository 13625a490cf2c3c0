"""The reducer's state machine while records flow: order, ownership, forwarding, acknowledgements and load reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    REDUCER_TABLES,
    ReducerWire,
    forwarded,
    processing,
    push,
    same_table,
    sent,
    table_giving,
    told,
    update_between,
)
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.load import Load
from dpa.errors import ProtocolError
from dpa.protocol.machine import MapDone, Process
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Ack,
    LoadReport,
    Push,
    SplitGrant,
    mapper,
    reducer,
)
from dpa.protocol.slices import SliceSizer

both_ways = pytest.mark.parametrize("eager", [True, False], ids=["eager", "lazy"])


# --- the queue


def test_records_are_processed_one_batch_at_a_time_in_the_order_of_arrival() -> None:
    reducer_0 = ReducerWire()
    assert processing(reducer_0.push("aab")) == ["aab"]
    assert processing(reducer_0.push("c")) == []
    assert reducer_0.reducer.queue_length == 4
    assert processing(reducer_0.done()) == ["c"]
    assert processing(reducer_0.done()) == []
    assert (reducer_0.reducer.queue_length, reducer_0.reducer.peak_queue, reducer_0.reducer.processed) == (0, 4, 4)


def test_an_acknowledgement_goes_to_the_mapper_with_the_queue_that_is_left_and_the_epoch_held() -> None:
    reducer_0 = ReducerWire()
    reducer_0.push("aab", from_mapper=3)
    reducer_0.push("ca", from_mapper=1)
    assert sent(reducer_0.done(), Ack) == [(mapper(3), Ack(records=3))]
    reducer_0.update(1)
    assert sent(reducer_0.done(), Ack) == [(mapper(1), Ack(records=2))]


def test_a_long_batch_is_processed_in_slices() -> None:
    reducer_0 = ReducerWire(most=2)
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
    reducer_0 = ReducerWire(eager=eager)
    reducer_0.update(1)
    instructions = reducer_0.push("abcab", from_mapper=2)
    assert forwarded(instructions) == [(1, "bb"), (2, "c")]
    assert processing(instructions) == ["aa"]
    messages = [message for _, message in sent(instructions, Push)]
    assert {(message.epoch, message.mapper, message.hops) for message in messages} == {(1, 2, 1)}
    assert (reducer_0.reducer.queue_length, reducer_0.reducer.forwarded) == (2, 3)


@both_ways
def test_an_older_batch_that_comes_while_user_code_works_is_forwarded_at_once_or_in_its_turn(
    eager: bool,
) -> None:
    reducer_0 = ReducerWire(eager=eager)
    reducer_0.push("aa")
    reducer_0.update(1)
    at_once, in_turn = reducer_0.push("ab"), reducer_0.done()
    assert [forwarded(at_once), forwarded(in_turn)] == ([[(1, "b")], []] if eager else [[], [(1, "b")]])
    assert processing(in_turn) == ["a"]


def test_eagerly_what_moved_is_forwarded_as_soon_as_the_table_comes() -> None:
    reducer_0 = ReducerWire(eager=True)
    for keys in ("ab", "bc", "ac"):
        reducer_0.push(keys)
    assert forwarded(reducer_0.update(1)) == [(1, "b"), (2, "c"), (2, "c")]
    assert reducer_0.reducer.queue_length == 3
    assert processing(reducer_0.done()) == ["a"]


def test_lazily_what_moved_is_forwarded_when_it_reaches_the_head() -> None:
    reducer_0 = ReducerWire(eager=False)
    for keys in ("ab", "bc", "ac"):
        reducer_0.push(keys)
    assert reducer_0.update(1) == []
    instructions = reducer_0.done()
    assert forwarded(instructions) == [(1, "b"), (2, "c"), (2, "c")]
    assert processing(instructions) == ["a"]


@both_ways
def test_what_user_code_works_on_already_is_not_forwarded(eager: bool) -> None:
    reducer_0 = ReducerWire(eager=eager, most=2)
    reducer_0.push("bcbcb")
    instructions = reducer_0.update(1) + reducer_0.done()
    assert (mapper(0), 2) in [(to, ack.records) for to, ack in sent(instructions, Ack)]
    assert sorted(forwarded(instructions)) == [(1, "bb"), (2, "c")]
    assert (reducer_0.reducer.processed, reducer_0.reducer.forwarded, reducer_0.reducer.queue_length) == (2, 3, 0)


@both_ways
def test_a_batch_of_a_newer_epoch_waits_for_its_table(eager: bool) -> None:
    reducer_0 = ReducerWire(eager=eager)
    assert reducer_0.push("ac", epoch=2) == []
    assert (reducer_0.reducer.queue_length, reducer_0.reducer.idle) == (2, False)
    assert reducer_0.update(1) == []
    instructions = reducer_0.update(2)
    assert processing(instructions) == ["ac"]
    assert told(instructions, Process)[0].epoch == 2


@both_ways
def test_a_batch_that_waited_is_forwarded_if_an_even_newer_table_moves_it(eager: bool) -> None:
    reducer_0 = ReducerWire(eager=eager)
    reducer_0.update(1)
    reducer_0.push("ac", epoch=2)
    assert processing(reducer_0.push("a", epoch=1)) == ["a"]
    assert reducer_0.update(2) == []
    instructions = reducer_0(BALANCER, update_between(REDUCER_TABLES[2], table_giving({"a": 2, "c": 0}, epoch=3)))
    instructions += reducer_0.done()
    assert (forwarded(instructions), processing(instructions)) == ([(2, "a")], ["c"])


@both_ways
def test_tables_are_made_one_of_another(eager: bool) -> None:
    reducer_0 = ReducerWire(eager=eager)
    for table in REDUCER_TABLES:
        assert reducer_0.update(table.epoch) == []
        assert same_table(reducer_0.reducer.table, table)


@both_ways
@pytest.mark.parametrize("epoch", [1, 3], ids=["the same again", "one left out"])
def test_a_table_that_is_not_the_very_next_cannot_come(eager: bool, epoch: int) -> None:
    reducer_0 = ReducerWire(eager=eager)
    reducer_0.update(1)
    with pytest.raises(ProtocolError, match=f"the change to table {epoch} does not fit table 1"):
        reducer_0(BALANCER, update_between(REDUCER_TABLES[1], replace(REDUCER_TABLES[2], epoch=epoch)))
    assert same_table(reducer_0.reducer.table, REDUCER_TABLES[1])


def test_a_forwarded_batch_is_taken_whatever_the_credits_and_acknowledged_to_its_mapper() -> None:
    reducer_0 = ReducerWire()
    reducer_0.update(2)
    assert processing(reducer_0(reducer(2), push(["c"] * 5, epoch=2, mapper=7, hops=1))) == ["ccccc"]
    assert [to for to, _ in sent(reducer_0.done(), Ack)] == [mapper(7)]


# --- what cannot come


def test_what_was_not_given_out_cannot_have_been_processed() -> None:
    with pytest.raises(ProtocolError, match="reducer 0 processed a block that it was not given"):
        ReducerWire().done()


@pytest.mark.parametrize(
    "message", [SplitGrant(None), LoadReport(Load(0, 0))], ids=lambda message: type(message).__name__
)
def test_a_message_for_others_is_refused_by_name(message) -> None:
    with pytest.raises(ProtocolError, match=f"reducer 0 cannot take a {type(message).__name__} from coordinator"):
        ReducerWire()(COORDINATOR, message)


def test_an_event_of_a_mapper_is_refused() -> None:
    with pytest.raises(ProtocolError, match="reducer 0 cannot take a MapDone"):
        ReducerWire().reducer.handle(MapDone(None), 0.0)
