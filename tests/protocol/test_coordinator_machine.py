"""The coordinator's state machine: splits handed out, records counted, the end seen by counting, states merged."""

from __future__ import annotations

import pyarrow as pa
import pytest
from builders import INPUT, CoordinatorWire, sent, told
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.measure.latency import LatencySketch
from dpa.errors import ExecutorError, ProtocolError
from dpa.execution.schemas import ShareSchema
from dpa.protocol.machine import JobDone, ProcessDone, Tick
from dpa.protocol.messages import (
    BALANCER,
    Ack,
    Address,
    Drain,
    Freeze,
    LastTable,
    Merge,
    Merged,
    Role,
    SplitGrant,
    SplitRequest,
    WriteResult,
    Written,
    mapper,
    reducer,
)
from dpa.protocol.metrics import ReducerStats


def drained(emitted: tuple[int, int] = (4, 3), *, scattered: bool = False) -> CoordinatorWire:
    """All mappers are done."""
    coordinator = CoordinatorWire(scattered=scattered)
    for index in (0, 1):
        coordinator.mapped(index, emitted[index], done=True)
    return coordinator


def merging(epoch: int = 1) -> CoordinatorWire:
    """All records are processed, and the last table is known."""
    coordinator = drained()
    coordinator.reduced(0, 5)
    coordinator.reduced(1, 2)
    coordinator(BALANCER, LastTable(epoch))
    return coordinator


def done() -> CoordinatorWire:
    coordinator = writing()
    for index in (0, 1):
        coordinator(reducer(index), Written())
    return coordinator


def writing() -> CoordinatorWire:
    """All reducers have finished their shares."""
    coordinator = merging()
    coordinator.merged(0, 5)
    coordinator.merged(1, 2)
    return coordinator


# --- splits


def test_splits_are_handed_out_in_order_to_whoever_asks_and_then_none() -> None:
    coordinator = CoordinatorWire()
    granted = [(index, sent(coordinator(mapper(index), SplitRequest()), SplitGrant)) for index in (1, 0, 1, 0, 1)]
    expected = [*INPUT, None, None]
    assert granted == [(index, [(mapper(index), SplitGrant(expected[n]))]) for n, (index, _) in enumerate(granted)]


def test_the_number_of_input_rows_is_known_from_the_start() -> None:
    assert CoordinatorWire().coordinator.snapshot().rows == 6


# --- the end of the stream


def test_reducers_drain_once_the_last_mapper_is_done() -> None:
    coordinator = CoordinatorWire()
    assert coordinator.mapped(0, 4, done=True) == []
    assert coordinator.mapped(1, 2) == []
    assert [to for to, _ in sent(coordinator.mapped(1, 3, done=True), Drain)] == [reducer(0), reducer(1)]


def test_the_stream_ends_when_as_many_records_are_processed_as_were_emitted() -> None:
    coordinator = drained((4, 3))
    assert coordinator.reduced(0, 5) == []
    assert coordinator.reduced(1, 1) == []
    assert sent(coordinator.reduced(1, 2), Freeze) == [(BALANCER, Freeze())]


def test_empty_queues_alone_do_not_end_the_stream() -> None:
    coordinator = drained((4, 3))
    assert [coordinator.reduced(index, 3, queue=0) for index in (0, 1, 0, 1)] == [[]] * 4


def test_equal_counts_do_not_end_the_stream_while_a_mapper_works() -> None:
    coordinator = CoordinatorWire()
    coordinator.mapped(0, 4, done=True)
    coordinator.mapped(1, 0)
    assert coordinator.reduced(0, 4) == []


def test_a_stream_without_records_ends_too() -> None:
    assert sent(drained((0, 0)).reduced(0, 0), Freeze) == [(BALANCER, Freeze())]


def test_the_table_is_frozen_only_once() -> None:
    coordinator = drained((4, 3))
    coordinator.reduced(0, 7)
    assert coordinator.reduced(1, 0) == []


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
    for who in [*order, reducer(0)]:  # reducers report again when they are told to drain
        last[who] = left[who].pop(0) if left[who] else last[who]
        report = coordinator.mapped if who.role is Role.MAPPER else coordinator.reduced
        more = {"done": not left[who]} if who.role is Role.MAPPER else {}
        freeze = sent(report(who.index, last[who], **more), Freeze)
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
    with pytest.raises(ProtocolError, match="3 of 7 records were lost"):
        coordinator.coordinator.handle(Tick(), 1e9 + 61)


def test_a_reducer_may_take_as_long_as_it_likes() -> None:
    coordinator = overdue()
    coordinator.reduced(1, 0, queue=3)
    for now in (50.0, 100.0, 1000.0):
        coordinator.coordinator.handle(Tick(), now)
    assert sent(coordinator.reduced(1, 3), Freeze)


def test_a_tick_as_the_last_mapper_is_done_takes_no_record_for_lost() -> None:
    coordinator = CoordinatorWire(at=1e9)
    for index in (0, 1):
        coordinator.mapped(index, 3, done=True)
    assert coordinator.coordinator.handle(Tick(), 1e9 + 0.1) == []


# --- the merge


@pytest.mark.parametrize(("epoch", "exchange"), [(0, False), (2, True)])
def test_reducers_merge_by_the_last_table_and_exchange_states_if_there_was_another(epoch: int, exchange: bool) -> None:
    coordinator = drained()
    coordinator.reduced(0, 7)
    merges = sent(coordinator(BALANCER, LastTable(epoch)), Merge)
    assert [(to, message.epoch, message.exchange) for to, message in merges] == [
        (reducer(0), epoch, exchange),
        (reducer(1), epoch, exchange),
    ]


def share(value: pa.Array) -> ShareSchema | None:
    return ShareSchema.of(pa.table({"key": [f"k{number}" for number in range(len(value))], "value": value}), "key")


def test_shares_are_written_in_one_schema_once_every_reducer_has_merged() -> None:
    coordinator = merging()
    assert sent(coordinator.merged(1, 2, share(pa.array([1]))), WriteResult) == []
    written = sent(coordinator.merged(0, 5, share(pa.nulls(1))), WriteResult)
    assert [to for to, _ in written] == [reducer(0), reducer(1)]
    assert {message.schema for _, message in written} == {pa.schema([("key", pa.string()), ("value", pa.int64())])}


def test_shares_that_have_no_schema_in_common_fail_the_job_before_anything_is_written() -> None:
    coordinator = merging()
    coordinator.merged(1, 2, share(pa.array([1])))
    with pytest.raises(ExecutorError, match="column 'value': string for key 'k0' and int64 for key 'k0'"):
        coordinator.merged(0, 5, share(pa.array(["one"])))


def test_the_job_is_done_once_every_reducer_has_written() -> None:
    coordinator = writing()
    assert told(coordinator(reducer(1), Written()), JobDone) == []
    assert told(coordinator(reducer(0), Written()), JobDone) == [JobDone()]


# --- what cannot come


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (CoordinatorWire, LastTable(0)),
        (CoordinatorWire, Merged(ReducerStats(0), LatencySketch(), None)),
        (merging, SplitRequest()),
        (merging, LastTable(1)),
        (done, SplitRequest()),
        (done, LastTable(1)),
        (done, Merged(ReducerStats(0), LatencySketch(), None)),
        (CoordinatorWire, Ack(1)),
        (CoordinatorWire, Written()),
        (merging, Written()),
        (done, Written()),
    ],
    ids=lambda given: getattr(given, "__name__", type(given).__name__),
)
def test_what_cannot_come_in_a_state_is_refused(state, message) -> None:
    coordinator = state()
    with pytest.raises(ProtocolError, match="coordinator"):
        coordinator(BALANCER if isinstance(message, LastTable) else mapper(0), message)


def test_an_event_of_a_reducer_is_refused() -> None:
    with pytest.raises(ProtocolError, match="coordinator cannot take a ProcessDone"):
        CoordinatorWire().coordinator.handle(ProcessDone(0.0), 0.0)


def test_more_records_processed_than_emitted_are_a_broken_invariant_and_no_reason_to_wait_for_ever() -> None:
    with pytest.raises(ProtocolError, match="processed"):
        drained((1, 1)).reduced(0, 3)
