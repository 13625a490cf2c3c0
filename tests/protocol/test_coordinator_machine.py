"""The coordinator of the smallest graph: tasks started, splits handed out, records counted, its end by counting."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import INPUT, CoordinatorWire, last_table, mapper, reducer, sent

from dpa.errors import ExecutorError, ProtocolError
from dpa.execution.schemas import ShareSchema
from dpa.protocol.coordinator.machine import CoordinatorMachine, CoordinatorState
from dpa.protocol.graph import MAPPER, map_reduce
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import FailureKind, Start, TaskDied, TaskStarted, Tick
from dpa.protocol.wire.instructions import Instruction, JobFailed, StartTasks
from dpa.protocol.wire.messages.end import Deliver, Freeze
from dpa.protocol.wire.messages.exchange import BeginExchange
from dpa.protocol.wire.messages.splits import Begin, SplitRequest
from dpa.routing.groupings.options import BY_KIND


def drained(emitted: tuple[int, int] = (4, 3), **options) -> CoordinatorWire:
    """All mappers are done."""
    coordinator = CoordinatorWire(**options)
    for index in (0, 1):
        coordinator.mapped(index, emitted[index], done=True)
    return coordinator


def frozen(coordinator: CoordinatorWire, version: int) -> list[Instruction]:
    return coordinator(BALANCER, last_table("reducer", version))


def exchanging() -> CoordinatorWire:
    """All records are processed, and the last table is known."""
    coordinator = drained()
    coordinator.reduced(0, 5)
    coordinator.reduced(1, 2)
    frozen(coordinator, 1)
    return coordinator


def delivering() -> CoordinatorWire:
    """All reducers have finished their shares."""
    coordinator = exchanging()
    coordinator.finished(reducer(0), 5)
    coordinator.finished(reducer(1), 2)
    return coordinator


def done() -> CoordinatorWire:
    coordinator = delivering()
    for index in (0, 1):
        coordinator.progress(reducer(index), processed=(5, 2)[index], done=True)
    return coordinator


def created() -> CoordinatorMachine:
    return CoordinatorMachine(map_reduce(INPUT, 2, 2))


# --- the start


def test_all_tasks_and_the_load_balancer_are_started_first() -> None:
    [start] = created().handle(Start(), 0.0)
    assert start == StartTasks((mapper(0), mapper(1), reducer(0), reducer(1), BALANCER))


def test_sources_begin_once_the_last_task_has_started() -> None:
    coordinator = created()
    [start] = coordinator.handle(Start(), 1.0)
    assert isinstance(start, StartTasks)
    begun = [sent(coordinator.handle(TaskStarted(at), 5.0), Begin) for at in start.addresses]
    assert begun == [[], [], [], [], [(mapper(0), Begin()), (mapper(1), Begin())]]
    assert (coordinator.state, coordinator.started_at) == (CoordinatorState.RUNNING, 5.0)


def test_a_task_that_dies_fails_the_job_whether_the_stream_has_begun_or_not() -> None:
    starting, running = created(), CoordinatorWire().coordinator
    starting.handle(Start(), 0.0)
    for coordinator in (starting, running):
        assert coordinator.handle(TaskDied(reducer(1), FailureKind.DIED, "it was killed"), 0.0) == [
            JobFailed("reducer 1 died: it was killed")
        ]
        assert coordinator.state is CoordinatorState.FAILED
        assert coordinator.handle(TaskDied(mapper(0), FailureKind.RAISED, "too"), 1.0) == []
        assert coordinator.handle(Tick(), 2.0) == []


def test_a_job_that_has_failed_hands_out_no_more_splits() -> None:
    coordinator = CoordinatorWire()
    coordinator.coordinator.handle(TaskDied(reducer(1), FailureKind.RAISED, "why"), 0.0)
    assert coordinator(mapper(0), SplitRequest()) == []


def test_what_ends_after_the_job_is_done_fails_nothing() -> None:
    assert done().coordinator.handle(TaskDied(mapper(0), FailureKind.DIED, "ended"), 9.0) == []


# --- splits


def test_the_number_of_input_rows_is_known_from_the_start() -> None:
    assert CoordinatorWire().coordinator.snapshot().rows == 6


# --- the end of the stream


@st.composite
def report_orders(draw: st.DrawFn) -> tuple[list[Address], dict[Address, list[int]]]:
    """What each of two mappers and two reducers counts up to, in some steps, and the order in which they report."""
    emitted = [draw(st.integers(0, 5)), draw(st.integers(0, 5))]
    share = draw(st.integers(0, sum(emitted)))
    totals = {mapper(0): emitted[0], mapper(1): emitted[1], reducer(0): share, reducer(1): sum(emitted) - share}
    counts = {who: [*sorted(draw(st.lists(st.integers(0, total), max_size=2))), total] for who, total in totals.items()}
    return draw(st.permutations([who for who in counts for _ in counts[who]])), counts


@given(report_orders())
def test_the_stream_ends_by_counting_whatever_the_order_of_reports(case: tuple) -> None:
    order, counts = case
    coordinator, ended = CoordinatorWire(), []
    left = {who: list(reports) for who, reports in counts.items()}
    last = dict.fromkeys(counts, 0)
    for who in [*order, reducer(0)]:  # reducers report again when they drain
        last[who] = left[who].pop(0) if left[who] else last[who]
        if who.stage == MAPPER:
            instructions = coordinator.mapped(who.index, last[who], done=not left[who])
        else:
            instructions = coordinator.reduced(who.index, last[who])
        freeze = sent(instructions, Freeze)
        mapped = not left[mapper(0)] and not left[mapper(1)]
        if freeze:
            assert mapped and last[reducer(0)] + last[reducer(1)] == last[mapper(0)] + last[mapper(1)]
        ended += freeze
    assert len(ended) == 1


# --- records that are lost


def overdue(at: float = 0.0) -> CoordinatorWire:
    """All mappers are done, no reducer has anything, and yet 3 of 7 records are not processed."""
    coordinator = CoordinatorWire(at)
    for index, emitted in ((0, 4), (1, 3)):
        coordinator.mapped(index, emitted, done=True)
    coordinator.reduced(0, 4)
    return coordinator


def test_records_that_nobody_has_fail_the_job_after_a_while_instead_of_letting_it_wait_for_ever() -> None:
    coordinator = overdue(at=1e9)
    assert coordinator.coordinator.handle(Tick(), 1e9 + 59) == []
    for index, processed in ((0, 4), (1, 0)):
        coordinator.progress(reducer(index), processed=processed, now=1e9 + 61)
    with pytest.raises(ProtocolError, match="3 of 7 records to reducer were lost: no task has had any for 60 s"):
        coordinator.coordinator.handle(Tick(), 1e9 + 61)


def test_a_reducer_that_reports_nothing_may_have_the_records() -> None:
    """User code that holds the interpreter keeps even statistics from being sent."""
    coordinator = overdue()
    coordinator.progress(reducer(0), processed=4, now=1000.0)
    assert coordinator.coordinator.handle(Tick(), 1000.0) == []


def test_a_tick_as_the_last_mapper_is_done_considers_no_record_lost() -> None:
    coordinator = CoordinatorWire(at=1e9)
    for index in (0, 1):
        coordinator.mapped(index, 3, done=True)
    assert coordinator.coordinator.handle(Tick(), 1e9 + 0.1) == []


# --- the last exchange and the result


@pytest.mark.parametrize(
    ("kind", "version", "transfer"), [("ring", 0, False), ("ring", 2, True), ("key", 0, False), ("shuffle", 0, True)]
)
def test_states_move_in_the_last_exchange_if_they_may_be_elsewhere_than_with_their_owners(
    kind: str, version: int, transfer: bool
) -> None:
    coordinator = drained(grouping=BY_KIND[kind]())
    coordinator.reduced(0, 7)
    assert sent(frozen(coordinator, version), BeginExchange) == [
        (reducer(index), BeginExchange(1, version, last=True, transfer=transfer)) for index in (0, 1)
    ]


def share(value: pa.Array) -> ShareSchema | None:
    return ShareSchema.of(pa.table({"key": [f"k{number}" for number in range(len(value))], "value": value}), "key")


def test_shares_are_delivered_in_one_schema_once_every_task_has_finished() -> None:
    coordinator = exchanging()
    assert sent(coordinator.finished(reducer(1), 2, share(pa.array([1]))), Deliver) == []
    delivered = sent(coordinator.finished(reducer(0), 5, share(pa.nulls(1))), Deliver)
    assert [to for to, _ in delivered] == [reducer(0), reducer(1)]
    assert {message.schema for _, message in delivered} == {pa.schema([("key", pa.string()), ("value", pa.int64())])}


def test_shares_that_have_no_schema_in_common_fail_the_job_before_anything_is_written() -> None:
    coordinator = exchanging()
    coordinator.finished(reducer(1), 2, share(pa.array([1])))
    with pytest.raises(ExecutorError, match="column 'value': string for key 'k0' and int64 for key 'k0'"):
        coordinator.finished(reducer(0), 5, share(pa.array(["one"])))


# --- what cannot come


@pytest.mark.parametrize("state", [CoordinatorWire, drained, exchanging], ids=lambda state: state.__name__)
def test_a_task_cannot_be_done_before_its_share_is_to_be_written(state) -> None:
    with pytest.raises(ProtocolError, match="reducer 0 cannot be done while reducer is"):
        state().progress(reducer(0), done=True)


def test_more_records_processed_than_emitted_are_a_broken_invariant_and_no_reason_to_wait_for_ever() -> None:
    with pytest.raises(ProtocolError, match="reducer: 3 records were processed, but only 2 were emitted"):
        drained((1, 1)).reduced(0, 3)
