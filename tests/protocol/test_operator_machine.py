"""An operator task while records flow: order, ownership, forwarding, acknowledgements and what it emits meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import block_of, same_table, table_giving
from hypothesis import given
from hypothesis import strategies as st
from wires import (
    REDUCER_TABLES,
    OperatorWire,
    emitter_for,
    instructed,
    keys_of,
    mapper,
    processing,
    push,
    pushed,
    reducer,
    sent,
    update_between,
)

from dpa.errors import ProtocolError
from dpa.measure.load import Load
from dpa.protocol.flow_control import FlowControl, QuantumSizer
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import ProcessDone, Tick
from dpa.protocol.wire.instructions import Instruction, ProcessBlock
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.protocol.wire.messages.splits import SplitGrant
from dpa.protocol.wire.messages.tables import LoadReport

both_ways = pytest.mark.parametrize("eager", [True, False], ids=["eager", "lazy"])


# --- the queue


def test_records_are_processed_one_batch_at_a_time_in_the_order_of_arrival() -> None:
    reducer_0 = OperatorWire()
    assert processing(reducer_0.push("aab")) == ["aab"]
    assert processing(reducer_0.push("c")) == []
    assert reducer_0.task.queue.length == 4
    assert processing(reducer_0.done()) == ["c"]
    assert processing(reducer_0.done()) == []
    assert (reducer_0.task.queue.length, reducer_0.task.queue.peak, reducer_0.task.processed) == (0, 4, 4)


def test_an_acknowledgement_returns_the_credit_of_an_edge_to_the_task_that_emitted_the_records() -> None:
    reducer_0, other = OperatorWire(), Address("quotes", 1)
    reducer_0.push("aab", origin=mapper(3), edge=2)
    reducer_0.push("ca", origin=other, edge=5)
    assert sent(reducer_0.done(), Ack) == [(mapper(3), Ack(edge=2, records=3))]
    reducer_0.update(1)
    assert sent(reducer_0.done(), Ack) == [(other, Ack(edge=5, records=2))]


def test_a_long_batch_is_processed_in_quanta() -> None:
    reducer_0 = OperatorWire(most=2)
    quanta = processing(reducer_0.push("abcab"))
    while reducer_0.task.queue.length:
        quanta += processing(reducer_0.done())
    assert quanta == ["ab", "ca", "b"]


@given(st.integers(1, 200), st.lists(st.tuples(st.integers(1, 200), st.floats(0, 10)), max_size=10))
def test_quanta_adapt_to_the_speed_of_user_code_within_their_bounds(
    most: int, observed: list[tuple[int, float]]
) -> None:
    sizer = QuantumSizer(FlowControl(quantum_records=most))
    for records, seconds in observed:
        before = sizer.size
        sizer.observe(records, seconds)
        assert 1 <= sizer.size <= min(most, 8 * before)
        if seconds > 0:
            assert sizer.size <= max(1, records * 0.1 / seconds)


# --- tables and forwarding


@both_ways
def test_a_batch_of_an_older_version_is_split_and_what_moved_is_forwarded(eager: bool) -> None:
    reducer_0 = OperatorWire(eager=eager)
    reducer_0.update(1)
    instructions = reducer_0.push("abcab", origin=mapper(2))
    assert pushed(instructions) == [(1, "bb"), (2, "c")]
    assert processing(instructions) == ["aa"]
    messages = [message for _, message in sent(instructions, Push)]
    assert {(message.version, message.origin, message.hops) for message in messages} == {(1, mapper(2), 1)}
    assert (reducer_0.task.queue.length, reducer_0.task.queue.forwarded_out) == (2, 3)


@both_ways
def test_an_older_batch_that_comes_while_user_code_works_is_forwarded_at_once_or_in_its_turn(
    eager: bool,
) -> None:
    reducer_0 = OperatorWire(eager=eager)
    reducer_0.push("aa")
    reducer_0.update(1)
    at_once, in_turn = reducer_0.push("ab"), reducer_0.done()
    assert [pushed(at_once), pushed(in_turn)] == ([[(1, "b")], []] if eager else [[], [(1, "b")]])
    assert processing(in_turn) == ["a"]


def test_eagerly_what_moved_is_forwarded_as_soon_as_the_table_comes() -> None:
    reducer_0 = OperatorWire(eager=True)
    for keys in ("ab", "bc", "ac"):
        reducer_0.push(keys)
    assert pushed(reducer_0.update(1)) == [(1, "b"), (2, "c"), (2, "c")]
    assert reducer_0.task.queue.length == 3
    assert processing(reducer_0.done()) == ["a"]


def test_lazily_what_moved_is_forwarded_when_it_reaches_the_head() -> None:
    reducer_0 = OperatorWire(eager=False)
    for keys in ("ab", "bc", "ac"):
        reducer_0.push(keys)
    assert reducer_0.update(1) == []
    instructions = reducer_0.done()
    assert pushed(instructions) == [(1, "b"), (2, "c"), (2, "c")]
    assert processing(instructions) == ["a"]


@both_ways
def test_what_user_code_works_on_already_is_not_forwarded(eager: bool) -> None:
    reducer_0 = OperatorWire(eager=eager, most=2)
    reducer_0.push("bcbcb")
    instructions = reducer_0.update(1) + reducer_0.done()
    assert (mapper(0), 2) in [(to, ack.records) for to, ack in sent(instructions, Ack)]
    assert sorted(pushed(instructions)) == [(1, "bb"), (2, "c")]
    assert (reducer_0.task.processed, reducer_0.task.queue.forwarded_out, reducer_0.task.queue.length) == (2, 3, 0)


@both_ways
def test_a_batch_of_a_newer_version_waits_for_its_table(eager: bool) -> None:
    reducer_0 = OperatorWire(eager=eager)
    assert reducer_0.push("ac", version=2) == []
    assert (reducer_0.task.queue.length, reducer_0.task.idle) == (2, False)
    assert reducer_0.update(1) == []
    instructions = reducer_0.update(2)
    assert processing(instructions) == ["ac"]
    assert instructed(instructions, ProcessBlock)[0].version == 2


@both_ways
def test_a_batch_that_waited_is_forwarded_if_an_even_newer_table_moves_it(eager: bool) -> None:
    reducer_0 = OperatorWire(eager=eager)
    reducer_0.update(1)
    reducer_0.push("ac", version=2)
    assert processing(reducer_0.push("a", version=1)) == ["a"]
    assert reducer_0.update(2) == []
    instructions = reducer_0(BALANCER, update_between(REDUCER_TABLES[2], table_giving({"a": 2, "c": 0}, version=3)))
    instructions += reducer_0.done()
    assert (pushed(instructions), processing(instructions)) == ([(2, "a")], ["c"])


@both_ways
@pytest.mark.parametrize("version", [1, 3], ids=["the same again", "one left out"])
def test_a_table_that_is_not_the_very_next_cannot_come(eager: bool, version: int) -> None:
    reducer_0 = OperatorWire(eager=eager)
    reducer_0.update(1)
    with pytest.raises(ProtocolError, match=f"the change to table {version} does not fit table 1"):
        reducer_0(BALANCER, update_between(REDUCER_TABLES[1], replace(REDUCER_TABLES[2], version=version)))
    assert same_table(reducer_0.task.table, REDUCER_TABLES[1])


def test_a_forwarded_batch_is_taken_whatever_the_credits_and_acknowledged_to_its_origin() -> None:
    reducer_0 = OperatorWire()
    reducer_0.update(2)
    assert processing(reducer_0(reducer(2), push(["c"] * 5, version=2, origin=mapper(7), hops=1))) == ["ccccc"]
    assert [to for to, _ in sent(reducer_0.done(), Ack)] == [mapper(7)]


# --- what cannot come


def test_what_was_not_given_out_cannot_have_been_processed() -> None:
    with pytest.raises(ProtocolError, match="reducer 0 processed a block that it was not given"):
        OperatorWire().done()


@pytest.mark.parametrize(
    "message", [SplitGrant(None), LoadReport(Load(0, 0))], ids=lambda message: type(message).__name__
)
def test_a_message_for_others_is_refused_by_name(message) -> None:
    with pytest.raises(ProtocolError, match=f"reducer 0 cannot take a {type(message).__name__} from coordinator"):
        OperatorWire()(COORDINATOR, message)


# --- records that are emitted while others are processed


class EmittingWire(OperatorWire):
    """Reducer 0 of three, whose records go on to the one task of the stage `next`, with credit for two of them."""

    def __init__(self, **options) -> None:
        self.emitter = emitter_for(table_giving({"r": 0}), 2, edge=1, stage="next", origin=reducer())
        super().__init__(self.emitter, **options)

    def emitted(self, records: int, now: float = 0.0) -> list[Instruction]:
        """The quantum at hand is processed, and has emitted this many records."""
        blocks = ((0, block_of(["r"] * records)),) if records else ()
        return self.task.handle(ProcessDone(0.0, blocks), now)

    def ack(self, records: int, now: float = 0.0) -> list[Instruction]:
        return self(Address("next"), Ack(1, records), now)


def test_emitted_records_are_pushed_downstream_with_the_source_time_of_what_they_are_made_of() -> None:
    task = EmittingWire()
    task.push("a", read_at=1.5)
    [(to, message)] = sent(task.emitted(2, now=3.0), Push)
    assert (to, keys_of(message), message.origin, message.edge) == (Address("next"), "rr", reducer(), 1)
    assert (message.read_at, message.emitted_at) == (1.5, 3.0)
    assert task.task.stats.emitted == (2,)


def test_a_task_that_cannot_emit_acknowledges_what_it_has_processed_and_takes_up_no_more() -> None:
    task = EmittingWire(most=1)
    task.push("aaaa")
    assert processing(task.emitted(2)) == ["a"]  # one block may be made ahead
    instructions = task.emitted(2)
    assert sent(instructions, Ack) == [(mapper(), Ack(0, 1))]
    assert processing(instructions) == []
    assert (task.task.queue.length, task.task.idle) == (2, False)
    freed = task.ack(2)
    assert [keys_of(message) for _, message in sent(freed, Push)] == ["rr"]
    assert processing(freed) == ["a"]


def test_a_task_is_blocked_while_its_queue_has_records_that_credit_keeps_it_from_processing() -> None:
    task = EmittingWire(most=1)
    task.push("aa")
    for now, records in ((1.0, 2), (2.0, 2)):
        task.emitted(records, now)
    task.task.handle(Tick(), 10.0)
    assert task.task.stats.blocked_seconds == 0.0  # nothing is queued
    task.push("aa", now=11.0)
    task.ack(2, 13.0)
    task.task.handle(Tick(), 20.0)
    assert task.task.stats.blocked_seconds == 2.0


def test_a_table_of_the_stage_downstream_is_that_of_the_edge() -> None:
    task = EmittingWire()
    later = table_giving({"r": 0}, version=1)
    assert task(BALANCER, update_between(task.emitter.table, later, "next")) == []
    assert (task.emitter.table.version, task.task.table.version) == (1, 0)
