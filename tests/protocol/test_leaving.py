"""A task that leaves, one message at a time: nothing of it is on its way when it has left."""

from __future__ import annotations

import pyarrow as pa
import pytest
from wires import (
    REDUCER_TABLES,
    SPLIT,
    OperatorWire,
    SourceWire,
    emitter_for,
    instructed,
    mapper,
    part,
    processing,
    pushed,
    reducer,
    sent,
    update_between,
)

from dpa.errors import ProtocolError
from dpa.execution.publishing import EmittedRows
from dpa.execution.reduce_task import Piece
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import RangesExtracted, Tick
from dpa.protocol.wire.instructions import CloseSplit, ExtractRanges, InstallStates, Instruction
from dpa.protocol.wire.messages.cuts import GoOn
from dpa.protocol.wire.messages.data import Ack, CreditTransfer
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.messages.exchange import BeginExchange
from dpa.protocol.wire.messages.members import Flush, Flushed, Leave, Left
from dpa.protocol.wire.messages.migration import Marker, RangeTransfer, Settled
from dpa.protocol.wire.messages.splits import SplitGrant, SplitRequest, SplitReturned
from dpa.routing.hashing import ALL_HASHES
from dpa.routing.members import MemberChange, with_members

SENDERS = (mapper(0), mapper(1))
WITHOUT_0 = with_members(REDUCER_TABLES[0], MemberChange(leaves=(0,)), {})
WITHOUT_1 = with_members(REDUCER_TABLES[0], MemberChange(leaves=(1,)), {})
NEXT = Address("next")
ROWS = EmittedRows(pa.record_batch({"key": ["a"]}))


class LeavingWire(OperatorWire):
    """Reducer 0 of three, in merge mode: by table 1 it is no member any more."""

    def __init__(self, *, eager: bool = True, drain_seconds: float = 0.0) -> None:
        tables = [REDUCER_TABLES[0], WITHOUT_0]
        super().__init__(eager=eager, tables=tables, merges_with=SENDERS, drain_seconds=drain_seconds)

    def extracted(self) -> list[Instruction]:
        piece = Piece({1: part("a")}, ALL_HASHES, is_last=True, rows=(ROWS,))
        return self.task.handle(RangesExtracted(piece), 0.0)

    def marked(self) -> list[Instruction]:
        """All others have marked table 1."""
        others = (*SENDERS, reducer(1), reducer(2))
        return [instruction for other in others for instruction in self(other, Marker(1))]


def test_a_task_that_leaves_forwards_its_records_and_gives_all_its_states() -> None:
    wire = LeavingWire()
    wire.push("a")
    wire.push("bc", origin=mapper(1))
    began = wire.update(1)
    assert sorted(keys for _, keys in pushed(began)) in (["bc"], ["b", "c"]) and instructed(began, ExtractRanges) == []
    assert len(instructed(wire.done(), ExtractRanges)) == 1, "when user code returns"
    given = wire.extracted()
    transfers = {to.index: message for to, message in sent(given, RangeTransfer)}
    assert transfers.keys() == {1, 2} and transfers[1].part is not None and transfers[2].part is None
    assert transfers[1].rows == (ROWS,) and transfers[2].rows == (), "one task writes what it has emitted"
    assert sent(given, Settled) == []


def test_a_task_that_leaves_first_processes_what_is_queued() -> None:
    wire = LeavingWire(drain_seconds=2.0)
    wire.push("a")
    wire.push("bc", origin=mapper(1))
    began = wire.update(1)
    assert pushed(began) == [] and sent(began, Settled) == []
    wire.push("d")
    assert [processing(wire.done()) for _ in range(2)] == [["bc"], ["d"]]
    ended = wire.done()
    assert pushed(ended) == [] and len(instructed(ended, ExtractRanges)) == 1


def test_a_task_that_leaves_hands_over_what_it_has_not_processed_in_time() -> None:
    wire = LeavingWire(drain_seconds=2.0)
    wire.push("a")
    wire.push("bc", origin=mapper(1))
    wire.update(1)
    assert pushed(wire.task.handle(Tick(), 1.9)) == []
    assert sorted("".join(keys for _, keys in pushed(wire.task.handle(Tick(), 2.0)))) == ["b", "c"]
    assert len(instructed(wire.done(now=2.1), ExtractRanges)) == 1, "when user code returns"


def test_a_task_that_leaves_gives_its_states_once_it_has_forwarded_what_was_queued() -> None:
    without = with_members(REDUCER_TABLES[1], MemberChange(leaves=(0,)), {})
    tables = [*REDUCER_TABLES[:2], without]
    wire = OperatorWire(eager=False, tables=tables, merges_with=SENDERS, drain_seconds=2.0)
    wire.push("a")
    wire.push("b", origin=mapper(1))
    wire.update(2)
    ended = wire.done()
    assert pushed(ended) == [(1, "b")] and len(instructed(ended, ExtractRanges)) == 1, "no tick needs to come"


@pytest.mark.parametrize("eager", [True, False])
def test_a_task_has_left_when_all_others_say_that_everything_has_come(eager: bool) -> None:
    wire = LeavingWire(eager=eager)
    wire.update(1)
    wire.extracted()
    for other in (*SENDERS, reducer(1)):
        assert sent(wire(other, Marker(1)), Settled) == []
    assert pushed(wire.push("a")) != [], "a sender may still go by the table before"
    done = wire(reducer(2), Marker(1))
    assert sent(done, Settled) == [(BALANCER, Settled(1))]
    assert [to for to, _ in sent(done, Flush)] == [*SENDERS, reducer(1), reducer(2)] and sent(done, Left) == []
    assert wire(COORDINATOR, GoOn(draining=False)) == [], "of a cut that was before, and late"
    for other in (*SENDERS, reducer(2)):
        assert sent(wire(other, Flushed()), Left) == []
    [(receiver, _)] = sent(wire(reducer(1), Flushed()), Left)
    assert receiver == COORDINATOR
    assert wire(COORDINATOR, GoOn(draining=False)) == [], "of a cut that was before, and late"
    with pytest.raises(ProtocolError, match="cannot take a Push"):
        wire.push("a")


def test_markers_may_come_before_their_table() -> None:
    wire = LeavingWire()
    wire.marked()
    wire.update(1)
    assert sent(wire.extracted(), Settled) == [(BALANCER, Settled(1))]


def test_those_who_stay_mark_the_table_and_merge_what_they_get() -> None:
    wire = OperatorWire(tables=[REDUCER_TABLES[0], WITHOUT_1], merges_with=SENDERS)
    wire(reducer(1), RangeTransfer(1, part("x"), rows=(ROWS,)))
    began = wire.update(1)
    assert sent(began, Marker) == [(reducer(1), Marker(1))] and sent(began, Settled) == []
    [install] = instructed(began, InstallStates)
    assert install.merges and install.rows == (ROWS,)
    assert sent(wire(reducer(1), Flush()), Flushed) == [(reducer(1), Flushed())]


def test_a_source_has_left_when_all_that_it_has_emitted_is_processed() -> None:
    source = SourceWire(emitter_for(REDUCER_TABLES[0]))
    source.stepped("ab")
    source(COORDINATOR, Leave())
    source.exhausted()
    done = source(COORDINATOR, SplitGrant(None))
    assert any(message.done for _, message in sent(done, Progress)) and sent(done, Left) == []
    assert sent(source(reducer(0), Ack(0, 1)), Left) == []
    [(receiver, left)] = sent(source(reducer(0), Ack(0, 1)), Left)
    assert (receiver, left.stats.emitted) == (COORDINATOR, (2,))


def test_that_records_were_forwarded_may_be_heard_after_their_acknowledgements_by_a_source_that_has_left() -> None:
    emitter = emitter_for(REDUCER_TABLES[0])
    source = SourceWire(emitter)
    source(COORDINATOR, Leave())
    source.exhausted()
    assert sent(source(COORDINATOR, SplitGrant(None)), Left) != []
    assert source(reducer(0), CreditTransfer(0, 1, receiver=1)) == []
    assert emitter.in_flight_to == {0: -1, 1: 1}


def test_that_records_were_forwarded_may_be_heard_by_a_task_that_is_leaving_or_has_left() -> None:
    emitter = emitter_for(REDUCER_TABLES[0])
    wire = OperatorWire(emitter, tables=[REDUCER_TABLES[0], WITHOUT_0], merges_with=SENDERS)
    wire.update(1)
    wire.task.handle(RangesExtracted(Piece({1: part("a")}, ALL_HASHES, is_last=True, rows=(ROWS,))), 0.0)
    others = (*SENDERS, reducer(1), reducer(2))
    assert [message for other in others for message in sent(wire(other, Marker(1)), Flush)]
    assert wire(NEXT, CreditTransfer(0, 1, receiver=1)) == []
    assert [message for other in others for message in sent(wire(other, Flushed()), Left)]
    assert wire(NEXT, CreditTransfer(0, 1, receiver=1)) == []
    assert emitter.in_flight_to == {0: -2, 1: 2}


def test_that_records_were_forwarded_may_be_heard_while_states_are_exchanged() -> None:
    emitter = emitter_for(REDUCER_TABLES[0])
    wire = OperatorWire(emitter)
    wire(COORDINATOR, BeginExchange(1, version=0, last=True))
    assert wire(NEXT, CreditTransfer(0, 1, receiver=1)) == []
    assert emitter.in_flight_to == {0: -1, 1: 1}


def test_a_source_that_leaves_gives_back_what_it_has_not_read() -> None:
    source = SourceWire(emitter_for(REDUCER_TABLES[0]))
    source.stepped("ab")
    assert instructed(source(COORDINATOR, Leave()), CloseSplit) == [CloseSplit()]
    asked = source.exhausted()
    assert sent(asked, SplitReturned) == [(COORDINATOR, SplitReturned(2))]
    assert sent(asked, SplitRequest) == [(COORDINATOR, SplitRequest())]


def test_a_source_that_gets_the_rest_again_reads_it_to_the_end() -> None:
    source = SourceWire(emitter_for(REDUCER_TABLES[0]))
    source(COORDINATOR, Leave())
    source.exhausted()
    source(COORDINATOR, SplitGrant(SPLIT))
    source.stepped("a")
    asked = source.exhausted()
    assert sent(asked, SplitReturned) == [] and sent(asked, SplitRequest) == [(COORDINATOR, SplitRequest())]


def test_a_source_that_reads_nothing_gives_nothing_back() -> None:
    source = SourceWire(emitter_for(REDUCER_TABLES[0]))
    source.exhausted()
    assert instructed(source(COORDINATOR, Leave()), CloseSplit) == []
    assert sent(source(COORDINATOR, SplitGrant(None)), SplitReturned) == []


def test_a_sender_marks_the_channel_to_a_task_that_leaves() -> None:
    source = SourceWire(emitter_for(REDUCER_TABLES[0]))
    done = source(BALANCER, update_between(REDUCER_TABLES[0], WITHOUT_0))
    assert sent(done, Marker) == [(reducer(0), Marker(1))]
    assert {index for index, _ in pushed(source.stepped("abc"))} <= {1, 2}
