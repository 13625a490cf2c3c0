"""An operator task at the end of its stage: states change hands in any order of messages, its share is finished,
written and emitted, and nothing comes after."""

from __future__ import annotations

import pyarrow as pa
import pytest
from builders import block_of, limits_of, same_table, table_giving
from hypothesis import given
from hypothesis import strategies as st
from wires import OperatorWire, emitter_for, instructed, keys_of, part, reducer, sent, step_of, update_between

from dpa.errors import ProtocolError
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import StatePart
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.operator import OperatorState
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.channel import Outbox
from dpa.protocol.wire.events import ExtractDone, FinishDone, ProcessDone, StepDone, Tick, WriteDone
from dpa.protocol.wire.instructions import Extract, Finish, Instruction, NextStep, OpenResult
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.protocol.wire.messages.end import Deliver, Finished, Progress
from dpa.protocol.wire.messages.exchange import BeginExchange, StateTransfer

FIRST = table_giving({"a": 0, "b": 1, "c": 2})
LAST = table_giving({"a": 1, "b": 0, "c": 2}, version=1)
EVEN_LATER = table_giving({"a": 2, "b": 0, "c": 2}, version=2)


class Operator(OperatorWire):
    """Reducer 0 of three, at the end of its stage."""

    def __init__(self, *emitters: Emitter, **options) -> None:
        super().__init__(*emitters, tables=[FIRST, LAST, EVEN_LATER], **options)

    def begin(self, *, transfer: bool = True) -> list[Instruction]:
        """The last exchange begins, by the last table if there was another than the first."""
        before = self.update(1) if transfer else []
        return before + self(COORDINATOR, last_exchange(int(transfer), transfer=transfer))

    def extracted(self, **parts: StatePart) -> list[Instruction]:
        """The states of others are out; `to_1=...` are those of reducer 1."""
        return self.task.handle(ExtractDone({int(to[-1]): states for to, states in parts.items()}), 0.0)

    def transferred(self, sender: int, states: StatePart | None = None) -> list[Instruction]:
        return self(reducer(sender), StateTransfer(1, states))


def last_exchange(version: int, *, transfer: bool = True, number: int = 1) -> BeginExchange:
    return BeginExchange(number, version, last=True, transfer=transfer)


def streaming(*emitters: Emitter) -> Operator:
    return Operator(*emitters)


def extracting() -> Operator:
    task = Operator()
    task.begin()
    return task


def collecting() -> Operator:
    task = extracting()
    task.extracted()
    task.transferred(1)
    return task


def finishing(*emitters: Emitter) -> Operator:
    task = Operator(*emitters)
    task.begin(transfer=False)
    return task


def finished(*emitters: Emitter) -> Operator:
    task = finishing(*emitters)
    task.task.handle(FinishDone(None), 0.0)
    return task


def delivering(*emitters: Emitter) -> Operator:
    task = finished(*emitters)
    task(COORDINATOR, Deliver(None))
    return task


def done() -> Operator:
    task = delivering()
    task.task.handle(WriteDone(), 0.0)
    return task


# --- the last exchange


def test_if_every_state_is_with_its_owner_the_share_is_finished_at_once() -> None:
    [finish] = instructed(Operator().begin(transfer=False), Finish)
    assert finish.parts == ()


@given(st.permutations(["begin", "table 1", "table 2"]))
def test_an_exchange_that_overtakes_tables_waits_for_the_last_of_them(order: list[str]) -> None:
    task, tables = Operator(), Outbox(BALANCER)
    updates = {
        "table 1": tables.envelope(reducer(), update_between(FIRST, LAST)),
        "table 2": tables.envelope(reducer(), update_between(LAST, EVEN_LATER)),
    }
    extracts: list[Extract] = []
    for step in order:
        assert extracts == []
        if step == "begin":
            extracts += instructed(task(COORDINATOR, last_exchange(2)), Extract)
        else:
            extracts += instructed(task.task.handle(updates[step], 0.0), Extract)
    [extract] = extracts
    assert same_table(extract.table, EVEN_LATER)


def test_while_an_exchange_waits_for_its_table_others_may_send_states_and_statistics_are_reported() -> None:
    task = Operator()
    assert task(COORDINATOR, last_exchange(1)) == []
    assert task.transferred(1, part("b")) == [] == task.transferred(2)
    [(to, _)] = sent(task.task.handle(Tick(), 1.0), Progress)
    assert to == COORDINATOR
    assert instructed(task.update(1), Extract)
    [finish] = instructed(task.extracted(), Finish)
    assert [states.keys.to_pylist() for states in finish.parts] == [["b"]]


# --- the share


def test_a_finished_share_is_reported_with_its_columns_and_written_in_the_schema_of_all() -> None:
    task = finishing()
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


def test_the_initial_load_is_what_was_processed_where_the_first_table_is_the_last() -> None:
    task = Operator()
    task.push("aaa")
    task.done()
    [finish] = instructed(task.begin(transfer=False), Finish)
    assert finish.ring_table is None
    [(_, message)] = sent(task.task.handle(FinishDone(None), 0.0), Finished)
    assert message.initial_load == (3, 0, 0)


def test_the_initial_load_is_counted_by_the_first_table_where_there_was_another() -> None:
    task = collecting()
    [finish] = instructed(task.transferred(2), Finish)
    assert finish.ring_table is FIRST
    [(_, message)] = sent(task.task.handle(FinishDone(None, (4, 1, 0)), 0.0), Finished)
    assert message.initial_load == (4, 1, 0)


def test_the_initial_load_is_counted_by_the_first_table_where_senders_do_not_go_by_it() -> None:
    [finish] = instructed(Operator(goes_by_table=False).begin(transfer=False), Finish)
    assert finish.ring_table is FIRST


# --- a stage follows


def next_stage(credit: int = 2, seconds: float | None = None) -> Emitter:
    """The edge to the one task of the stage that follows."""
    limits = limits_of(credit, seconds=seconds)
    return emitter_for(table_giving({"r": 0}), limits=limits, edge=1, stage="next", origin=reducer())


def test_a_share_is_emitted_as_a_source_emits_its_rows() -> None:
    task = delivering(next_stage())
    assert task.task.handle(WriteDone(), 3.0) == [OpenResult(), NextStep(1)]
    instructions = task.task.handle(StepDone(step_of("rr", read=4)), 5.0)
    [(to, message)] = sent(instructions, Push)
    assert (to, keys_of(message), message.origin, message.edge) == (Address("next"), "rr", reducer(), 1)
    assert (message.read_at, message.emitted_at) == (3.0, 5.0)
    assert instructed(instructions, NextStep)
    [(to, report)] = sent(task.task.handle(StepDone(None), 6.0), Progress)
    assert (to, report.done) == (COORDINATOR, True)
    assert (report.stats.read, report.stats.mapped, report.stats.emitted) == (4, 2, (2,))


def test_an_empty_share_emits_nothing_and_the_task_is_done() -> None:
    task = delivering(next_stage())
    task.task.handle(WriteDone(), 0.0)
    [(_, report)] = sent(task.task.handle(StepDone(None), 0.0), Progress)
    assert (report.done, report.stats.emitted) == (True, (0,))


def test_under_backpressure_a_share_is_emitted_as_credit_comes_back() -> None:
    task = delivering(next_stage(credit=2))
    task.task.handle(WriteDone(), 0.0)

    def ack(records: int, now: float) -> list[Instruction]:
        return task(Address("next"), Ack(1, records), now)

    assert instructed(task.task.handle(StepDone(step_of("rr")), 1.0), NextStep)
    assert task.task.handle(StepDone(step_of("rrr")), 3.0) == []
    freed = ack(1, 5.0)
    assert [keys_of(message) for _, message in sent(freed, Push)] == ["r"]
    assert instructed(freed, NextStep) == []
    freed = ack(2, 7.0)
    assert [keys_of(message) for _, message in sent(freed, Push)] == ["rr"]
    assert instructed(freed, NextStep)
    assert task.task.state is OperatorState.DELIVERING
    [(_, report)] = sent(task.task.handle(StepDone(None), 8.0), Progress)
    assert (report.done, report.stats.emitted) == (True, (5,))
    assert report.stats.blocked_seconds == 7.0 - 3.0
    assert ack(2, 11.0) == []
    assert task.task.emitters[0].in_flight == 0


def test_a_task_is_not_done_while_records_that_it_emitted_before_the_end_wait() -> None:
    task = Operator(next_stage(credit=100, seconds=0.5))  # a window of 64 before the task has told its own
    task.push("aa")
    emitted = tuple((0, block_of(["r"] * rows)) for rows in (64, 1))
    task.task.handle(ProcessDone(0.0, emitted), 0.0)
    task.begin(transfer=False)
    task.task.handle(FinishDone(None), 0.0)
    task(COORDINATOR, Deliver(None))
    task.task.handle(WriteDone(), 0.0)
    assert task.task.handle(StepDone(None), 0.0) == []
    assert [report.done for _, report in sent(task(Address("next"), Ack(1, 16)), Progress)] == [True]


def test_a_table_of_the_stage_that_follows_comes_whenever_it_likes() -> None:
    later = update_between(table_giving({"r": 0}), table_giving({"r": 0}, version=1), "next")
    for state in (streaming, finishing, finished, delivering):
        task = state(next_stage())
        assert task(BALANCER, later) == []
        assert task.task.emitters[0].table.version == 1


# --- what cannot come


def test_the_last_exchange_cannot_begin_while_records_are_queued() -> None:
    task = Operator()
    task.push("aa")
    with pytest.raises(ProtocolError, match="reducer 0 is to finish with 2 records in its queue"):
        task.begin()


def test_the_last_exchange_cannot_begin_while_records_wait_for_their_table() -> None:
    task = Operator()
    task.push("a", version=1)
    with pytest.raises(ProtocolError, match="reducer 0 is to finish with 1 records in its queue"):
        task.begin()


@pytest.mark.parametrize("state", [finishing, delivering, done], ids=lambda state: state.__name__)
def test_a_table_of_its_own_stage_cannot_come_after_the_last_exchange(state) -> None:
    with pytest.raises(ProtocolError, match="reducer 0 got a routing table of its own stage while"):
        state()(BALANCER, update_between(FIRST, LAST))
