"""A source task: what it asks for, when it reads and pushes, and how it ends."""

from __future__ import annotations

import pytest
from builders import limits_of, same_table, table_giving
from hypothesis import given
from hypothesis import strategies as st
from wires import SPLIT, SourceWire, emitter_for, instructed, pushed, reducer, sent, step_of, update_between

from dpa.errors import ProtocolError
from dpa.protocol.flow_control import CreditLimits
from dpa.protocol.task.source import SourceState
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import ProcessDone, Start, StepDone, Tick
from dpa.protocol.wire.instructions import Instruction, NextStep, OpenSplit
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.protocol.wire.messages.end import Drain, Progress
from dpa.protocol.wire.messages.splits import Begin, SplitGrant, SplitRequest
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.use import TaskUse

OWNERS = {"a": 0, "b": 1, "c": 1}
TABLE = table_giving(OWNERS)
LATER = table_giving({"a": 1, "b": 0, "c": 1}, version=1)
UPDATE = update_between(TABLE, LATER)
WINDOWS = limits_of(100, seconds=0.5)
"""Of 64 records to each receiver, before any has told its own."""


class Source(SourceWire):
    """Mapper 0 with one edge."""

    def __init__(self, credit: int = 10, *, fresh: bool = False, limits: CreditLimits | None = None) -> None:
        self.emitter = emitter_for(TABLE, credit, limits=limits)
        super().__init__(self.emitter, fresh=fresh)

    def ack(self, records: int, from_reducer: int = 0) -> list[Instruction]:
        return self(reducer(from_reducer), Ack(0, records))


def test_at_a_tick_a_task_reports_what_it_is_told_of_its_use() -> None:
    use = TaskUse("n1", cpu_seconds=2.5)
    for ticked in (None, use):
        [(receiver, progress)] = sent(Source().task.handle(Tick(use=ticked), 1.0), Progress)
        assert (receiver, progress.use) == (COORDINATOR, ticked)


def requesting() -> Source:
    source = Source(fresh=True)
    source(COORDINATOR, Begin())
    return source


def done() -> Source:
    source = Source()
    source.stepped("ab")
    source.exhausted()
    source(COORDINATOR, SplitGrant(None))
    return source


# --- asking and reading


def test_a_source_begins_by_asking_for_a_split() -> None:
    instructions = Source(fresh=True)(COORDINATOR, Begin())
    assert sent(instructions, SplitRequest) == [(COORDINATOR, SplitRequest())]
    assert len(instructions) == 1


def test_a_granted_split_is_opened_and_its_first_step_taken() -> None:
    opened, step = requesting()(COORDINATOR, SplitGrant(SPLIT))
    assert isinstance(opened, OpenSplit) and opened.split is SPLIT
    assert step == NextStep(5)


def test_without_another_split_the_source_is_done_and_reports_all_it_did() -> None:
    source = Source()
    source.stepped("abc", read=7)
    source.exhausted()
    instructions = source(COORDINATOR, SplitGrant(None))
    stats = TaskStats("mapper", 0, read=7, mapped=3, emitted=(3,), credit_seconds=(0.0,))
    assert sent(instructions, Progress) == [(COORDINATOR, Progress(stats, done=True))]
    assert len(instructions) == 1


def test_a_step_without_records_is_counted_and_the_next_taken() -> None:
    source = Source()
    assert source.stepped("", read=9) == [NextStep(5)]
    assert source.task.stats.read == 9


def test_while_user_code_takes_a_step_no_other_begins() -> None:
    source = Source()
    assert instructed([*source(BALANCER, UPDATE), *source.task.handle(Tick(), 1.0)], NextStep) == []


# --- pushing


def test_a_step_reads_as_many_rows_as_make_the_records_that_receivers_have_room_for() -> None:
    source = Source(credit=40)
    assert instructed(source.stepped("ab", read=20), NextStep) == [NextStep(200)]
    assert instructed(source.stepped("", read=20), NextStep) == [NextStep(400)]
    assert instructed(source.stepped("ab" * 19), NextStep) == [NextStep(39)]  # 40 records of 78 rows by now
    assert instructed(Source(credit=1).stepped("a" * 50, read=1), NextStep) == []


def test_a_waiting_block_goes_by_the_table_of_the_moment_when_it_is_pushed() -> None:
    source = Source(credit=2)
    source.stepped("aa")
    source.stepped("ab")
    assert source(BALANCER, UPDATE) == []
    instructions = source.ack(2)
    assert sorted(pushed(instructions)) == [(0, "b"), (1, "a")]
    assert {push.version for _, push in sent(instructions, Push)} == {1}


def test_a_source_does_not_ask_for_more_while_a_block_waits() -> None:
    source = Source(limits=WINDOWS)
    assert instructed(source.stepped("a" * 65), NextStep)
    assert source.exhausted() == []
    assert sent(source.ack(64), SplitRequest) == [(COORDINATOR, SplitRequest())]


@given(st.integers(3, 8), st.lists(st.text("abc", min_size=1, max_size=3), max_size=12), st.data())
def test_credits_are_never_exceeded_and_everything_is_pushed_in_order(credit, blocks, data: st.DataObject) -> None:
    source = Source(credit)
    unacknowledged: list[tuple[int, int]] = []
    arrived = {0: "", 1: ""}
    stepping, todo = True, [*blocks, None]
    while todo or unacknowledged:
        assert stepping or unacknowledged, "the source waits for nothing"
        if stepping and todo and (not unacknowledged or data.draw(st.booleans())):
            block = todo.pop(0)
            instructions, stepping = source.exhausted() if block is None else source.stepped(block), False
        else:
            to, records = unacknowledged.pop(data.draw(st.integers(0, len(unacknowledged) - 1)))
            instructions = source.ack(records, to)
        for to, keys in pushed(instructions):
            unacknowledged.append((to, len(keys)))
            arrived[to] += keys
        stepping = stepping or bool(instructed(instructions, NextStep))
        assert sum(records for _, records in unacknowledged) == source.emitter.in_flight <= credit
    everything = "".join(blocks)
    assert arrived == {owner: "".join(key for key in everything if OWNERS[key] == owner) for owner in (0, 1)}


# --- several edges


class TwoEdges(SourceWire):
    """Mapper 0 that feeds the stages `left` and `right`, each with one task."""

    def __init__(self, left: int = 10, limits: CreditLimits | None = None) -> None:
        alone = table_giving(dict.fromkeys("abc", 0))
        self.left = emitter_for(alone, left, edge=0, stage="left", limits=limits)
        self.right = emitter_for(alone, edge=1, stage="right", limits=limits)
        super().__init__(self.left, self.right)


def test_each_block_goes_along_the_edge_it_was_made_for() -> None:
    source = TwoEdges()
    instructions = source.stepped("aab", "c")
    assert [(to.stage, push.edge, push.block.rows) for to, push in sent(instructions, Push)] == [
        ("left", 0, 3),
        ("right", 1, 1),
    ]
    assert source.task.stats.emitted == (3, 1)


def test_a_full_edge_keeps_the_task_from_going_on_but_not_the_other_edge_from_pushing() -> None:
    source = TwoEdges(left=1)
    assert instructed(source.stepped("a", "a"), NextStep)
    instructions = source.stepped("b", "b")
    assert [to.stage for to, _ in sent(instructions, Push)] == ["right"]
    assert instructed(instructions, NextStep) == []
    instructions = source(Address("left"), Ack(0, 1))
    assert [to.stage for to, _ in sent(instructions, Push)] == ["left"]
    assert instructed(instructions, NextStep)


def test_a_table_is_adopted_by_the_edges_of_its_stage_alone() -> None:
    source = TwoEdges()
    old, new = source.left.table, table_giving(dict.fromkeys("abc", 0), version=1)
    assert source(BALANCER, update_between(old, new, "left")) == []
    assert (source.left.table.version, source.right.table.version) == (1, 0)


def test_a_source_is_done_only_when_every_edge_has_pushed_all() -> None:
    source = TwoEdges(limits=WINDOWS)
    assert instructed(source.stepped("a" * 65, "a" * 66), NextStep)
    assert source.exhausted() == []
    assert sent(source(Address("left"), Ack(0, 64)), SplitRequest) == []
    assert sent(source(Address("right"), Ack(1, 64)), SplitRequest) == [(COORDINATOR, SplitRequest())]


# --- time


def test_time_in_user_code_is_added_up() -> None:
    source = Source()
    source.stepped("a", seconds=0.5)
    source.exhausted(seconds=0.25)
    assert source.task.stats.busy_seconds == 0.75


def test_a_source_is_blocked_from_when_it_could_go_on_but_for_credit_until_it_does() -> None:
    source = Source(credit=2)
    source.stepped("aa", now=1.0)
    source.stepped("bc", now=3.0)
    assert source.task.stats.blocked_seconds == 0.0
    source.task.handle(Tick(), 4.5)
    assert source.task.stats.blocked_seconds == 1.5
    source(reducer(), Ack(0, 2), 5.0)
    source.task.handle(Tick(), 9.0)
    assert source.task.stats.blocked_seconds == 2.0


def test_a_source_whose_split_is_read_is_blocked_while_its_last_records_wait() -> None:
    source = Source(limits=WINDOWS)
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


# --- ticks, the end, and what cannot come


def test_a_tick_reports_how_far_the_source_is() -> None:
    source = Source()
    source.stepped("ab")
    [(to, report)] = sent(source.task.handle(Tick(), 1.0), Progress)
    assert (to, report.done, report.stats.emitted) == (COORDINATOR, False, (2,))


def test_a_source_that_is_done_takes_credits_back_and_stays_silent() -> None:
    source = done()
    assert source.ack(2) == [] == source.task.handle(Tick(), 1.0) == source(BALANCER, UPDATE)
    assert (source.emitter.in_flight, source.task.state) == (0, SourceState.DONE)
    assert same_table(source.emitter.table, LATER)


@pytest.mark.parametrize("message", [Drain(), SplitRequest()], ids=lambda message: type(message).__name__)
def test_a_message_for_others_is_refused_by_name(message) -> None:
    what = f"mapper 0 cannot take a {type(message).__name__} from coordinator while reading"
    with pytest.raises(ProtocolError, match=what):
        Source()(COORDINATOR, message)


@pytest.mark.parametrize("event", [ProcessDone(0.0), Start()], ids=lambda event: type(event).__name__)
def test_an_event_of_others_is_refused(event) -> None:
    with pytest.raises(ProtocolError, match=f"mapper 0 cannot take a {type(event).__name__}"):
        Source().task.handle(event, 0.0)
