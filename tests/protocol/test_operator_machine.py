"""An operator task while records flow, as far as simulated runs do not see it: when it forwards, what it reports and
emits, how large its windows are, and how it gives its states away."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from builders import block_of, table_giving
from hypothesis import given
from hypothesis import strategies as st
from wires import (
    INPUT,
    REDUCER_TABLES,
    OperatorWire,
    emitter_for,
    instructed,
    keys_of,
    mapper,
    part,
    processing,
    push,
    pushed,
    reducer,
    sent,
)

from dpa.execution.publishing import EmittedRows
from dpa.execution.reduce_task import Piece
from dpa.measure.timing import ServicePace
from dpa.protocol.flow_control import FlowControl, QuantumSizer
from dpa.protocol.machines import task_of
from dpa.protocol.task._credit import ActiveSenders
from dpa.protocol.task.record_queue import RecordQueue
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import ProcessDone, RangesExtracted, Tick
from dpa.protocol.wire.instructions import ExtractRanges, Instruction, ProcessBlocks
from dpa.protocol.wire.messages.cuts import GoOn
from dpa.protocol.wire.messages.data import Ack, CreditTransfer, Push
from dpa.protocol.wire.messages.end import Drain, Progress
from dpa.protocol.wire.messages.migration import RangeTransfer, Settled
from dpa.protocol.wire.messages.tables import LoadReport
from dpa.protocol.wire.use import TaskUse
from dpa.routing.hashing import ALL_HASHES, hash_key
from dpa.routing.members import MemberChange, with_members
from dpa.tolerance import ErrorCount, Failed
from experiments.simulated_jobs.map_reduce import map_reduce

both_ways = pytest.mark.parametrize("eager", [True, False], ids=["eager", "lazy"])


# --- the queue


def test_a_long_batch_is_processed_in_quanta() -> None:
    reducer_0 = OperatorWire(most=2)
    quanta = processing(reducer_0.push("abcab"))
    while reducer_0.task.queue.length:
        quanta += processing(reducer_0.done())
    assert quanta == ["ab", "ca", "b"]


@given(st.integers(1, 200), st.lists(st.tuples(st.integers(1, 200), st.floats(0, 10)), max_size=10))
def test_quanta_adapt_to_the_speed_of_user_code_within_their_bounds(
    most: int, observed: list[tuple[int, float]]
) -> None:
    sizer, pace = QuantumSizer(FlowControl(quantum_records=most)), ServicePace()
    for records, seconds in observed:
        before = sizer.size
        pace.observe(records, seconds, 0.0)
        sizer.observe(records, seconds, pace)
        assert 1 <= sizer.together <= sizer.size <= min(most, 8 * before)
        if seconds > 0 and not pace.overhead:
            assert sizer.size <= max(1, records * 0.1 / seconds)


def fed(wire: OperatorWire, window: dict[int, int], cost: Callable[[int], float], quanta: int) -> list[int]:
    """The records of so many quanta, which take what `cost` says, while each sender fills its window."""
    held, found, now = dict.fromkeys(window, 0), [], 0.0
    work: list[Instruction] = []
    for _ in range(quanta):
        for index, most in window.items():
            while most - held[index] >= (rows := max(1, most // 4)):
                held[index] += rows
                work += wire.push("a" * rows, origin=mapper(index), now=now)
        [given] = instructed(work, ProcessBlocks)
        found.append(sum(block.rows for block in given.blocks))
        now += cost(found[-1])
        work = wire.done(cost(found[-1]), now=now)
        for to, ack in sent(work, Ack):
            held[to.index] -= ack.records
            window[to.index] = ack.window or 0
    return found


@pytest.mark.parametrize("senders", [1, 4, 16])
@pytest.mark.parametrize(("fixed", "each"), [(0.02, 1e-5), (0.08, 1e-5), (0.3, 1e-5), (0.3, 1e-3), (5.0, 1e-4)])
def test_a_quantum_that_takes_long_without_records_gets_many(fixed: float, each: float, senders: int) -> None:
    """Ever fewer records would take as long: most of the time must be theirs in the end."""
    wire = OperatorWire(most=262_144, queue_seconds=0.5, in_flight=1_048_576)
    records = fed(wire, dict.fromkeys(range(senders), 64), lambda rows: fixed + each * rows, 120)
    of_records = each * sum(records[-30:]) / 30
    assert of_records > fixed
    assert fixed + of_records < max(0.15, 4 * fixed), "and they are not more than that takes"


def test_small_pushes_are_processed_together_where_a_quantum_takes_long_whatever_its_records() -> None:
    wire = OperatorWire(queue_seconds=0.5)
    given, acknowledged = processing(wire.push("a" * 8)), []
    for index in range(8):
        wire.push("ab", origin=mapper(index))
    for _ in range(4):
        found = wire.done(0.3)
        given += processing(found)
        acknowledged += [(to.index, ack.records) for to, ack in sent(found, Ack)]
    assert given == ["a" * 8, "ab", "ab" * 4, "ab" * 3]
    assert acknowledged == [(0, 8), *((index, 2) for index in range(8))]
    assert wire.task.processed == 24 and not wire.task.has_records


@pytest.mark.parametrize("senders", [1, 2])
def test_a_step_that_had_one_record_at_a_time_gets_many_once_they_come(senders: int) -> None:
    """One in a call and one in the queue would show for ever what a call of one record takes, and no more."""
    wire = OperatorWire(queue_seconds=0.5, in_flight=1_048_576)
    for _ in range(40):
        wire.push("a")
        [(_, ack)] = sent(wire.done(0.6), Ack)
    records = fed(wire, dict.fromkeys(range(senders), ack.window or 0), lambda rows: 0.6 + 0.001 * rows, 60)
    assert sum(records) > 300


def taken(queue: RecordQueue, records: int, together: int) -> list[str]:
    pushes, _ = queue.take(records, together)
    return [keys_of(push) for push in pushes]


def test_pushes_are_taken_together_in_order_until_they_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = RecordQueue(0, REDUCER_TABLES[0], eager=True)
    for keys in ("ab", "c", "ba", "aaa", "cc", "c"):
        queue.accept(push(list(keys)))
    assert taken(queue, 100, 1) == ["ab"]
    assert taken(queue, 2, 100) == ["c", "b"]
    assert taken(queue, 100, 2) == ["a", "aaa"]
    monkeypatch.setattr("dpa.protocol.task.record_queue._MOST_PUSHES", 1)
    assert [taken(queue, 100, 100) for _ in range(3)] == [["cc"], ["c"], []]


@both_ways
def test_what_moved_is_forwarded_as_soon_as_the_table_comes_or_when_it_reaches_the_head(eager: bool) -> None:
    reducer_0 = OperatorWire(eager=eager)
    for keys in ("ab", "bc", "ac"):
        reducer_0.push(keys)
    at_once, in_turn = reducer_0.update(1), reducer_0.done()
    forwarded = [(1, "b"), (2, "c"), (2, "c")]
    assert [pushed(at_once), pushed(in_turn)] == ([forwarded, []] if eager else [[], forwarded])
    assert processing(in_turn) == ["a"]
    at_once, in_turn = reducer_0.push("ab"), reducer_0.done()  # by the older table, while user code is at work
    assert [pushed(at_once), pushed(in_turn)] == ([[(1, "b")], []] if eager else [[], [(1, "b")]])


# --- credit


def windows(wire: OperatorWire, *quanta: float) -> list[int | None]:
    """The windows that come with the acknowledgements of quanta that take so many seconds."""
    found = []
    for seconds in quanta:
        [(_, ack)] = sent(wire.task.handle(ProcessDone(seconds), 1.0), Ack)
        found.append(ack.window)
    return found


@pytest.mark.parametrize(("seconds", "senders", "window"), [(0.1, 1, 50), (0.1, 2, 25), (0.0, 1, 1_000), (500.0, 1, 1)])
def test_an_acknowledgement_tells_each_sender_its_share_of_what_the_delay_is_worth(
    seconds: float, senders: int, window: int
) -> None:
    """50 records of 10 ms take 0.5 s; a window is a record at least and the bound in records at most."""
    for queue_seconds, expected in ((0.5, window), (None, None)):
        wire = OperatorWire(most=10, queue_seconds=queue_seconds)
        for index in range(senders):
            wire.push("a" * 10, origin=mapper(index))
        assert windows(wire, seconds) == [expected]


def test_the_window_follows_the_service_time() -> None:
    wire = OperatorWire(most=10, queue_seconds=0.5)
    for _ in range(4):
        wire.push("a" * 10)
    fast, _, slower, slow = windows(wire, 0.1, 0.1, 1.0, 10.0)
    assert fast == pytest.approx(50, abs=1)
    assert slower is not None and slow is not None
    assert 50 > slower > slow >= 1


def test_trials_make_no_window_and_no_quantum_smaller_but_a_task_busy() -> None:
    wire = OperatorWire(most=100, queue_seconds=0.5)
    given = [*processing(wire.push("a" * 16)), *processing(wire.push("b" * 16)), *processing(wire.push("c" * 16))]
    for _ in range(3):
        found = wire.task.handle(ProcessDone(1.05, tried=1.0), 1.0)
        given += processing(found)
        [(_, ack)] = sent(found, Ack)
    assert given == [key * 16 for key in "abc"]
    assert ack.window == pytest.approx(160, abs=3), "a record takes 3 ms"
    assert wire.task.busy_seconds == pytest.approx(3.15)


def test_each_edge_of_a_sender_counts_until_it_has_been_silent_for_seconds() -> None:
    active = ActiveSenders()
    assert active.number == 1
    for index, edge, now in ((0, 0, 0.0), (0, 1, 0.0), (1, 0, 0.5)):
        active.sent(mapper(index), edge, now)
    assert active.number == 3
    for now in (1.0, 1.5, 2.0, 2.5):
        active.sent(mapper(1), 0, now)
    assert active.number == 1


def test_credit_follows_what_is_forwarded_in_one_message_for_each_sender_edge_and_receiver() -> None:
    wire = OperatorWire(most=1)
    wire.push("a")  # user code is at work on it
    for keys, origin, edge in (("bba", 0, 0), ("bc", 0, 0), ("bb", 0, 1), ("cbc", 1, 0)):
        wire.push(keys, origin=mapper(origin), edge=edge)
    instructions = wire.update(1)
    assert len(pushed(instructions)) == 6
    moved = [(to.index, found.edge, found.records, found.receiver) for to, found in sent(instructions, CreditTransfer)]
    assert sorted(moved) == [(0, 0, 1, 2), (0, 0, 3, 1), (0, 1, 2, 1), (1, 0, 1, 1), (1, 0, 2, 2)]


# --- reports


def queues(instructions: list[Instruction]) -> list[int]:
    """The lengths of queues that the load balancer hears of."""
    assert all(to == BALANCER for to, _ in sent(instructions, LoadReport))
    return [report.load.queue for _, report in sent(instructions, LoadReport)]


def test_the_load_is_reported_at_every_nth_record_dequeued() -> None:
    reducer_0 = OperatorWire(every=3, most=1)
    reducer_0.push("aaaaaaa")
    assert [queues(reducer_0.done()) for _ in range(7)] == [[], [], [4], [], [], [1], []]


@both_ways
def test_forwarded_records_count_as_dequeued(eager: bool) -> None:
    reducer_0 = OperatorWire(eager=eager, every=3, most=1)
    reducer_0.update(1)
    [(to, report)] = sent(reducer_0.push("aabbc"), LoadReport)
    assert (to, report.load.queue, report.load.version) == (BALANCER, 2, 1)
    assert [queues(reducer_0.done()) for _ in range(2)] == [[], []]


def test_an_empty_queue_is_reported_if_asked_for_and_where_it_empties_by_forwarding_alone_too() -> None:
    reducer_0 = OperatorWire(every=100, idle=True)
    reducer_0.push("ab")
    reducer_0.push("c")
    assert [queues(reducer_0.done()) for _ in range(2)] == [[], [0]]
    reducer_0 = OperatorWire(every=4, idle=True)
    reducer_0.update(1)
    assert queues(reducer_0.push("bbbbc"))[-1] == reducer_0.task.queue.length == 0


def test_without_balancing_no_load_is_reported() -> None:
    reducer_0 = OperatorWire(every=None, idle=True, report_seconds=0.1)
    reducer_0.push("ab")
    assert queues(reducer_0.done() + reducer_0.task.handle(Tick(), 9.0)) == []


@pytest.mark.parametrize(("seconds", "reports"), [(0.5, [[2], [], [2], []]), (None, [[]] * 4)])
def test_a_queue_that_makes_no_progress_is_reported_from_time_to_time(seconds, reports) -> None:
    reducer_0 = OperatorWire(every=100, report_seconds=seconds)
    reducer_0.push("ab")
    assert [queues(reducer_0.task.handle(Tick(), now)) for now in (0.4, 0.6, 0.9, 1.2)] == reports


def test_the_first_records_processed_and_every_tick_are_reported_to_the_coordinator() -> None:
    reducer_0 = OperatorWire()
    reducer_0.push("ab")
    reducer_0.push("c")
    [(to, first)] = sent(reducer_0.done(seconds=0.25), Progress)
    assert (to, first.stats.processed, first.stats.busy_seconds) == (COORDINATOR, 2, 0.25)
    assert sent(reducer_0.done(), Progress) == []
    [(_, tick)] = sent(reducer_0.task.handle(Tick(), 1.0), Progress)
    assert (tick.stats.processed, tick.stats.queue) == (3, 0)


def test_tasks_of_a_large_job_report_at_few_ticks_in_turn_what_they_have_used_by_then() -> None:
    graph = map_reduce(INPUT, 64, 64)
    assert [map_reduce(INPUT, 16, 16).report_seconds, graph.report_seconds] == [0.0, 1.0]
    tasks = [task_of(graph, reducer(index)) for index in range(3)]
    reported = [[len(sent(task.handle(Tick(), tick / 4), Progress)) for task in tasks] for tick in range(9)]
    turns = [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert reported == [*turns, *turns, turns[0]]
    task = task_of(graph, reducer())
    ticks = [Tick(), Tick(use=TaskUse("first")), Tick(use=TaskUse("second")), Tick(), Tick(), Tick()]
    reports = [sent(task.handle(tick, number / 4), Progress) for number, tick in enumerate(ticks)]
    used = [None if report.use is None else report.use.node for each in reports for _, report in each]
    assert used == [None, "second"]


def test_while_draining_the_count_is_reported_whenever_the_queue_runs_empty_until_the_cut_is_over() -> None:
    reducer_0 = OperatorWire()
    reducer_0.push("ab")
    [(_, at_once)] = sent(reducer_0(COORDINATOR, Drain()), Progress)
    assert (at_once.stats.processed, at_once.stats.queue) == (0, 2)
    assert sent(reducer_0.done(), Progress)[-1][1].stats.processed == 2
    reducer_0.push("c")
    assert sent(reducer_0.done(), Progress)[-1][1].stats.processed == 3
    reducer_0(COORDINATOR, GoOn(draining=False))
    for _ in range(2):
        reducer_0.push("a")
        reports = sent(reducer_0.done(), Progress)
    assert not reports


def test_who_hears_of_records_that_have_failed_hears_of_those_emitted_for_the_others_of_their_block() -> None:
    reducer_0 = OperatorWire(emitter_for(table_giving({"a": 0}), credit=1, stage="next"))
    reducer_0.push("ab")
    failed = Failed((ErrorCount("step", "ValueError", True, 1, "it failed"),))
    made = ((0, block_of(["a", "a"])),)
    done = reducer_0.task.handle(ProcessDone(0.0, blocks=made, dead=1, failed=failed), 0.0)
    reports = [report.stats for _, report in sent(done, Progress)]
    assert {(stats.processed, stats.emitted) for stats in reports} == {(2, (2,))}


# --- records that are emitted while others are processed


class EmittingWire(OperatorWire):
    """Reducer 0 of three, whose records go on to the one task of the stage `next`, with credit for two of them."""

    def __init__(self, **options) -> None:
        self.emitter = emitter_for(table_giving({"r": 0}), 2, edge=1, stage="next", origin=reducer())
        super().__init__(self.emitter, **options)

    def emitted(self, records: int, now: float = 0.0) -> list[Instruction]:
        """The quantum at hand is processed, and has emitted this many records."""
        return self.task.handle(ProcessDone(0.0, ((0, block_of(["r"] * records)),)), now)

    def ack(self, records: int, now: float = 0.0) -> list[Instruction]:
        return self(Address("next"), Ack(1, records), now)


def test_emitted_records_are_pushed_downstream_with_the_source_time_of_what_they_are_made_of() -> None:
    task = EmittingWire()
    task.push("a", read_at=1.5)
    [(to, message)] = sent(task.emitted(2, now=3.0), Push)
    assert (to, keys_of(message), message.origin, message.edge) == (Address("next"), "rr", reducer(), 1)
    assert (message.read_at, message.emitted_at) == (1.5, 3.0)
    assert task.task.stats.emitted == (2,)


def test_what_is_made_of_several_pushes_is_as_old_as_the_oldest_and_its_failures_are_of_no_single_one() -> None:
    task, failed = EmittingWire(), Failed((ErrorCount("step", "ValueError", True, 1, "it failed"),))
    task.push("a" * 8)
    for read_at in (3.0, 2.5, 2.0):
        task.push("aa", read_at=read_at, number=7)
    task.done(0.3)
    for expected, pushes in (((mapper(), 7), 1), ((None, None), 2)):
        assert len(task.task.working_on) == pushes
        found = task.task.handle(ProcessDone(0.3, ((0, block_of(["r"])),), failed=failed), 4.0)
        [report] = [message.failed for _, message in sent(found, Progress) if message.failed]
        assert (report.sender, report.block) == expected
        read = [message.read_at for _, message in sent(found, Push)]
    assert read == [2.0]


def test_a_task_that_cannot_emit_acknowledges_what_it_has_processed_and_takes_up_no_more() -> None:
    task = EmittingWire(most=1)
    task.push("aaaa")
    assert processing(task.emitted(2)) == ["a"]  # one block may be made ahead
    instructions = task.emitted(2)
    assert sent(instructions, Ack) == [(mapper(), Ack(0, 1))]
    assert processing(instructions) == []
    assert (task.task.queue.length, task.task.idle) == (2, False)
    freed = task.ack(2)
    assert [keys_of(message) for _, message in sent(freed, Push)] == ["rr"]
    assert processing(freed) == ["a"]


def test_a_task_is_blocked_while_its_queue_has_records_that_credit_keeps_it_from_processing() -> None:
    task = EmittingWire(most=1)
    task.push("aa")
    for now, records in ((1.0, 2), (2.0, 2)):
        task.emitted(records, now)
    task.task.handle(Tick(), 10.0)
    assert task.task.stats.blocked_seconds == 0.0  # nothing is queued
    task.push("aa", now=11.0)
    task.ack(2, 13.0)
    task.task.handle(Tick(), 20.0)
    assert task.task.stats.blocked_seconds == 2.0


# --- states that are given away

SENDERS = (mapper(0), mapper(1))
ROWS = EmittedRows(pa.record_batch({"key": ["a"]}))


def test_user_code_gets_records_between_two_pieces_though_others_wait_for_their_states() -> None:
    wire = OperatorWire(migrates_with=SENDERS, most=1)

    def extracted() -> list[Instruction]:
        """Of some key, and not the last piece."""
        piece = Piece({}, (hash_key("c"), hash_key("c")), is_last=False)
        return wire.task.handle(RangesExtracted(piece), 0.0)

    [extract] = instructed(wire.update(1), ExtractRanges)
    assert extract.most == 100
    wire.push("aaaa")
    for between in (extracted(), wire.done(now=0.05)):
        assert processing(between) == ["a"] and instructed(between, ExtractRanges) == []
    assert instructed(wire.done(now=0.11), ExtractRanges), "others wait for their states"
    assert processing(extracted()) == ["a"]
    wire.done()
    assert instructed(wire.done(), ExtractRanges), "no record is left"


def test_extraction_does_not_wait_for_credit_downstream() -> None:
    wire = EmittingWire(migrates_with=SENDERS)
    wire.push("a")
    wire.emitted(3)
    assert not wire.emitter.is_open
    assert instructed(wire.update(1), ExtractRanges)
    wire.push("a")
    given = wire.task.handle(RangesExtracted(Piece({}, ALL_HASHES, is_last=True)), 0.0)
    assert processing(given) == [], "but processing does"


class LeavingWire(OperatorWire):
    """Reducer 0 of three, in merge mode: by table 1 it is no member any more."""

    def __init__(self, *, eager: bool = True, drain_seconds: float = 0.0) -> None:
        tables = [REDUCER_TABLES[0], with_members(REDUCER_TABLES[0], MemberChange(leaves=(0,)), {})]
        super().__init__(eager=eager, tables=tables, merges_with=SENDERS, drain_seconds=drain_seconds)

    def begin(self) -> list[Instruction]:
        """The table comes while user code is at work on a record and two are queued."""
        self.push("a")
        self.push("bc", origin=mapper(1))
        return self.update(1)

    def extracted(self) -> list[Instruction]:
        return self.task.handle(RangesExtracted(Piece({1: part("a")}, ALL_HASHES, is_last=True, rows=(ROWS,))), 0.0)


def test_a_task_that_leaves_gives_all_its_states_when_user_code_returns_and_its_rows_to_one_task() -> None:
    wire = LeavingWire()
    assert instructed(wire.begin(), ExtractRanges) == []
    assert len(instructed(wire.done(), ExtractRanges)) == 1
    transfers = {to.index: message for to, message in sent(wire.extracted(), RangeTransfer)}
    assert transfers.keys() == {1, 2} and transfers[1].part is not None and transfers[2].part is None
    assert transfers[1].rows == (ROWS,) and transfers[2].rows == ()


def test_a_task_that_leaves_first_processes_what_is_queued_and_hands_over_what_it_has_not_processed_in_time() -> None:
    wire = LeavingWire(drain_seconds=2.0)
    began = wire.begin()
    assert pushed(began) == [] and sent(began, Settled) == []
    wire.push("d")
    assert [processing(wire.done()) for _ in range(2)] == [["bc"], ["d"]]
    ended = wire.done()
    assert pushed(ended) == [] and len(instructed(ended, ExtractRanges)) == 1
    slow = LeavingWire(drain_seconds=2.0)
    slow.begin()
    assert pushed(slow.task.handle(Tick(), 1.9)) == []
    assert sorted("".join(keys for _, keys in pushed(slow.task.handle(Tick(), 2.0)))) == ["b", "c"]
    assert len(instructed(slow.done(now=2.1), ExtractRanges)) == 1, "when user code returns"
