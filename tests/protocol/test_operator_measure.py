"""An operator task that measures its load by key, and its records of arcs that several tasks share; and the signals on
its acknowledgements."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from builders import table_giving
from wires import (
    REDUCER_TABLES,
    OperatorWire,
    SourceWire,
    emitter_for,
    mapper,
    push,
    pushed,
    reducer,
    sent,
    update_between,
)

from dpa.balance.delegation import Delegation
from dpa.measure.load import Load
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import ProcessDone, Tick
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages.data import Ack, Push
from dpa.protocol.wire.messages.tables import LoadReport
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.groupings.base import CapacityRequest, Grouping, Signal
from dpa.routing.groupings.options import SignalOptions
from dpa.routing.hashing import Hashes, hash_key
from dpa.routing.table import Owners, RoutingTable


def measuring(**more) -> OperatorWire:
    return OperatorWire(every=None, measure=True, report_seconds=0.25, **more)


def loads(instructions: list[Instruction]) -> list[Load]:
    return [report.load for _, report in sent(instructions, LoadReport)]


def tick(reducer_0: OperatorWire, now: float) -> list[Instruction]:
    return reducer_0.task.handle(Tick(), now)


def queued(load: Load) -> dict[str | None, float]:
    """What waits, by key."""
    assert load.queued is not None
    names = {hash_key(key): key for key in (*"abcxy", None)}
    at = zip(load.queued.hashes.tolist(), load.queued.records.tolist(), strict=True)
    return {names[hashed]: records for hashed, records in at if records}


# --- reports


def test_the_load_is_reported_at_ticks_even_if_nothing_is_queued_and_not_by_the_records_dequeued() -> None:
    reducer_0 = measuring()
    reported = [len(loads(tick(reducer_0, now))) for now in (0.1, 0.3, 0.4, 0.5, 0.7, 0.8)]
    assert reported == [1, 0, 1, 0, 1, 0]
    assert loads(reducer_0.push("aaaa") + reducer_0.done()) == []


def test_what_waits_is_reported_by_key_but_for_what_user_code_has_already() -> None:
    reducer_0 = measuring()
    for keys in ("aa", "aab", "cc"):
        reducer_0.push(keys)
    reducer_0.push("ac", version=1)  # which waits for its table
    reducer_0(reducer(1), push([None], hops=1))
    [load] = loads(tick(reducer_0, 1.0))
    assert (load.queue, load.version, queued(load)) == (10, 0, {"a": 3, "b": 1, "c": 3, None: 1})


def test_what_is_left_of_a_batch_counts_in_proportion() -> None:
    reducer_0 = measuring(most=4)
    reducer_0.push("ac" * 10)
    [load] = loads(tick(reducer_0, 1.0))
    assert queued(load) == pytest.approx({"a": 8, "c": 8})


def test_service_time_and_its_evidence_are_reported_once_there_are_any() -> None:
    reducer_0 = measuring()
    reducer_0.push("aaaa")
    [before] = loads(tick(reducer_0, 0.25))
    reducer_0.done(seconds=0.5)
    [after] = loads(tick(reducer_0, 1.0))
    assert (before.service_seconds, before.evidence) == (None, 0.0)
    assert (after.service_seconds, after.evidence) == (0.125, 4.0)


def test_what_was_sent_on_and_taken_over_is_counted_from_the_beginning() -> None:
    reducer_0 = measuring()
    reducer_0.push("a")
    reducer_0.push("bcb")
    reducer_0.update(1)
    reducer_0(reducer(2), push(["a"] * 5, version=1, hops=1))
    [load] = loads(tick(reducer_0, 1.0))
    assert (load.forwarded_out, load.forwarded_in, load.queue, load.version) == (3, 5, 6, 1)


def test_without_measuring_the_load_is_reported_as_a_whole() -> None:
    reducer_0 = OperatorWire(every=1)
    reducer_0.push("ab")
    [load] = loads(reducer_0.done())
    assert (load.queued, load.costs) == (None, {})


# --- how busy it is


def test_it_is_as_busy_as_user_code_was_since_the_last_report() -> None:
    reducer_0 = measuring()
    reducer_0.push("aaa")
    reducer_0.done(seconds=0.5)
    [first] = loads(tick(reducer_0, 1.0))
    [idle] = loads(tick(reducer_0, 2.0))
    reducer_0.push("aaa", now=2.25)
    [last] = loads(tick(reducer_0, 3.0))
    assert [load.busy for load in (first, idle, last)] == [pytest.approx(0.5), 0.0, pytest.approx(0.75)]


def test_the_time_before_the_first_records_come_does_not_count_and_nobody_is_busier_than_all_the_time() -> None:
    reducer_0 = measuring()
    reducer_0.push("a", now=9.0)
    reducer_0.done(seconds=1.0, now=10.0)
    [first] = loads(tick(reducer_0, 10.0))
    reducer_0.push("a", now=10.0)
    tick(reducer_0, 15.0)
    reducer_0.done(seconds=6.0, now=16.0)
    [second] = loads(tick(reducer_0, 16.0))
    assert (first.busy, second.busy) == (pytest.approx(1.0), 1.0)


def test_the_part_of_its_time_in_which_it_waited_for_a_processor_is_reported() -> None:
    reducer_0 = measuring(most=4)
    reducer_0.push("a" * 12)
    reducer_0.done(seconds=0.5, waited=0.2)
    reducer_0.done(seconds=0.5, waited=0.0, now=1.0)
    [load] = loads(tick(reducer_0, 1.0))
    [after] = loads(tick(reducer_0, 2.0))
    assert (load.waited, after.waited) == (pytest.approx(0.2), 0.0)


# --- what keys cost


def costs_after(waits: bool = False) -> Load:
    """After 40 quanta of ten records, of which b's take ten times as long as others; or wait for a processor."""
    reducer_0 = measuring(most=10)
    now = 0.0
    for step in range(40):
        keys = "a" * (7 + step % 3) + "b" * (3 - step % 3)
        reducer_0.push(keys, now=now)
        extra = 0.0005 * 9 * keys.count("b")
        seconds = 0.0005 * len(keys) + extra
        now += seconds
        reducer_0.done(seconds=seconds, waited=extra if waits else 0.0, now=now)
    return loads(tick(reducer_0, now + 1.0))[0]


def test_a_key_whose_records_take_longer_is_reported_with_what_they_cost() -> None:
    load = costs_after()
    assert load.costs == {hash_key("b"): pytest.approx(10.0)}
    assert load.usual_seconds == pytest.approx(0.0005)
    assert load.service_seconds is not None
    assert load.service_seconds > 2 * load.usual_seconds


def test_time_in_which_it_waited_for_a_processor_makes_no_key_dear() -> None:
    load = costs_after(waits=True)
    assert (load.costs, load.usual_seconds) == ({}, None)


# --- key splits


def split_table(version: int, *splits: KeySplit) -> RoutingTable:
    """As table 0, but with the keys a (and b) split in this way."""
    table = REDUCER_TABLES[0]
    of_keys = {hash_key(key) + 1: split for key, split in zip("ab", splits, strict=False)}
    return replace(TableChange.of(table, of_keys).apply(table), version=version)


HALF = KeySplit((0, 1), (0.5, 0.5), (1.0, 0.0), since=1)
QUARTER = KeySplit((0, 1, 2), (0.25, 0.5, 0.25), (0.5, 0.5, 0.0), since=2)
TO_OTHERS = KeySplit((1, 2), (0.5, 0.5), (0.0, 0.0), since=1)


def numbers_of(instructions: list[Instruction]) -> dict[int, int]:
    """How many records were forwarded to each reducer."""
    counts: Counter[int] = Counter()
    for to, keys in pushed(instructions):
        counts[to] += len(keys)
    return counts


@pytest.mark.parametrize(
    ("split", "dealt"),
    [
        (HALF, {1: pytest.approx(50, abs=1)}),  # no more than the new weights call for
        (TO_OTHERS, {1: pytest.approx(50, abs=1), 2: pytest.approx(50, abs=1)}),
    ],
)
def test_what_waits_of_a_key_that_is_split_is_dealt_by_its_weights(split: KeySplit, dealt: dict[int, int]) -> None:
    reducer_0 = OperatorWire()
    reducer_0.push("c")
    reducer_0.push("ac" * 100)
    instructions = reducer_0(BALANCER, update_between(REDUCER_TABLES[0], split_table(1, split)))
    assert numbers_of(instructions) == dealt
    assert reducer_0.task.queue.length == 201 - sum(numbers_of(instructions).values())


def test_what_a_key_split_dealt_to_a_reducer_stays_there_until_its_weights_change() -> None:
    reducer_0 = OperatorWire()
    reducer_0(BALANCER, update_between(REDUCER_TABLES[0], split_table(1, HALF)))
    reducer_0.push("c", version=1)
    reducer_0.push("a" * 100, version=1)
    assert reducer_0(BALANCER, update_between(split_table(1, HALF), split_table(2, HALF))) == []
    quarter = replace(QUARTER, since=3)
    instructions = reducer_0(BALANCER, update_between(split_table(2, HALF), split_table(3, quarter)))
    assert numbers_of(instructions) == {2: pytest.approx(50, abs=1)}  # reducer 1 had its half already
    assert reducer_0.task.queue.length == pytest.approx(51, abs=1)


def test_a_key_that_is_no_longer_spread_goes_to_its_owner_alone() -> None:
    reducer_0 = OperatorWire()
    first, second = split_table(1, HALF), replace(REDUCER_TABLES[1], version=2)
    reducer_0(BALANCER, update_between(REDUCER_TABLES[0], first))
    reducer_0.push("c", version=1)
    reducer_0.push("ab" * 5, version=1)
    instructions = reducer_0(BALANCER, update_between(first, second))
    assert (pushed(instructions), reducer_0.task.queue.length) == ([(1, "bbbbb")], 6)


# --- signals on acknowledgements: tasks judge themselves, their senders learn it and route by it

TABLE = table_giving({"a": 0, "b": 1, "c": 2})
WATCH = SignalOptions(slot_seconds=1.0, theta_busy=0.9, theta_idle=0.5, utilisation="busy")


class GoesByHearsay(Grouping):
    """Sends everything to the task that it heard of last."""

    def __init__(self) -> None:
        super().__init__(3)
        self.heard: list[tuple[int, Signal]] = []

    def choose(self, hashes: Hashes) -> Owners:
        return np.full(len(hashes), self.heard[-1][0] if self.heard else 0, dtype=np.int32)

    def observe(self, reducer: int, signal: Signal) -> None:
        self.heard.append((reducer, signal))

    @property
    def moved(self) -> int:
        return len(self.heard)


def test_a_grouping_observes_a_signal_before_the_records_that_are_made_next() -> None:
    grouping = GoesByHearsay()
    source = SourceWire(emitter_for(TABLE, 4, grouping=grouping))
    assert [to for to, _ in sent(source.stepped("aaa"), Push)] == [reducer(0)]
    signal = Signal(7, 0.99, CapacityRequest.DECREASE)
    assert sent(source(reducer(2), Ack(0, 0, signal=signal)), Push) == []
    assert [(to, message.block.rows) for to, message in sent(source.stepped("bbb"), Push)] == [(reducer(2), 1)]
    freed = source(reducer(0), Ack(0, 3, signal=Signal(8, 0.99, CapacityRequest.DECREASE)))
    assert [to for to, _ in sent(freed, Push)] == [reducer(2)]  # what waits was routed when it was made
    assert [to for to, _ in sent(source.stepped("c"), Push)] == [reducer(0)]
    assert [to for to, _ in grouping.heard] == [2, 0]
    assert source.task.stats.regrouped == 2


def test_a_signal_concerns_the_grouping_of_its_edge_alone() -> None:
    left, right = GoesByHearsay(), GoesByHearsay()
    edges = [emitter_for(TABLE, edge=7, stage="left", grouping=left), emitter_for(TABLE, edge=9, grouping=right)]
    source = SourceWire(*edges)
    source.stepped("a", "a")
    source(Address("left", 1), Ack(7, 1, signal=Signal(7, 0.99, CapacityRequest.DECREASE)))
    assert ([reducer for reducer, _ in left.heard], right.heard) == ([1], [])


def test_each_acknowledgement_brings_the_signal_of_the_last_slot_if_anybody_listens() -> None:
    unheard = OperatorWire()
    unheard(mapper(0), push("ab"))
    assert [message.signal for _, message in sent(unheard.task.handle(ProcessDone(5.0), 5.0), Ack)] == [None]
    wire = OperatorWire(most=1, delegation=Delegation(WATCH))
    wire(mapper(0), push("aaaa"), 10.0)
    found = []
    for at, seconds in ((10.96, 0.96), (11.06, 0.1), (11.5, 0.2), (12.1, 0.3)):
        [(_, ack)] = sent(wire.task.handle(ProcessDone(seconds), at), Ack)
        found.append(ack.signal)
    assert found[0] is None and found[1] is not None and found[3] is not None
    assert found[1] == found[2]
    assert [(signal.slot, signal.request) for signal in (found[1], found[3])] == [
        (10, CapacityRequest.DECREASE),
        (11, CapacityRequest.INCREASE),
    ]
    assert found[1].utilisation == pytest.approx(1.06 / 1.06)
    assert found[1].service_seconds == pytest.approx(1.06 / 2)
    assert found[3].utilisation == pytest.approx(0.5 / 1.04)
