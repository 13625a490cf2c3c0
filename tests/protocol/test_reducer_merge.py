"""The reducer's state machine at the end: states change hands, in any order of messages, and nothing comes after."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from builders import Wire, push, same_table, sent, table_giving, told, update_between
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ProtocolError
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import StatePart
from dpa.protocol.channel import Outbox
from dpa.protocol.machine import (
    Finish,
    FinishDone,
    Instruction,
    Pack,
    PackDone,
    ProcessDone,
    Tick,
    Write,
    WriteDone,
)
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Drain,
    Handover,
    Merge,
    Merged,
    Push,
    ReducerReport,
    TableUpdate,
    WriteResult,
    Written,
    mapper,
    reducer,
)
from dpa.protocol.reducer import ReducerMachine, ReducerOptions

FIRST = table_giving({"a": 0, "b": 1, "c": 2})
LAST = table_giving({"a": 1, "b": 0, "c": 2}, epoch=1)


def part(key: str) -> StatePart:
    return StatePart(pa.array([key]), [1], np.ones(1, np.int64), np.ones(1, np.int64))


class Reducer(Wire):
    """Reducer 0 of three, at the end of the stream."""

    def __init__(self) -> None:
        self.reducer = ReducerMachine(0, FIRST, ReducerOptions())
        super().__init__(self.reducer)

    def update(self) -> list[Instruction]:
        """The last table comes."""
        return self(BALANCER, update_between(FIRST, LAST))

    def merge(self, *, exchange: bool = True) -> list[Instruction]:
        """It is told to merge, by the last table if there was another than the first."""
        before = self.update() if exchange else []
        return before + self(COORDINATOR, Merge(int(exchange), exchange))

    def packed(self, **parts: StatePart) -> list[Instruction]:
        """The states of others are out; `to_1=...` are those of reducer 1."""
        return self.reducer.handle(PackDone({int(to[-1]): states for to, states in parts.items()}), 0.0)

    def handover(self, sender: int, states: StatePart | None = None) -> list[Instruction]:
        return self(reducer(sender), Handover(states))


def test_without_an_exchange_the_states_are_finished_at_once() -> None:
    [finish] = told(Reducer().merge(exchange=False), Finish)
    assert finish.parts == ()


def test_with_an_exchange_states_are_packed_by_the_last_table_and_handed_to_every_other_reducer() -> None:
    reducer_0, of_1 = Reducer(), part("a")
    [pack] = reducer_0.merge()
    assert isinstance(pack, Pack) and pack.table is reducer_0.reducer.table and same_table(pack.table, LAST)
    handed = sent(reducer_0.packed(to_1=of_1), Handover)
    assert [(to, message.part) for to, message in handed] == [(reducer(1), of_1), (reducer(2), None)]


def test_states_are_finished_once_every_other_reducer_has_handed_over() -> None:
    reducer_0, of_2 = Reducer(), part("b")
    reducer_0.merge()
    assert told(reducer_0.packed(), Finish) == []
    assert reducer_0.handover(1) == []
    [finish] = reducer_0.handover(2, of_2)
    assert isinstance(finish, Finish) and finish.parts == (of_2,)


@given(st.permutations(["merge", "from 1", "from 2"]))
def test_a_handover_may_come_before_the_merge_message(order: list[str]) -> None:
    reducer_0, parts = Reducer(), {1: part("b"), 2: part("d")}
    finishes = []
    for step in order:
        if step == "merge":
            assert told(reducer_0.merge(), Finish) == []
            finishes += told(reducer_0.packed(), Finish)
        else:
            sender = int(step[-1])
            finishes += told(reducer_0.handover(sender, parts[sender]), Finish)
    [finish] = finishes
    assert finish.parts == (parts[1], parts[2])


def test_a_finished_share_is_reported_with_its_columns_and_written_in_the_schema_of_all() -> None:
    reducer_0 = Reducer()
    reducer_0.merge(exchange=False)
    columns = ShareSchema.of(pa.table({"key": ["a"], "value": pa.nulls(1)}), "key")
    [(to, merged)] = sent(reducer_0.reducer.handle(FinishDone(columns), 0.0), Merged)
    assert (to, merged.stats, merged.schema) == (COORDINATOR, reducer_0.reducer.stats, columns)
    assert reducer_0.reducer.handle(Tick(), 1.0) == []
    whole = pa.schema([("key", pa.string()), ("value", pa.int64())])
    [write] = told(reducer_0(COORDINATOR, WriteResult(whole)), Write)
    assert write.schema == whole
    assert reducer_0.reducer.handle(Tick(), 2.0) == []
    assert sent(reducer_0.reducer.handle(WriteDone(), 2.0), Written) == [(COORDINATOR, Written())]
    assert reducer_0.reducer.state == "finished"
    assert reducer_0.reducer.handle(Tick(), 3.0) == []


@given(st.permutations(["merge", "table 1", "table 2"]))
def test_a_merge_that_overtakes_tables_waits_for_the_last_of_them(order: list[str]) -> None:
    reducer_0, tables = Reducer(), Outbox(BALANCER)
    second = table_giving({"a": 2, "b": 0, "c": 2}, epoch=2)
    updates = {
        "table 1": tables.envelope(reducer(0), update_between(FIRST, LAST)),
        "table 2": tables.envelope(reducer(0), update_between(LAST, second)),
    }
    packs: list[Pack] = []
    for step in order:
        assert packs == []
        if step == "merge":
            packs += told(reducer_0(COORDINATOR, Merge(2, True)), Pack)
        else:
            packs += told(reducer_0.reducer.handle(updates[step], 0.0), Pack)
    [pack] = packs
    assert same_table(pack.table, second)


def test_while_a_merge_waits_for_its_table_others_may_hand_over_and_statistics_are_told() -> None:
    reducer_0 = Reducer()
    assert reducer_0(COORDINATOR, Merge(1, True)) == []
    assert reducer_0.handover(1, part("b")) == [] == reducer_0.handover(2)
    [(to, _)] = sent(reducer_0.reducer.handle(Tick(), 1.0), ReducerReport)
    assert to == COORDINATOR
    assert told(reducer_0.update(), Pack)
    [finish] = told(reducer_0.packed(), Finish)
    assert [states.keys.to_pylist() for states in finish.parts] == [["b"]]


# --- what cannot come


def test_a_merge_cannot_come_while_records_are_queued() -> None:
    reducer_0 = Reducer()
    reducer_0(mapper(0), push(["a", "a"]))
    with pytest.raises(ProtocolError, match="reducer 0 is to merge with 2 records in its queue"):
        reducer_0.merge()


def test_a_merge_cannot_come_while_records_wait_for_their_table() -> None:
    reducer_0 = Reducer()
    reducer_0(mapper(0), push(["a"], epoch=1))
    with pytest.raises(ProtocolError, match="reducer 0 is to merge with 1 records in its queue"):
        reducer_0.merge()


def test_records_cannot_come_after_the_end_of_the_stream() -> None:
    reducer_0 = Reducer()
    reducer_0.merge()
    with pytest.raises(ProtocolError, match="reducer 0 cannot take a Push from mapper 1"):
        reducer_0(mapper(1), push(["a"]))


def streaming() -> Reducer:
    return Reducer()


def merging() -> Reducer:
    reducer_0 = Reducer()
    reducer_0.merge()
    return reducer_0


def merged() -> Reducer:
    reducer_0 = Reducer()
    reducer_0.merge(exchange=False)
    reducer_0.reducer.handle(FinishDone(None), 0.0)
    return reducer_0


def writing() -> Reducer:
    reducer_0 = merged()
    reducer_0(COORDINATOR, WriteResult(None))
    return reducer_0


def finished() -> Reducer:
    reducer_0 = writing()
    reducer_0.reducer.handle(WriteDone(), 0.0)
    return reducer_0


FIRST_UPDATE = update_between(FIRST, LAST)
NEXT = update_between(LAST, table_giving({"a": 2}, epoch=2))
CANNOT_COME = [
    (streaming, PackDone({})),
    (streaming, FinishDone(None)),
    (streaming, WriteResult(None)),
    (streaming, ProcessDone(0.0)),
    (merging, NEXT),
    (merging, Drain()),
    (merging, Merge(1, True)),
    (merging, FinishDone(None)),
    (merging, WriteResult(None)),
    (merging, ProcessDone(0.0)),
    (finished, FIRST_UPDATE),
    (finished, push(["a"])),
    (finished, Drain()),
    (finished, Merge(1, True)),
    (finished, Handover(None)),
    (finished, PackDone({})),
    (finished, FinishDone(None)),
    (finished, WriteResult(None)),
    (finished, WriteDone()),
    (merged, FinishDone(None)),
    (merged, WriteDone()),
    (merged, Handover(None)),
    (writing, FinishDone(None)),
    (writing, WriteResult(None)),
    (finished, ProcessDone(0.0)),
]


@pytest.mark.parametrize(
    ("state", "what"), CANNOT_COME, ids=[f"{type(what).__name__} while {state.__name__}" for state, what in CANNOT_COME]
)
def test_what_cannot_come_in_a_state_is_refused(state, what) -> None:
    reducer_0 = state()
    with pytest.raises(ProtocolError, match="reducer 0"):
        if isinstance(what, TableUpdate):
            reducer_0(BALANCER, what)
        elif isinstance(what, Push | Drain | Merge | Handover | WriteResult):
            reducer_0(COORDINATOR if isinstance(what, Drain | Merge | WriteResult) else reducer(1), what)
        else:
            reducer_0.reducer.handle(what, 0.0)


def test_a_reducer_hands_over_to_another_only_once() -> None:
    reducer_0 = Reducer()
    reducer_0.merge()
    reducer_0.handover(1)
    with pytest.raises(ProtocolError, match="reducer 0"):
        reducer_0.handover(1)
