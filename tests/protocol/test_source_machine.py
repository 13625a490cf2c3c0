"""A source task and one edge as its sender sees it: when it reads and pushes, how much, and what it says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from builders import block_of, limits_of, records_of, same_table, table_giving
from hypothesis import given
from hypothesis import strategies as st
from wires import SPLIT, SourceWire, emitter_for, instructed, keys_of, reducer, sent, step_of, update_between

from dpa.errors import ProtocolError
from dpa.protocol.flow_control import CreditLimits
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.source import SourceState
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import StepDone, Tick
from dpa.protocol.wire.instructions import NextStep
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.protocol.wire.messages.end import Progress
from dpa.protocol.wire.messages.splits import SplitGrant
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.use import TaskUse

TABLE = table_giving({"a": 0, "b": 1, "c": 1})
LATER = table_giving({"a": 1, "b": 0, "c": 1}, version=1)


def source_of(credit: int = 10, limits: CreditLimits | None = None) -> SourceWire:
    """Mapper 0 with one edge."""
    return SourceWire(emitter_for(TABLE, credit, limits=limits))


# --- reading and pushing


def test_a_step_reads_as_many_rows_as_make_the_records_that_receivers_have_room_for() -> None:
    source = source_of(40)
    assert instructed(source.stepped("ab", read=20), NextStep) == [NextStep(200)]
    assert instructed(source.stepped("", read=20), NextStep) == [NextStep(400)]
    assert instructed(source.stepped("ab" * 19), NextStep) == [NextStep(39)]  # 40 records of 78 rows by now
    assert instructed(source_of(1).stepped("a" * 50, read=1), NextStep) == []


def test_a_full_edge_keeps_the_task_from_going_on_but_not_the_other_edge_from_pushing() -> None:
    alone = table_giving(dict.fromkeys("abc", 0))
    source = SourceWire(emitter_for(alone, 1, edge=0, stage="left"), emitter_for(alone, edge=1, stage="right"))
    assert instructed(source.stepped("a", "a"), NextStep)
    instructions = source.stepped("b", "b")
    assert [to.stage for to, _ in sent(instructions, Push)] == ["right"]
    assert instructed(instructions, NextStep) == []
    instructions = source(Address("left"), Ack(0, 1))
    assert [to.stage for to, _ in sent(instructions, Push)] == ["left"]
    assert instructed(instructions, NextStep)


def test_without_another_split_the_source_is_done_reports_all_it_did_and_stays_silent() -> None:
    source = source_of()
    source.stepped("abc", read=7)
    source.exhausted()
    instructions = source(COORDINATOR, SplitGrant(None))
    stats = TaskStats("mapper", 0, read=7, mapped=3, emitted=(3,), credit_seconds=(0.0,))
    assert sent(instructions, Progress) == [(COORDINATOR, Progress(stats, done=True))]
    assert len(instructions) == 1
    assert source(reducer(0), Ack(0, 1)) == [] == source(reducer(1), Ack(0, 2)) == source.task.handle(Tick(), 1.0)
    assert source(BALANCER, update_between(TABLE, LATER)) == []
    [emitter] = source.task.emitters
    assert (emitter.in_flight, source.task.state) == (0, SourceState.DONE)
    assert same_table(emitter.table, LATER)


def test_a_tick_reports_how_far_the_source_is_and_what_it_is_told_of_its_use() -> None:
    for use in (None, TaskUse("n1", cpu_seconds=2.5)):
        source = source_of()
        source.stepped("ab")
        [(to, report)] = sent(source.task.handle(Tick(use=use), 1.0), Progress)
        assert (to, report.done, report.stats.emitted, report.use) == (COORDINATOR, False, (2,), use)


# --- time


def test_a_source_is_blocked_from_when_it_could_go_on_but_for_credit_until_it_does() -> None:
    source = source_of(2)
    source.stepped("aa", now=1.0, seconds=0.5)
    source.stepped("bc", now=3.0, seconds=0.25)
    assert (source.task.stats.blocked_seconds, source.task.stats.busy_seconds) == (0.0, 0.75)
    source.task.handle(Tick(), 4.5)
    assert source.task.stats.blocked_seconds == 1.5
    source(reducer(), Ack(0, 2), 5.0)
    source.task.handle(Tick(), 9.0)
    assert source.task.stats.blocked_seconds == 2.0


def test_a_source_whose_split_is_read_is_blocked_while_its_last_records_wait() -> None:
    source = source_of(limits=limits_of(100, seconds=0.5))  # 64 records to a receiver, before it has told its window
    source.stepped("a" * 65, now=1.0)
    source.exhausted(now=3.0)
    source(reducer(), Ack(0, 64), 5.0)
    assert source.task.stats.blocked_seconds == 2.0
    source.task.handle(Tick(), 9.0)
    assert source.task.stats.blocked_seconds == 2.0
    assert source.task.stats.waiting_seconds == 4.0, "it waits for a split now"
    source(COORDINATOR, SplitGrant(SPLIT), 9.5)
    source.task.handle(StepDone(step_of("a"), seconds=3.0, awaited=2.5), 12.5)
    stats = source.task.stats
    assert (stats.waiting_seconds, stats.busy_seconds, stats.blocked_seconds) == (7.0, 0.5, 2.0)


# --- an edge


def released(emitter: Emitter, *blocks: str) -> list[tuple[int, str]]:
    """What the emitter pushes, once it has been given blocks of these keys, with the numbers of the receivers."""
    for keys in blocks:
        emitter.keep(block_of(list(keys)), 0.0, 0.0)
    return [(to.index, keys_of(push)) for to, push in emitter.release(0.0)]


def test_an_emitter_takes_one_block_beyond_its_credit() -> None:
    emitter = emitter_for(TABLE, credit=2)
    found = []
    for _ in range(2):
        released(emitter, "aa")
        found.append((emitter.is_open, not emitter.held))
    assert found == [(True, True), (False, False)]
    with pytest.raises(ProtocolError, match="mapper 0, from reducer 0: 3 credits came back, with 2 in use"):
        emitter.acknowledged(reducer(), Ack(0, 3))
    assert emitter.in_flight == 2


def windowed(*windows: int) -> Emitter:
    """An emitter to receivers that have told these windows."""
    emitter = emitter_for(TABLE, limits=limits_of(1_000, seconds=0.5))
    for receiver, window in enumerate(windows):
        emitter.acknowledged(reducer(receiver), Ack(0, 0, window))
    return emitter


def test_a_full_window_holds_back_the_records_of_its_receiver_alone() -> None:
    emitter = windowed(2, 50)
    assert released(emitter, "ababab", "bbb") == [(0, "aa"), (1, "bbb"), (1, "bbb")]
    assert (emitter.held, emitter.is_open) == (1, True)
    assert released(emitter, "aa") == []
    assert (emitter.held, emitter.is_open) == (3, False)  # more wait for the receiver than it may have


def test_wide_records_keep_to_the_bound_in_bytes() -> None:
    emitter = emitter_for(TABLE, limits=limits_of(1_000, bytes=1_000))
    emitter.keep(replace(block_of(["a"] * 20), row_bytes=100.0), 0.0, 0.0)
    assert [message.block.rows for _, message in emitter.release(0.0)] == [10]
    assert (emitter.in_flight, emitter.held, emitter.is_open) == (10, 10, False)


def test_steps_make_a_quarter_of_what_the_receiver_with_the_least_room_for_its_share_may_have() -> None:
    """But never more than half of what may be in flight in all."""
    emitter = windowed(100, 400)
    assert emitter.step_records == 50  # 100 are half of 200
    for _ in range(50):
        emitter.keep(block_of(list("abbb")), 0.0, 0.0)
    assert emitter.step_records == 100  # a quarter goes to each of 400
    assert [emitter_for(TABLE, credit).step_records for credit in (100, 1)] == [50, 1]


@given(
    st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6), max_size=8),
    st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2)), max_size=3),
    st.integers(1, 6),
    st.data(),
)
def test_each_key_keeps_its_order_whatever_is_held_routed_anew_and_cut(
    blocks: list[list[str]], moves: list[dict[str, int]], credit: int, data: st.DataObject
) -> None:
    owners = {key: number % 3 for number, key in enumerate("abcdef")}
    table = table_giving(owners)
    emitter = emitter_for(table, limits=limits_of(credit))
    made: list[tuple[Any, int]] = []
    pushed: list[tuple[Any, int]] = []
    while blocks or moves or emitter.held:
        if moves and data.draw(st.booleans()):
            owners |= moves.pop(0)
            later = table_giving(owners, version=table.version + 1)
            emitter.update(update_between(table, later).change)
            table = later
        elif blocks and emitter.is_open:
            keys = blocks.pop(0)
            numbered = [(key, len(made) + number) for number, key in enumerate(keys)]
            made += numbered
            emitter.keep(block_of(keys, pa.record_batch({"value": [number for _, number in numbered]})), 0.0, 0.0)
        for to, message in emitter.release(0.0):
            records = records_of(message.block)
            assert {owners[key] for key, _ in records} == {to.index}
            assert message.version == table.version
            pushed += records
        assert emitter.in_flight <= credit
        for receiver, rows in emitter.in_flight_to.items():
            if rows:
                emitter.acknowledged(reducer(receiver), Ack(0, data.draw(st.integers(0, rows))))
    for key in "abcdef":
        assert [record for record in pushed if record[0] == key] == [record for record in made if record[0] == key]
