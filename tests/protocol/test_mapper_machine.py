"""The mapper's state machine: what it asks for, when it pushes and by which table, and how it ends."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from builders import Wire, block_of, records_of, same_table, sent, table_giving, told, update_between
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ProtocolError
from dpa.execution.mapping import Mapped
from dpa.protocol.machine import Instruction, MapDone, MapNext, OpenSplit, ProcessDone, Start, Tick
from dpa.protocol.mapper import MapperMachine
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Ack,
    Drain,
    MapperReport,
    Push,
    SplitGrant,
    SplitRequest,
    reducer,
)
from dpa.protocol.metrics import MapperStats
from dpa.splits import MemorySplit

SPLIT = MemorySplit(pa.table({"key": ["a"]}))
OWNERS = {"a": 0, "b": 1, "c": 1}
TABLE = table_giving(OWNERS)
LATER = table_giving({"a": 1, "b": 0, "c": 1}, epoch=1)
UPDATE = update_between(TABLE, LATER)


class Mapper(Wire):
    """A mapper that has a split open, and what it is told to do."""

    def __init__(self, credit: int = 10, *, mapping: bool = True) -> None:
        self.mapper = MapperMachine(0, TABLE, credit)
        super().__init__(self.mapper)
        self.mapper.handle(Start(), 0.0)
        if mapping:
            self(COORDINATOR, SplitGrant(SPLIT))

    def mapped(self, keys: str | None, *, read: int = 0) -> list[Instruction]:
        """One step of the split is done: a block of these keys (one letter each), or nothing at its end."""
        block = block_of(list(keys)) if keys else None
        step = None if keys is None else Mapped(block, read or len(keys), len(keys))
        return self.mapper.handle(MapDone(step), 0.0)

    def ack(self, records: int, from_reducer: int = 0) -> list[Instruction]:
        return self(reducer(from_reducer), Ack(records))


def pushed(instructions: list[Instruction]) -> dict[int, str]:
    """The keys pushed to each reducer."""
    return {to.index: "".join(key for key, _ in records_of(push.block)) for to, push in sent(instructions, Push)}


# --- asking and mapping


def test_a_mapper_begins_by_asking_for_a_split() -> None:
    instructions = MapperMachine(0, TABLE, 10).handle(Start(), 0.0)
    assert sent(instructions, SplitRequest) == [(COORDINATOR, SplitRequest())]
    assert len(instructions) == 1


def test_a_granted_split_is_opened_and_mapped() -> None:
    instructions = Mapper(mapping=False)(COORDINATOR, SplitGrant(SPLIT))
    assert [type(instruction) for instruction in instructions] == [OpenSplit, MapNext]
    assert instructions[0].split is SPLIT


def test_an_exhausted_split_is_followed_by_a_request_for_the_next() -> None:
    assert sent(Mapper().mapped(None), SplitRequest) == [(COORDINATOR, SplitRequest())]


def test_without_another_split_the_mapper_is_done_and_reports_all_it_did() -> None:
    mapper = Mapper()
    mapper.mapped("abc", read=7)
    mapper.mapped(None)
    instructions = mapper(COORDINATOR, SplitGrant(None))
    stats = MapperStats(0, read=7, mapped=3, emitted=3, static_load=(1, 2))
    assert sent(instructions, MapperReport) == [(COORDINATOR, MapperReport(stats, done=True))]
    assert len(instructions) == 1


def test_a_step_without_records_is_counted_and_the_next_taken() -> None:
    mapper = Mapper()
    instructions = mapper.mapped("", read=9)
    assert told(instructions, MapNext) == [MapNext()]
    assert mapper.mapper.stats.read == 9


# --- pushing


def test_a_block_is_pushed_to_the_owners_of_its_keys_with_the_epoch_of_the_table() -> None:
    instructions = Mapper().mapped("abcab")
    assert pushed(instructions) == {0: "aa", 1: "bcb"}
    assert {(push.epoch, push.mapper, push.hops) for _, push in sent(instructions, Push)} == {(0, 0, 0)}
    assert told(instructions, MapNext) == [MapNext()]


def test_without_credit_a_block_waits_while_one_more_is_mapped_ahead() -> None:
    mapper = Mapper(credit=3)
    assert pushed(mapper.mapped("aaa")) == {0: "aaa"}
    assert told(mapper.mapped("bb"), MapNext) == [MapNext()]
    assert mapper.mapped("cc") == []


def test_an_acknowledgement_lets_what_waits_go_in_order() -> None:
    mapper = Mapper(credit=4)
    for keys in ("aaaa", "b", "cc"):
        mapper.mapped(keys)
    assert pushed(mapper.ack(1)) == {1: "b"}
    assert pushed(mapper.ack(1)) == {}
    assert pushed(mapper.ack(2)) == {1: "cc"}


def test_a_block_that_fits_does_not_overtake_one_that_waits() -> None:
    mapper = Mapper(credit=4)
    for keys in ("aaa", "bb", "c"):
        mapper.mapped(keys)
    assert mapper.mapper.in_flight == 3


def test_a_waiting_block_goes_by_the_table_of_the_moment_when_it_is_pushed() -> None:
    mapper = Mapper(credit=2)
    mapper.mapped("aa")
    mapper.mapped("ab")
    mapper(BALANCER, UPDATE)
    instructions = mapper.ack(2)
    assert pushed(instructions) == {0: "b", 1: "a"}
    assert {push.epoch for _, push in sent(instructions, Push)} == {1}


def test_the_next_table_is_made_of_the_one_before_it() -> None:
    mapper = Mapper()
    assert mapper(BALANCER, UPDATE) == []
    assert same_table(mapper.mapper.table, LATER)


@pytest.mark.parametrize("epoch", [1, 3], ids=["the same again", "one left out"])
def test_a_table_that_is_not_the_very_next_cannot_come(epoch: int) -> None:
    mapper = Mapper()
    mapper(BALANCER, UPDATE)
    with pytest.raises(ProtocolError, match=f"the change to table {epoch} does not fit table 1"):
        mapper(BALANCER, update_between(TABLE, replace(LATER, epoch=epoch)))
    assert same_table(mapper.mapper.table, LATER)


def test_the_static_load_is_counted_by_the_first_table_whatever_was_used() -> None:
    mapper = Mapper()
    mapper(BALANCER, UPDATE)
    mapper.mapped("aab")
    assert mapper.mapper.stats.static_load == (2, 1)


def test_a_mapper_does_not_ask_for_more_while_a_block_waits() -> None:
    mapper = Mapper(credit=2)
    mapper.mapped("aa")
    mapper.mapped("bb")
    assert mapper.mapped(None) == []
    assert sent(mapper.ack(2), SplitRequest) == [(COORDINATOR, SplitRequest())]


@given(st.integers(3, 8), st.lists(st.text("abc", min_size=1, max_size=3), max_size=12), st.data())
def test_credits_are_never_exceeded_and_everything_is_pushed_in_order(credit, blocks, data: st.DataObject) -> None:
    mapper = Mapper(credit)
    unacknowledged: list[int] = []
    arrived = {0: "", 1: ""}
    mapping, todo = True, [*blocks, None]
    while todo or unacknowledged:
        if mapping and todo and (not unacknowledged or data.draw(st.booleans())):
            instructions, mapping = mapper.mapped(todo.pop(0)), False
        elif unacknowledged:
            instructions = mapper.ack(unacknowledged.pop(data.draw(st.integers(0, len(unacknowledged) - 1))))
        for to, push in sent(instructions, Push):
            unacknowledged.append(push.block.rows)
            arrived[to.index] += "".join(key for key, _ in records_of(push.block))
        mapping = mapping or bool(told(instructions, MapNext))
        assert sum(unacknowledged) == mapper.mapper.in_flight <= credit
    everything = "".join(blocks)
    assert arrived == {owner: "".join(key for key in everything if OWNERS[key] == owner) for owner in (0, 1)}


# --- ticks, the end, and what cannot come


def test_a_tick_reports_how_far_the_mapper_is() -> None:
    mapper = Mapper()
    mapper.mapped("ab")
    [(to, report)] = sent(mapper.mapper.handle(Tick(), 1.0), MapperReport)
    assert (to, report.done, report.stats.emitted) == (COORDINATOR, False, 2)


def finished() -> Mapper:
    mapper = Mapper()
    mapper.mapped("ab")
    mapper.mapped(None)
    mapper(COORDINATOR, SplitGrant(None))
    return mapper


def test_a_mapper_that_is_done_takes_credits_back_and_stays_silent() -> None:
    mapper = finished()
    assert mapper.ack(2) == [] == mapper.mapper.handle(Tick(), 1.0) == mapper(BALANCER, UPDATE)
    assert mapper.mapper.in_flight == 0
    assert same_table(mapper.mapper.table, LATER)


@pytest.mark.parametrize("message", [Drain(), SplitRequest()], ids=lambda message: type(message).__name__)
def test_a_message_for_others_is_refused_by_name(message) -> None:
    with pytest.raises(ProtocolError, match=f"mapper 0 cannot take a {type(message).__name__} from coordinator"):
        Mapper()(COORDINATOR, message)


def test_an_event_of_a_reducer_is_refused() -> None:
    with pytest.raises(ProtocolError, match="mapper 0 cannot take a ProcessDone"):
        Mapper().mapper.handle(ProcessDone(0.0), 0.0)


@pytest.mark.parametrize("granted", [SPLIT, None], ids=["a split", "none"])
def test_a_split_cannot_come_while_one_is_mapped(granted: MemorySplit | None) -> None:
    with pytest.raises(ProtocolError, match="mapper 0"):
        Mapper()(COORDINATOR, SplitGrant(granted))


def test_a_split_cannot_come_after_the_last() -> None:
    with pytest.raises(ProtocolError, match="mapper 0"):
        finished()(COORDINATOR, SplitGrant(SPLIT))


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "done"])
def test_a_step_cannot_be_done_while_no_split_is_mapped(waiting: bool) -> None:
    mapper = Mapper(mapping=False) if waiting else finished()
    with pytest.raises(ProtocolError, match="mapper 0"):
        mapper.mapped("a")


def test_more_credits_than_are_in_use_cannot_come_back() -> None:
    mapper = Mapper()
    mapper.mapped("ab")
    with pytest.raises(ProtocolError, match="mapper 0"):
        mapper.ack(3)
