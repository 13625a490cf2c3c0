"""The two sides of a hand-over, one task at a time: what waits for what, whatever comes first."""

from __future__ import annotations

from typing import Any

import pytest
from builders import table_giving
from wires import (
    OperatorWire,
    emitter_for,
    instructed,
    mapper,
    part,
    processing,
    push,
    pushed,
    reducer,
    sent,
)

from dpa.errors import ProtocolError
from dpa.execution.reduce_task import Piece
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR
from dpa.protocol.wire.events import ProcessDone, RangesExtracted, StatesInstalled
from dpa.protocol.wire.instructions import ExtractRanges, InstallStates, Instruction, Send
from dpa.protocol.wire.messages.data import CreditTransfer, Push
from dpa.protocol.wire.messages.exchange import BeginExchange
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer, Settled
from dpa.routing.hashing import ALL_HASHES, hash_key

SENDERS = (mapper(0), mapper(1))


class MigratingWire(OperatorWire):
    """Reducer 0 of three. By table 1 it gives b to reducer 1 and c to reducer 2; by table 2 it takes c over again."""

    def __init__(self, *emitters: Emitter, **options: Any) -> None:
        super().__init__(*emitters, migrates_with=SENDERS, **options)

    def forwarded(self, source: int, keys: str, **changes: Any) -> list[Instruction]:
        """Another task forwards records to this one."""
        return self(reducer(source), push(list(keys), hops=1, **changes))

    def extracted(self, *, of: str = "", is_last: bool = True, **parts: str) -> list[Instruction]:
        """User code has extracted the states of these keys, for the tasks r1, r2 ...; if it is not the last piece, of
        the hash of the key `of`."""
        interval = (hash_key(of), hash_key(of)) if of else ALL_HASHES
        piece = Piece({int(to[1:]): part(*keys) for to, keys in parts.items()}, interval, is_last)
        return self.task.handle(RangesExtracted(piece), 0.0)

    def installed(self) -> list[Instruction]:
        return self.task.handle(StatesInstalled(), 0.0)

    def marker(self, index: int, version: int = 1) -> list[Instruction]:
        return self(mapper(index), Marker(version))

    def give(self) -> None:
        """The whole hand-over of table 1."""
        self.update(1)
        self.extracted()
        self.marker(0)
        self.marker(1)

    def take(self) -> None:
        """The whole hand-over of table 1, and table 2."""
        self.give()
        self.update(2)


def settled(instructions: list[Instruction]) -> list[int]:
    return [message.version for to, message in sent(instructions, Settled) if to == BALANCER]


def passed(instructions: list[Instruction]) -> list[tuple[int, list[int]]]:
    """To which tasks the markers of which mappers are passed on."""
    found = sent(instructions, PassedMarkers)
    return [(to.index, [sender.index for sender in message.senders]) for to, message in found]


# --- giving


def test_states_are_extracted_when_user_code_returns_and_what_moved_leaves_after_them() -> None:
    wire = MigratingWire(most=3)
    wire.push("abc")
    wire.push("abcb")
    began = wire.update(1)
    assert pushed(began) == [] and instructed(began, ExtractRanges) == [], "user code is at work"
    turned = wire.done()
    [extract] = instructed(turned, ExtractRanges)
    assert extract.table is wire.task.table and processing(turned) == [], "user code takes turns"
    done = wire.extracted(r1="b", r2="c")
    messages = [instruction.envelope.message for instruction in done if isinstance(instruction, Send)]
    kinds = [type(message) for message in messages if not isinstance(message, CreditTransfer)]
    assert kinds == [RangeTransfer, RangeTransfer, Push, Push], "states first"
    transfers = [(to.index, message.part.keys.to_pylist()) for to, message in sent(done, RangeTransfer)]
    assert transfers == [(1, ["b"]), (2, ["c"])]
    assert pushed(done) == [(1, "bb"), (2, "c")]
    assert processing(done) == ["a"]


def test_markers_are_passed_on_after_the_states_and_the_last_one_settles_the_table() -> None:
    wire = MigratingWire()
    wire.update(1)
    assert wire.marker(1) == []
    first = wire.extracted(r1="b")
    assert passed(first) == [(1, [1]), (2, [1])] and settled(first) == []
    kinds = [type(each.envelope.message) for each in first if isinstance(each, Send)]
    assert kinds.index(PassedMarkers) > kinds.index(RangeTransfer)
    last = wire.marker(0)
    assert passed(last) == [(1, [0]), (2, [0])] and settled(last) == [1]


def test_a_marker_may_come_before_its_table() -> None:
    wire = MigratingWire()
    assert wire.marker(0) == wire.marker(1) == []
    wire.update(1)
    done = wire.extracted()
    assert passed(done) == [(1, [0, 1]), (2, [0, 1])] and settled(done) == [1]


def test_a_task_between_which_and_others_nothing_moves_has_settled_at_once() -> None:
    owners = {"a": 0, "b": 1, "c": 2}
    tables = [table_giving(owners), table_giving({**owners, "b": 2}, version=1)]
    assert settled(MigratingWire(tables=tables).update(1)) == [1]


def test_extraction_does_not_wait_for_credit_downstream() -> None:
    emitter = emitter_for(table_giving({"x": 0}), credit=1, stage="next", origin=reducer())
    wire = MigratingWire(emitter)
    wire.push("a")
    wire.task.handle(ProcessDone(0.0, ((0, push(list("xxx")).block),)), 0.0)
    assert not emitter.is_open
    assert instructed(wire.update(1), ExtractRanges)
    wire.push("a")
    assert processing(wire.extracted()) == [], "but processing does"


@pytest.mark.parametrize("version", [0, 2])
def test_a_marker_of_another_table_is_an_error(version: int) -> None:
    wire = MigratingWire()
    with pytest.raises(ProtocolError, match=f"reducer 0 cannot take a marker of table {version} from mapper 0"):
        wire.marker(0, version)


def test_a_sender_marks_a_table_once() -> None:
    wire = MigratingWire()
    wire.update(1)
    wire.marker(0)
    with pytest.raises(ProtocolError, match="cannot take a marker of table 1 from mapper 0"):
        wire.marker(0)


def test_the_next_table_cannot_come_before_this_one_is_settled() -> None:
    wire = MigratingWire()
    wire.update(1)
    with pytest.raises(ProtocolError, match="reducer 0 got table 2 before 1 was settled"):
        wire.update(2)


def test_states_leave_in_pieces_and_the_records_of_each_piece_with_it() -> None:
    wire = MigratingWire()
    wire.push("a")
    wire.update(1)
    wire.push("bcb")
    wire.marker(0)
    assert instructed(wire.done(), ExtractRanges)[0].most == 100
    first = wire.extracted(of="c", is_last=False, r2="c")
    hashed = (hash_key("c"), hash_key("c"))
    found = [(to.index, message.interval, message.is_last) for to, message in sent(first, RangeTransfer)]
    assert found == [(1, hashed, False), (2, hashed, False)]
    assert pushed(first) == [(2, "c")] and passed(first) == [(1, [0]), (2, [0])]
    assert instructed(first, ExtractRanges), "there are no records to process meanwhile"
    assert pushed(wire.push("cb")) == [(2, "c")], "its state is given"
    assert passed(wire.marker(1)) == [(1, [1]), (2, [1])], "of what is given"
    last = wire.extracted(r1="b")
    assert [(to.index, message.is_last) for to, message in sent(last, RangeTransfer)] == [(1, True), (2, True)]
    assert pushed(last) == [(1, "bb"), (1, "b")]
    assert passed(last) == [(1, [0, 1]), (2, [0, 1])] and settled(last) == [1]


def test_user_code_gets_records_between_two_pieces() -> None:
    wire = MigratingWire(most=1)
    wire.update(1)
    wire.push("aaaa")
    between = wire.extracted(of="c", is_last=False)
    assert processing(between) == ["a"] and instructed(between, ExtractRanges) == []
    between = wire.done(now=0.05)
    assert processing(between) == ["a"] and instructed(between, ExtractRanges) == []
    assert instructed(wire.done(now=0.11), ExtractRanges), "others wait for their states"
    assert processing(wire.extracted(of="c", is_last=False)) == ["a"]
    wire.done()
    assert instructed(wire.done(), ExtractRanges), "no record is left"


# --- taking over


def test_forwarded_records_come_before_the_waiting_ones_of_their_sender() -> None:
    wire = MigratingWire(most=1)
    wire.take()
    wire.push("c", version=2, read_at=9.0)
    wire(reducer(2), RangeTransfer(2, None))
    assert processing(wire.forwarded(2, "c", version=2, read_at=1.0)) == ["c"]
    wire.forwarded(2, "c", version=2, read_at=2.0)
    wire(reducer(2), PassedMarkers(2, SENDERS))
    order = [wire.task.working_on.read_at]
    for _ in range(2):
        wire.done()
        order.append(wire.task.working_on.read_at)
    assert order == [1.0, 2.0, 9.0]


def test_what_comes_before_its_table_is_kept_for_it() -> None:
    wire = MigratingWire()
    wire.give()
    assert wire.push("c", version=2) == []
    assert wire(reducer(2), RangeTransfer(2, part("c"))) == []
    assert wire.forwarded(2, "c", version=2) == []
    assert wire(reducer(2), PassedMarkers(2, SENDERS)) == []
    assert not wire.task.idle
    assert instructed(wire.update(2), InstallStates)
    after = wire.installed()
    assert processing(after) == ["c"] and settled(after) == [2]
    assert processing(wire.done()) == ["c"]
    wire.done()
    assert wire.task.idle


def test_waiting_records_are_queued_as_far_as_their_sender_has_marked_each_task_that_gives() -> None:
    """Two tasks give ranges; a push has records of both."""
    tables = [table_giving({"a": 0, "b": 1, "c": 2}), table_giving({"a": 0, "b": 0, "c": 0}, version=1, reducers=3)]
    wire = MigratingWire(tables=tables)
    wire.update(1)
    assert processing(wire.push("cabb", version=1)) == ["a"]
    wire.done()
    for source in (1, 2):
        wire(reducer(source), RangeTransfer(1, None))
    assert processing(wire(reducer(1), PassedMarkers(1, (mapper(0),)))) == ["bb"]
    wire.done()
    assert processing(wire(reducer(2), PassedMarkers(1, (mapper(0),)))) == ["c"]
    assert wire.task.queue.length == 1


def test_a_record_by_an_older_table_is_forwarded_at_once_though_user_code_is_at_work() -> None:
    """Else its sender's marker would be passed on before it."""
    tables = [table_giving({"a": 0, "b": 0, "c": 1}), table_giving({"a": 0, "b": 1, "c": 0}, version=1, reducers=2)]
    wire = MigratingWire(tables=tables)
    wire.update(1)
    wire.extracted(r1="b")
    assert processing(wire.push("a")) == ["a"]
    assert pushed(wire.push("b")) == [(1, "b")]


def test_records_wait_for_their_own_piece_alone() -> None:
    tables = [table_giving({"a": 0, "b": 1, "c": 1}), table_giving({"a": 0, "b": 0, "c": 0}, version=1, reducers=2)]
    wire = MigratingWire(tables=tables)
    wire.update(1)
    wire.push("bcb", version=1)
    hashed = (hash_key("c"), hash_key("c"))
    wire(reducer(1), RangeTransfer(1, part("c"), hashed, is_last=False))
    wire.installed()
    assert processing(wire(reducer(1), PassedMarkers(1, SENDERS))) == ["c"]
    wire.done()
    assert processing(wire.push("cb", version=1)) == ["c"]
    wire.done()
    wire(reducer(1), RangeTransfer(1, part("b")))
    wire.installed()
    assert settled(wire(reducer(1), PassedMarkers(1, (mapper(1),)))) == []
    last = wire(reducer(1), PassedMarkers(1, (mapper(0),)))
    assert processing(last) == ["bb"] and settled(last) == [1]


def test_waiting_records_count_as_queued() -> None:
    wire = MigratingWire()
    wire.take()
    wire.push("cc", version=2)
    assert wire.task.queue.length == 2 and wire.task.has_records and not wire.task.queue.has_next


@pytest.mark.parametrize(
    "message", [RangeTransfer(3, None), PassedMarkers(3, SENDERS), PassedMarkers(2, SENDERS)], ids=str
)
def test_what_cannot_come_from_a_task_that_gives_is_an_error(message) -> None:
    """Of another table, or markers before the states."""
    wire = MigratingWire()
    wire.take()
    with pytest.raises(ProtocolError, match=f"reducer 0 cannot take a {type(message).__name__} of table"):
        wire(reducer(2), message)


def test_ranges_of_a_table_after_the_next_are_an_error() -> None:
    wire = MigratingWire()
    with pytest.raises(ProtocolError, match="has settled table 0, cannot take ranges of table 2 from reducer 1"):
        wire(reducer(1), RangeTransfer(2, None))


def test_a_stage_cannot_end_before_the_last_table_is_settled() -> None:
    wire = MigratingWire()
    wire.update(1)
    with pytest.raises(ProtocolError, match="reducer 0 is to finish before table 1 is settled"):
        wire(COORDINATOR, BeginExchange(1, 1, last=True, transfer=False))
