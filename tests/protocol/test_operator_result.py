"""An operator task at the end of an epoch and of its stage: states change hands in any order of messages, and its share
is staged, or finished, written and emitted; and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from builders import same_table, table_giving
from hypothesis import given
from hypothesis import strategies as st
from wires import (
    REDUCER_TABLES,
    OperatorWire,
    emitter_for,
    instructed,
    keys_of,
    mapper,
    part,
    push,
    reducer,
    sent,
    step_of,
    update_between,
)

from dpa.errors import ProtocolError
from dpa.execution.reduce_task import Piece
from dpa.execution.schemas import ShareSchema
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.operator import OperatorState
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.channel import Outbox
from dpa.protocol.wire.events import (
    ExtractDone,
    FinishDone,
    ProcessDone,
    PublishDone,
    RangesExtracted,
    StepDone,
    Tick,
    WriteDone,
)
from dpa.protocol.wire.instructions import Extract, Finish, Instruction, NextStep, OpenResult
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.protocol.wire.messages.end import Deliver, Finished, Progress
from dpa.protocol.wire.messages.exchange import BeginExchange, Published, StateTransfer
from dpa.protocol.wire.messages.migration import Marker, PassedMarkers, RangeTransfer
from dpa.routing.hashing import ALL_HASHES

FIRST, SECOND, THIRD = REDUCER_TABLES


def finishing(*emitters: Emitter, goes_by_table: bool = True, keys: str = "") -> tuple[OperatorWire, Finish]:
    """Reducer 0 of three, which has processed these keys, at the end of its stage, where no states move."""
    task = OperatorWire(*emitters, goes_by_table=goes_by_table)
    if keys:
        task.push(keys)
        task.done()
    [finish] = instructed(task(COORDINATOR, BeginExchange(1, 0, last=True, transfer=False)), Finish)
    assert finish.parts == ()
    return task, finish


def delivering(*emitters: Emitter) -> OperatorWire:
    task, _ = finishing(*emitters)
    task.task.handle(FinishDone(None), 0.0)
    task(COORDINATOR, Deliver(None))
    return task


@given(st.permutations(["begin", "table 1", "table 2"]))
def test_an_exchange_that_overtakes_tables_waits_for_the_last_of_them(order: list[str]) -> None:
    task, tables = OperatorWire(), Outbox(BALANCER)
    updates = {
        "table 1": tables.envelope(reducer(), update_between(FIRST, SECOND)),
        "table 2": tables.envelope(reducer(), update_between(SECOND, THIRD)),
    }
    extracts: list[Extract] = []
    for step in order:
        assert extracts == []
        if step == "begin":
            extracts += instructed(task(COORDINATOR, BeginExchange(1, 2, last=True)), Extract)
        else:
            extracts += instructed(task.task.handle(updates[step], 0.0), Extract)
    [extract] = extracts
    assert same_table(extract.table, THIRD)


def test_a_staged_share_is_reported_with_what_it_took() -> None:
    task = OperatorWire()
    task(COORDINATOR, BeginExchange(1, 0))
    task.task.handle(ExtractDone({1: part("x"), 2: part("y", "z")}, seconds=0.25), 0.0)
    for sender in (1, 2):
        task(reducer(sender), StateTransfer(1, None))
    published = Published(1, {0: "a file"}, states=3, seconds=0.75, stats=task.task.stats)
    assert sent(task.task.handle(PublishDone({0: "a file"}, seconds=0.5), 0.0), Published) == [(COORDINATOR, published)]
    assert task.task.idle


def test_a_finished_share_is_reported_with_its_columns_and_written_in_the_schema_of_all() -> None:
    task, _ = finishing()
    columns = ShareSchema.of(pa.table({"key": ["a"], "value": pa.nulls(1)}), "key")
    [(to, message)] = sent(task.task.handle(FinishDone(columns), 0.0), Finished)
    assert (to, message.stats, message.schema) == (COORDINATOR, task.task.stats, columns)
    assert task.task.handle(Tick(), 1.0) == []
    whole = pa.schema([("key", pa.string()), ("value", pa.int64())])
    [write] = instructed(task(COORDINATOR, Deliver(whole)), Deliver)
    assert write.schema == whole
    [(_, report)] = sent(task.task.handle(Tick(), 2.0), Progress)
    assert not report.done
    [(to, report)] = sent(task.task.handle(WriteDone(), 2.0), Progress)
    assert (to, report.done, task.task.state) == (COORDINATOR, True, OperatorState.DONE)
    assert task.task.handle(Tick(), 3.0) == []
    assert task.task.idle


def test_the_initial_load_is_what_was_processed_where_all_went_by_the_first_table_or_else_counted_by_it() -> None:
    task, finish = finishing(keys="aaa")
    assert finish.ring_table is None
    [(_, message)] = sent(task.task.handle(FinishDone(None), 0.0), Finished)
    assert message.initial_load == (3, 0, 0)
    _, finish = finishing(goes_by_table=False)
    assert finish.ring_table is FIRST
    task = OperatorWire()
    task.update(1)
    task(COORDINATOR, BeginExchange(1, 1, last=True))
    task.task.handle(ExtractDone({}), 0.0)
    task(reducer(1), StateTransfer(1, part("b")))
    [finish] = instructed(task(reducer(2), StateTransfer(1, None)), Finish)
    assert finish.ring_table is FIRST and [states.keys.to_pylist() for states in finish.parts] == [["b"]]
    [(_, message)] = sent(task.task.handle(FinishDone(None, (4, 1, 0)), 0.0), Finished)
    assert message.initial_load == (4, 1, 0)


# --- a stage follows


def emitting() -> OperatorWire:
    """It has credit for two records."""
    return delivering(emitter_for(table_giving({"r": 0}), 2, edge=1, stage="next", origin=reducer()))


def test_a_share_is_emitted_as_a_source_emits_its_rows() -> None:
    task = emitting()
    assert task.task.handle(WriteDone(), 3.0) == [OpenResult(), NextStep(1)]
    instructions = task.task.handle(StepDone(step_of("rr", read=4)), 5.0)
    [(to, message)] = sent(instructions, Push)
    assert (to, keys_of(message), message.origin, message.edge) == (Address("next"), "rr", reducer(), 1)
    assert (message.read_at, message.emitted_at) == (3.0, 5.0)
    assert instructed(instructions, NextStep)
    [(to, report)] = sent(task.task.handle(StepDone(None), 6.0), Progress)
    assert (to, report.done) == (COORDINATOR, True)
    assert (report.stats.read, report.stats.mapped, report.stats.emitted) == (4, 2, (2,))


def test_under_backpressure_a_share_is_emitted_as_credit_comes_back() -> None:
    task = emitting()
    task.task.handle(WriteDone(), 0.0)

    def freed(records: int, now: float) -> tuple[list[str], list[NextStep]]:
        """What is pushed when so much credit comes back, and the steps that begin."""
        found: list[Instruction] = task(Address("next"), Ack(1, records), now)
        return [keys_of(message) for _, message in sent(found, Push)], instructed(found, NextStep)

    assert instructed(task.task.handle(StepDone(step_of("rr")), 1.0), NextStep)
    assert task.task.handle(StepDone(step_of("rrr")), 3.0) == []
    assert freed(1, 5.0) == (["r"], [])
    assert freed(2, 7.0) == (["rr"], [NextStep(1)])
    [(_, report)] = sent(task.task.handle(StepDone(None), 8.0), Progress)
    assert (report.done, report.stats.emitted, report.stats.blocked_seconds) == (True, (5,), 7.0 - 3.0)
    assert freed(2, 11.0) == ([], [])
    assert task.task.emitters[0].in_flight == 0


# --- what a task refuses, in words: messages of other epochs and tables than those it is at

SENDERS = (mapper(0), mapper(1))


def begin(epoch: int, version: int = 0, **options: bool) -> tuple[Any, BeginExchange]:
    return COORDINATOR, BeginExchange(epoch, version, **options)


def states(epoch: int, of: int = 2) -> tuple[Any, StateTransfer]:
    return reducer(of), StateTransfer(epoch, None)


def pushed(keys: str, version: int = 0) -> tuple[Any, Any]:
    return mapper(), push(list(keys), version=version)


TO_SECOND, TO_THIRD = ((BALANCER, update_between(*tables)) for tables in ((FIRST, SECOND), (SECOND, THIRD)))
LAST = begin(1, last=True, transfer=False)
DELIVERING = (LAST, FinishDone(None), (COORDINATOR, Deliver(None)))
COLLECTING = (begin(1), ExtractDone({}), states(1))
PUBLISHING = (*COLLECTING, states(1, of=1))
GIVEN = (TO_SECOND, RangesExtracted(Piece({}, ALL_HASHES, is_last=True)), *((one, Marker(1)) for one in SENDERS))
TAKING = (*GIVEN, TO_THIRD)

MERGING: list[tuple[tuple[Any, ...], Any, str]] = [
    ((), states(0), "cannot take states of epoch 0 from reducer 2"),
    ((), begin(0), "is to end epoch 0 after 0"),
    ((states(3, of=1),), begin(2), "is to end epoch 2 after 3"),
    ((states(3, of=1),), states(2), "cannot take states of epoch 2 from reducer 2"),
    ((begin(1),), states(2), "cannot take states of epoch 2 from reducer 2"),
    (COLLECTING, states(2), "cannot take states of epoch 2 from reducer 2"),
    (COLLECTING, states(1), "cannot take states of epoch 1 from reducer 2"),
    (PUBLISHING, begin(2), "is to publish with 0 records in its queue"),
    (PUBLISHING, begin(2, last=True), "is to finish with 0 records in its queue"),
    ((pushed("a"),), begin(1), "is to publish with 1 records in its queue"),
    ((pushed("aa"),), LAST, "is to finish with 2 records in its queue"),
    ((pushed("a", version=1),), LAST, "is to finish with 1 records in its queue"),
    ((LAST,), TO_SECOND, "got a routing table of its own stage while finishing"),
    (DELIVERING, TO_SECOND, "got a routing table of its own stage while delivering"),
    ((*DELIVERING, WriteDone()), TO_SECOND, "got a routing table of its own stage while done"),
    ((), ProcessDone(0.0), "processed a block that it was not given"),
    *(
        (
            (TO_SECOND,),
            (BALANCER, update_between(SECOND, replace(THIRD, version=version))),
            f"the change to table {version}",
        )
        for version in (1, 3)  # the same again, and one left out
    ),
]
MIGRATING: list[tuple[tuple[Any, ...], Any, str]] = [
    ((), (mapper(), Marker(0)), "cannot take a marker of table 0 from mapper 0"),
    ((), (mapper(), Marker(2)), "cannot take a marker of table 2 from mapper 0"),
    ((TO_SECOND, (mapper(), Marker(1))), (mapper(), Marker(1)), "cannot take a marker of table 1 from mapper 0"),
    ((TO_SECOND,), TO_THIRD, "got table 2 before 1 was settled"),
    (TAKING, (reducer(2), RangeTransfer(3, None)), "cannot take a RangeTransfer of table 3 from reducer 2"),
    (TAKING, (reducer(2), PassedMarkers(3, SENDERS)), "cannot take a PassedMarkers of table 3 from reducer 2"),
    (TAKING, (reducer(2), PassedMarkers(2, SENDERS)), "cannot take a PassedMarkers of table 2 from reducer 2"),
    ((), (reducer(1), RangeTransfer(2, None)), ", which has settled table 0, cannot take ranges of table 2"),
    ((TO_SECOND,), begin(1, 1, last=True, transfer=False), "is to finish before table 1 is settled"),
]


@pytest.mark.parametrize(
    ("migrates", "before", "refused", "why"),
    [(migrates, *row) for migrates, rows in ((False, MERGING), (True, MIGRATING)) for row in rows],
)
def test_what_cannot_come_is_refused(migrates: bool, before: tuple[Any, ...], refused: Any, why: str) -> None:
    task = OperatorWire(migrates_with=SENDERS if migrates else None)

    def comes(what: Any) -> None:
        task(*what) if isinstance(what, tuple) else task.task.handle(what, 0.0)

    for what in before:
        comes(what)
    with pytest.raises(ProtocolError, match=why):
        comes(refused)
