"""Rounds of aggregation: a task's turns between quanta, states that overtake, and what the coordinator waits for."""

from __future__ import annotations

import pytest
from builders import block_of, table_giving
from hypothesis import given
from hypothesis import strategies as st
from wires import CoordinatorWire, OperatorWire, emitter_for, instructed, last_table, part, processing, reducer, sent

from dpa.errors import ProtocolError
from dpa.execution.states import StatePart
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.coordinator.stage_progress import StagePhase
from dpa.protocol.graph import REDUCER, map_reduce
from dpa.protocol.task.operator import OperatorState
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import ExtractDone, MergeDone, ProcessDone, Tick
from dpa.protocol.wire.instructions import Commit, Extract, Instruction, MergeStates, ProcessBlock
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.end import Freeze, Progress
from dpa.protocol.wire.messages.exchange import BeginExchange, RoundDone, StateTransfer
from dpa.protocol.wire.metrics import AggregationStats


class Operator(OperatorWire):
    """Reducer 0 of three, the initial owner of a, b and c."""

    def aggregate(self, number: int = 1) -> list[Instruction]:
        return self(COORDINATOR, BeginExchange(number, version=0))

    def transferred(self, sender: int, states: StatePart | None = None, number: int = 1) -> list[Instruction]:
        return self(reducer(sender), StateTransfer(number, states))

    def extracted(self, **parts: StatePart) -> list[Instruction]:
        """The states of other owners are out; `to_1=...` are those of reducer 1."""
        event = ExtractDone({int(to[-1]): states for to, states in parts.items()}, seconds=0.25)
        return self.task.handle(event, 0.0)

    def merged(self, rows: int = 3) -> list[Instruction]:
        return self.task.handle(MergeDone(rows, seconds=0.5), 0.0)

    def round(self, number: int = 1) -> list[Instruction]:
        """A whole round in which nobody has anything for another."""
        self.aggregate(number)
        self.extracted()
        self.transferred(1, number=number)
        self.transferred(2, number=number)
        return self.merged()


# --- a task


def test_an_idle_task_extracts_at_once_by_the_first_table_whatever_table_it_holds() -> None:
    reducer_0 = Operator()
    first = reducer_0.task.table
    reducer_0.update(2)
    [extract] = reducer_0.aggregate()
    assert isinstance(extract, Extract) and extract.table is first


def test_what_was_extracted_goes_to_every_other_task() -> None:
    reducer_0, of_2 = Operator(), part("y")
    reducer_0.aggregate()
    assert [
        (to, message.number, message.part) for to, message in sent(reducer_0.extracted(to_2=of_2), StateTransfer)
    ] == [
        (reducer(1), 1, None),
        (reducer(2), 1, of_2),
    ]


def test_a_task_extracts_after_the_quantum_at_hand_and_before_the_next() -> None:
    reducer_0 = Operator(most=2)
    assert processing(reducer_0.push("abca")) == ["ab"]
    assert reducer_0.aggregate() == []
    done = reducer_0.done()
    assert instructed(done, Extract) and processing(done) == []
    assert processing(reducer_0.push("b")) == []
    assert processing(reducer_0.extracted()) == ["ca"]


def test_a_task_goes_on_with_records_until_all_others_have_sent_their_states() -> None:
    reducer_0, of_2 = Operator(most=1), part("b")
    reducer_0.push("abc")
    reducer_0.aggregate()
    reducer_0.done()
    assert processing(reducer_0.extracted()) == ["b"]
    assert reducer_0.transferred(2, of_2) == []
    assert processing(reducer_0.done()) == ["c"]
    assert reducer_0.transferred(1) == []
    [merge] = instructed(reducer_0.done(), MergeStates)
    assert (merge.parts, merge.round, reducer_0.task.has_records) == ((of_2,), 1, False)
    assert processing(reducer_0.push("a")) == []
    assert processing(reducer_0.merged()) == ["a"]


@given(st.permutations(["aggregate", "from 1", "from 2"]))
def test_states_of_others_may_come_before_the_round_does(order: list[str]) -> None:
    reducer_0, parts, merges = Operator(), {1: part("b"), 2: part("a", "b")}, []
    for step in order:
        assert not merges
        if step == "aggregate":
            assert instructed(reducer_0.aggregate(), Extract)
            merges += instructed(reducer_0.extracted(), MergeStates)
        else:
            merges += instructed(reducer_0.transferred(int(step[-1]), parts[int(step[-1])]), MergeStates)
    [merge] = merges
    assert merge.parts == (parts[1], parts[2])


def test_a_merged_share_is_reported_with_what_it_took() -> None:
    reducer_0 = Operator()
    reducer_0.aggregate()
    reducer_0.extracted(to_1=part("x"), to_2=part("y", "z"))
    reducer_0.transferred(1)
    reducer_0.transferred(2)
    assert sent(reducer_0.merged(rows=7), RoundDone) == [(COORDINATOR, RoundDone(1, 7, states=3, seconds=0.75))]
    assert reducer_0.task.idle


def test_rounds_follow_each_other() -> None:
    reducer_0 = Operator()
    for number in (1, 2, 3):
        [(_, share)] = sent(reducer_0.round(number), RoundDone)
        assert share.number == number


def test_one_task_alone_merges_what_it_has() -> None:
    alone = OperatorWire(tables=[table_giving({"a": 0})])
    assert instructed(alone(COORDINATOR, BeginExchange(1, 0)), Extract)
    [merge] = instructed(alone.task.handle(ExtractDone({}), 0.0), MergeStates)
    assert merge.parts == ()


def test_queue_credits_and_reports_are_as_without_a_round() -> None:
    reducer_0 = Operator(most=1)
    reducer_0.push("ab")
    reducer_0.aggregate()
    reducer_0.done()
    assert (reducer_0.task.queue.length, reducer_0.task.processed) == (1, 1)
    [(_, report)] = sent(reducer_0.task.handle(Tick(), 1.0), Progress)
    assert (report.stats.queue, report.stats.processed) == (1, 1)
    reducer_0.extracted()
    assert (reducer_0.task.queue.length, reducer_0.task.processed) == (1, 1)


def test_a_task_that_credit_downstream_keeps_from_processing_takes_part_in_a_round_all_the_same() -> None:
    emitter = emitter_for(table_giving({"r": 0}), 1, edge=1, stage="next", origin=reducer())
    blocked = OperatorWire(emitter, most=1)
    blocked.push("ab")
    blocked.task.handle(ProcessDone(0.0, tuple((0, block_of(["r"])) for _ in range(3))), 0.0)
    assert not emitter.is_open
    assert instructed(blocked(COORDINATOR, BeginExchange(1, 0)), Extract)


def test_after_a_round_comes_the_last_exchange_by_the_last_table() -> None:
    reducer_0 = Operator()
    reducer_0.round()
    reducer_0.update(1)
    [extract] = instructed(reducer_0(COORDINATOR, BeginExchange(2, 1, last=True)), Extract)
    assert extract.table is reducer_0.task.table
    assert reducer_0.task.state is OperatorState.EXCHANGING


def test_the_numbers_of_exchanges_have_no_gap() -> None:
    reducer_0 = Operator()
    reducer_0.round()
    with pytest.raises(ProtocolError, match="reducer 0 is to begin exchange 3 after 1"):
        reducer_0.aggregate(3)


# --- what a task cannot take


LAST = BeginExchange(2, 0, last=True)


def fresh() -> Operator:
    return Operator()


def asked() -> Operator:
    reducer_0 = Operator()
    reducer_0.push("a")
    reducer_0.aggregate()
    return reducer_0


def extracting() -> Operator:
    reducer_0 = Operator()
    reducer_0.aggregate()
    return reducer_0


def collecting() -> Operator:
    reducer_0 = extracting()
    reducer_0.extracted()
    reducer_0.transferred(2)
    return reducer_0


def merging() -> Operator:
    reducer_0 = collecting()
    reducer_0.transferred(1)
    return reducer_0


CANNOT_COME = [
    (fresh, ExtractDone({})),
    (fresh, MergeDone(0, 0.0)),
    (fresh, StateTransfer(2, None)),
    (asked, BeginExchange(2, 0)),
    (asked, ExtractDone({})),
    (asked, MergeDone(0, 0.0)),
    (extracting, BeginExchange(2, 0)),
    (extracting, MergeDone(0, 0.0)),
    (extracting, StateTransfer(2, None)),
    (collecting, BeginExchange(2, 0)),
    (collecting, ExtractDone({})),
    (collecting, MergeDone(0, 0.0)),
    (collecting, StateTransfer(2, None)),
    (collecting, LAST),
    (merging, BeginExchange(2, 0)),
    (merging, StateTransfer(1, None)),
    (merging, StateTransfer(2, None)),
    (merging, ExtractDone({})),
    (merging, LAST),
]


@pytest.mark.parametrize(
    ("state", "what"), CANNOT_COME, ids=[f"{what} while {state.__name__}" for state, what in CANNOT_COME]
)
def test_what_cannot_come_in_a_round_is_refused(state, what) -> None:
    reducer_0 = state()
    with pytest.raises(ProtocolError, match="reducer 0"):
        if isinstance(what, Message):
            reducer_0(COORDINATOR if isinstance(what, BeginExchange) else reducer(1), what)
        else:
            reducer_0.task.handle(what, 0.0)


def test_a_task_sends_its_states_only_once_in_a_round() -> None:
    with pytest.raises(ProtocolError, match="reducer 0 cannot take states of exchange 1 from reducer 2"):
        collecting().transferred(2)


# --- the coordinator


class Coordinator(CoordinatorWire):
    """The coordinator of two mappers and two reducers, with a round every two seconds, at 10 s."""

    def __init__(self, seconds: float | None = 2.0) -> None:
        super().__init__(10.0, aggregate_seconds=seconds)

    def tick(self, now: float) -> list[int]:
        """The rounds that a tick begins, one for each reducer that takes part."""
        begun = sent(self.coordinator.handle(Tick(), now), BeginExchange)
        assert {(message.version, message.last) for _, message in begun} <= {(0, False)}
        return [message.number for _, message in begun]

    def aggregated(self, index: int, number: int = 1, now: float = 0.0, **more: float) -> list[Instruction]:
        given = {"rows": 5, "states": 2, "seconds": 0.5, **more}
        return self(reducer(index), RoundDone(number, **given), now)  # type: ignore[arg-type]

    def drained(self) -> None:
        """All records are processed, so the load balancer is asked for the last table."""
        self.mapped(0, 4, done=True)
        self.mapped(1, 3, done=True)
        self.reduced(0, 5)
        assert sent(self.reduced(1, 2), Freeze)

    def last_table(self, version: int) -> list[Instruction]:
        return self(BALANCER, last_table("reducer", version))

    @property
    def aggregation(self) -> AggregationStats | None:
        return self.coordinator.snapshot()[REDUCER].aggregation


def last_exchange(instructions: list[Instruction]) -> list[tuple[Address, int, int]]:
    """To whom the last exchange is announced, with its number and the version of the last table."""
    begun = sent(instructions, BeginExchange)
    assert all(message.last for _, message in begun)
    return [(to, message.number, message.version) for to, message in begun]


def test_the_first_round_begins_at_the_first_tick_after_its_time() -> None:
    coordinator = Coordinator()
    assert [coordinator.tick(now) for now in (10.25, 11.9, 12.0)] == [[], [], [1, 1]]


def test_no_round_begins_while_one_is_in_progress_and_the_time_runs_from_its_end() -> None:
    coordinator = Coordinator()
    coordinator.tick(12.0)
    coordinator.aggregated(0)
    assert coordinator.tick(20.0) == []
    coordinator.aggregated(1, now=21.0)
    assert [coordinator.tick(now) for now in (22.0, 22.9, 23.0)] == [[], [], [2, 2]]


def test_a_round_is_committed_when_all_shares_are_complete() -> None:
    coordinator = Coordinator()
    coordinator.tick(12.5)
    assert instructed(coordinator.aggregated(1, rows=3), Commit) == []
    assert instructed(coordinator.aggregated(0, rows=4), Commit) == [Commit("reducer", 1, at=2.5, rows=(4, 3))]


def test_what_rounds_take_is_added_up_when_they_end() -> None:
    coordinator = Coordinator()
    assert coordinator.aggregation == AggregationStats()
    for number, now in ((1, 12.0), (2, 15.0)):
        coordinator.tick(now)
        coordinator.aggregated(0, number, now)
        assert coordinator.aggregation == AggregationStats(number - 1, number - 1, 4 * (number - 1))
        coordinator.aggregated(1, number, now)
    assert coordinator.aggregation == AggregationStats(2, 2.0, 8)


def test_without_aggregation_there_are_no_rounds_and_no_numbers() -> None:
    coordinator = Coordinator(None)
    assert coordinator.tick(1e9) == []
    assert coordinator.aggregation is None


def test_no_round_begins_before_the_stream_or_after_its_end() -> None:
    coordinator = Coordinator()
    unstarted = CoordinatorMachine(map_reduce((), 2, 2, aggregate_seconds=2.0))
    assert unstarted.handle(Tick(), 50.0) == []
    coordinator.drained()
    assert coordinator.tick(50.0) == []
    coordinator.last_table(1)
    assert coordinator.tick(60.0) == []


def test_a_round_in_progress_ends_before_the_last_exchange_begins() -> None:
    coordinator = Coordinator()
    coordinator.tick(12.0)
    coordinator.drained()
    assert coordinator.last_table(3) == []
    assert coordinator.aggregated(0) == []
    last = coordinator.aggregated(1)
    assert instructed(last, Commit)
    assert last_exchange(last) == [(reducer(0), 2, 3), (reducer(1), 2, 3)]
    assert coordinator.coordinator.stages["reducer"].state is StagePhase.EXCHANGING


def test_a_round_that_ends_before_the_last_table_comes_does_not_begin_the_last_exchange() -> None:
    coordinator = Coordinator()
    coordinator.tick(12.0)
    coordinator.drained()
    for index in (0, 1):
        assert last_exchange(coordinator.aggregated(index)) == []
    assert len(last_exchange(coordinator.last_table(3))) == 2


@pytest.mark.parametrize(("number", "twice"), [(2, False), (0, False), (1, True)])
def test_a_share_that_nobody_waits_for_is_refused(number: int, twice: bool) -> None:
    coordinator = Coordinator()
    coordinator.tick(12.0)
    if twice:
        coordinator.aggregated(0)
    with pytest.raises(ProtocolError, match=f"reducer 0 reports a share of round {number}"):
        coordinator.aggregated(0, number)


def test_a_share_cannot_come_without_a_round() -> None:
    with pytest.raises(ProtocolError, match="reducer 1 reports a share of round 0"):
        Coordinator().aggregated(1, 0)


def test_user_code_has_one_thing_to_do_at_a_time() -> None:
    """Whatever comes while it extracts or merges states: nothing else is given to it."""
    for at_work in (extracting, merging):
        reducer_0 = at_work()
        given = [*reducer_0.push("abc"), *reducer_0.update(2), *reducer_0.task.handle(Tick(), 1.0)]
        assert instructed(given, ProcessBlock) == instructed(given, Extract) == instructed(given, MergeStates) == []
