"""Rounds of aggregation: a reducer's turns between slices, states that overtake, and what the coordinator waits for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from builders import CoordinatorWire, ReducerWire, processing, sent, table_giving, told
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import ProtocolError
from dpa.execution.states import StatePart
from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.machine import Commit, Fold, FoldDone, Instruction, Pack, PackDone, Process, Start, Tick
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Aggregate,
    Aggregated,
    Freeze,
    LastTable,
    Merge,
    Partial,
    ReducerReport,
    reducer,
)
from dpa.protocol.metrics import AggregationStats, ReducerStats
from dpa.protocol.reducer import ReducerMachine, ReducerOptions


def part(*keys: str) -> StatePart:
    ones = np.ones(len(keys), np.int64)
    return StatePart(pa.array(keys), [1] * len(keys), ones, ones)


class Reducer(ReducerWire):
    """Reducer 0 of three, whose home keys are a, b and c."""

    def aggregate(self, number: int = 1) -> list[Instruction]:
        return self(COORDINATOR, Aggregate(number))

    def partial(self, sender: int, states: StatePart | None = None, number: int = 1) -> list[Instruction]:
        return self(reducer(sender), Partial(number, states))

    def packed(self, **parts: StatePart) -> list[Instruction]:
        """The states of other homes are out; `to_1=...` are those of reducer 1."""
        event = PackDone({int(to[-1]): states for to, states in parts.items()}, seconds=0.25)
        return self.reducer.handle(event, 0.0)

    def folded(self, rows: int = 3) -> list[Instruction]:
        return self.reducer.handle(FoldDone(rows, seconds=0.5), 0.0)

    def round(self, number: int = 1) -> list[Instruction]:
        """A whole round in which nobody has anything for another."""
        self.aggregate(number)
        self.packed()
        self.partial(1, number=number)
        self.partial(2, number=number)
        return self.folded()


# --- a reducer


def test_an_idle_reducer_packs_at_once_by_the_first_table_whatever_table_it_holds() -> None:
    reducer_0 = Reducer()
    first = reducer_0.reducer.table
    reducer_0.update(2)
    [pack] = reducer_0.aggregate()
    assert isinstance(pack, Pack) and pack.table is first


def test_what_was_packed_goes_to_every_other_reducer() -> None:
    reducer_0, of_2 = Reducer(), part("y")
    reducer_0.aggregate()
    assert [(to, message.round, message.part) for to, message in sent(reducer_0.packed(to_2=of_2), Partial)] == [
        (reducer(1), 1, None),
        (reducer(2), 1, of_2),
    ]


def test_a_reducer_packs_after_the_slice_at_hand_and_before_the_next() -> None:
    reducer_0 = Reducer(most=2)
    assert processing(reducer_0.push("abca")) == ["ab"]
    assert reducer_0.aggregate() == []
    done = reducer_0.done()
    assert told(done, Pack) and processing(done) == []
    assert processing(reducer_0.push("b")) == []
    assert processing(reducer_0.packed()) == ["ca"]


def test_a_reducer_goes_on_with_records_until_all_others_have_handed_over() -> None:
    reducer_0, of_2 = Reducer(most=1), part("b")
    reducer_0.push("abc")
    reducer_0.aggregate()
    reducer_0.done()
    assert processing(reducer_0.packed()) == ["b"]
    assert reducer_0.partial(2, of_2) == []
    assert processing(reducer_0.done()) == ["c"]
    assert reducer_0.partial(1) == []
    [fold] = told(reducer_0.done(), Fold)
    assert (fold.parts, fold.round, reducer_0.reducer.has_records) == ((of_2,), 1, False)
    assert processing(reducer_0.push("a")) == []
    assert processing(reducer_0.folded()) == ["a"]


@given(st.permutations(["aggregate", "from 1", "from 2"]))
def test_states_of_others_may_come_before_the_round_does(order: list[str]) -> None:
    reducer_0, parts, folds = Reducer(), {1: part("b"), 2: part("a", "b")}, []
    for step in order:
        assert not folds
        if step == "aggregate":
            assert told(reducer_0.aggregate(), Pack)
            folds += told(reducer_0.packed(), Fold)
        else:
            folds += told(reducer_0.partial(int(step[-1]), parts[int(step[-1])]), Fold)
    [fold] = folds
    assert fold.parts == (parts[1], parts[2])


def test_a_folded_share_is_reported_with_what_it_took() -> None:
    reducer_0 = Reducer()
    reducer_0.aggregate()
    reducer_0.packed(to_1=part("x"), to_2=part("y", "z"))
    reducer_0.partial(1)
    reducer_0.partial(2)
    assert sent(reducer_0.folded(rows=7), Aggregated) == [(COORDINATOR, Aggregated(1, 7, states=3, seconds=0.75))]
    assert reducer_0.reducer.idle


def test_rounds_follow_each_other() -> None:
    reducer_0 = Reducer()
    for number in (1, 2, 3):
        [(_, share)] = sent(reducer_0.round(number), Aggregated)
        assert share.round == number


def test_one_reducer_alone_folds_what_it_has() -> None:
    machine = ReducerMachine(0, table_giving({"a": 0}), ReducerOptions())
    alone = ReducerWire()
    alone.machine = alone.reducer = machine
    assert told(alone(COORDINATOR, Aggregate(1)), Pack)
    [fold] = told(machine.handle(PackDone({}), 0.0), Fold)
    assert fold.parts == ()


def test_queue_credits_and_reports_are_as_without_a_round() -> None:
    reducer_0 = Reducer(most=1)
    reducer_0.push("ab")
    reducer_0.aggregate()
    reducer_0.done()
    assert (reducer_0.reducer.queue_length, reducer_0.reducer.processed) == (1, 1)
    [(_, report)] = sent(reducer_0.reducer.handle(Tick(), 1.0), ReducerReport)
    assert (report.stats.queue, report.stats.processed) == (1, 1)
    reducer_0.packed()
    assert (reducer_0.reducer.queue_length, reducer_0.reducer.processed) == (1, 1)


def test_after_a_round_states_are_merged_in_the_end_as_ever() -> None:
    reducer_0 = Reducer()
    reducer_0.round()
    reducer_0.update(1)
    assert told(reducer_0(COORDINATOR, Merge(1, True)), Pack)
    assert reducer_0.reducer.state == "packing"


# --- what a reducer cannot take


def fresh() -> Reducer:
    return Reducer()


def asked() -> Reducer:
    reducer_0 = Reducer()
    reducer_0.push("a")
    reducer_0.aggregate()
    return reducer_0


def packing() -> Reducer:
    reducer_0 = Reducer()
    reducer_0.aggregate()
    return reducer_0


def collecting() -> Reducer:
    reducer_0 = packing()
    reducer_0.packed()
    reducer_0.partial(2)
    return reducer_0


def folding() -> Reducer:
    reducer_0 = collecting()
    reducer_0.partial(1)
    return reducer_0


CANNOT_COME = [
    (fresh, PackDone({})),
    (fresh, FoldDone(0, 0.0)),
    (fresh, Partial(2, None)),
    (asked, Aggregate(2)),
    (asked, PackDone({})),
    (asked, FoldDone(0, 0.0)),
    (packing, Aggregate(2)),
    (packing, FoldDone(0, 0.0)),
    (packing, Partial(2, None)),
    (collecting, Aggregate(2)),
    (collecting, PackDone({})),
    (collecting, FoldDone(0, 0.0)),
    (collecting, Partial(2, None)),
    (collecting, Merge(0, False)),
    (folding, Aggregate(2)),
    (folding, Partial(1, None)),
    (folding, Partial(2, None)),
    (folding, PackDone({})),
    (folding, Merge(0, False)),
]


@pytest.mark.parametrize(
    ("state", "what"), CANNOT_COME, ids=[f"{what} while {state.__name__}" for state, what in CANNOT_COME]
)
def test_what_cannot_come_in_a_round_is_refused(state, what) -> None:
    reducer_0 = state()
    with pytest.raises(ProtocolError, match="reducer 0"):
        if isinstance(what, Aggregate | Merge):
            reducer_0(COORDINATOR, what)
        elif isinstance(what, Partial):
            reducer_0(reducer(1), what)
        else:
            reducer_0.reducer.handle(what, 0.0)


def test_a_reducer_hands_over_only_once_in_a_round() -> None:
    with pytest.raises(ProtocolError, match="reducer 0 cannot take states of round 1 from reducer 2"):
        collecting().partial(2)


# --- the coordinator


class Coordinator(CoordinatorWire):
    """The coordinator of two mappers and two reducers, with a round every two seconds, at 10 s."""

    def __init__(self, seconds: float | None = 2.0) -> None:
        super().__init__()
        self.coordinator = self.machine = CoordinatorMachine([], 2, 2, seconds)
        self.coordinator.handle(Start(), 10.0)

    def tick(self, now: float) -> list[int]:
        """The rounds that a tick begins, one for each reducer that is told."""
        return [message.round for _, message in sent(self.coordinator.handle(Tick(), now), Aggregate)]

    def aggregated(self, index: int, number: int = 1, now: float = 0.0, **more: float) -> list[Instruction]:
        given = {"rows": 5, "states": 2, "seconds": 0.5, **more}
        return self(reducer(index), Aggregated(number, **given), now)  # type: ignore[arg-type]

    def drained(self) -> None:
        """All records are processed, so the balancer is asked for its last table."""
        self.mapped(0, 4, done=True)
        self.mapped(1, 3, done=True)
        self.reduced(0, 5)
        assert sent(self(reducer(1), ReducerReport(ReducerStats(1, processed=2))), Freeze)


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
    assert told(coordinator.aggregated(1, rows=3), Commit) == []
    assert told(coordinator.aggregated(0, rows=4), Commit) == [Commit(1, at=2.5, rows=(4, 3))]


def test_what_rounds_take_is_added_up_when_they_end() -> None:
    coordinator = Coordinator()
    assert coordinator.coordinator.snapshot().aggregation == AggregationStats()
    for number, now in ((1, 12.0), (2, 15.0)):
        coordinator.tick(now)
        coordinator.aggregated(0, number, now)
        assert coordinator.coordinator.snapshot().aggregation == AggregationStats(
            number - 1, number - 1, 4 * (number - 1)
        )
        coordinator.aggregated(1, number, now)
    assert coordinator.coordinator.snapshot().aggregation == AggregationStats(2, 2.0, 8)


def test_without_aggregation_there_are_no_rounds_and_no_numbers() -> None:
    coordinator = Coordinator(None)
    assert coordinator.tick(1e9) == []
    assert coordinator.coordinator.snapshot().aggregation is None


def test_no_round_begins_before_the_stream_or_after_its_end() -> None:
    coordinator = Coordinator()
    unstarted = CoordinatorMachine([], 2, 2, 2.0)
    assert unstarted.handle(Tick(), 50.0) == []
    coordinator.drained()
    assert coordinator.tick(50.0) == []
    coordinator(BALANCER, LastTable(1))
    assert coordinator.tick(60.0) == []


def test_a_round_in_progress_ends_before_reducers_are_to_merge() -> None:
    coordinator = Coordinator()
    coordinator.tick(12.0)
    coordinator.drained()
    assert sent(coordinator(BALANCER, LastTable(3)), Merge) == []
    assert coordinator.aggregated(0) == []
    last = coordinator.aggregated(1)
    assert told(last, Commit)
    assert [(to, merge.epoch) for to, merge in sent(last, Merge)] == [(reducer(0), 3), (reducer(1), 3)]
    assert coordinator.coordinator.state == "merge"


def test_a_round_that_ends_before_the_last_table_comes_does_not_begin_the_merge() -> None:
    coordinator = Coordinator()
    coordinator.tick(12.0)
    coordinator.drained()
    for index in (0, 1):
        assert sent(coordinator.aggregated(index), Merge) == []
    assert len(sent(coordinator(BALANCER, LastTable(3)), Merge)) == 2


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
    """Whatever comes while it packs or folds: nothing else is given to it."""
    for at_work in (packing, folding):
        reducer_0 = at_work()
        given = [*reducer_0.push("abc"), *reducer_0.update(2), *reducer_0.reducer.handle(Tick(), 1.0)]
        assert told(given, Process) == told(given, Pack) == told(given, Fold) == []
