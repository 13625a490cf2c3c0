"""An operator task that measures its load by key, and its records of arcs that several tasks share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from wires import REDUCER_TABLES, OperatorWire, processing, push, pushed, reducer, sent, update_between

from dpa.measure.load import Load
from dpa.protocol.wire.addresses import BALANCER
from dpa.protocol.wire.events import Tick
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages.tables import LoadReport
from dpa.routing.assignment import KeySplit
from dpa.routing.change import TableChange
from dpa.routing.hashing import hash_key
from dpa.routing.table import RoutingTable


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


def test_the_load_is_reported_at_ticks_even_if_nothing_is_queued() -> None:
    reducer_0 = measuring()
    reported = [len(loads(tick(reducer_0, now))) for now in (0.1, 0.3, 0.4, 0.5, 0.7, 0.8)]
    assert reported == [1, 0, 1, 0, 1, 0]


def test_the_number_of_records_dequeued_calls_for_no_report() -> None:
    reducer_0 = measuring()
    assert loads(reducer_0.push("aaaa") + reducer_0.done()) == []


def test_what_waits_is_reported_by_key_but_for_what_user_code_has_already() -> None:
    reducer_0 = measuring()
    for keys in ("aa", "aab", "cc"):
        reducer_0.push(keys)
    [load] = loads(tick(reducer_0, 1.0))
    assert (load.queue, load.version, queued(load)) == (7, 0, {"a": 2, "b": 1, "c": 2})


def test_what_is_left_of_a_batch_counts_in_proportion() -> None:
    reducer_0 = measuring(most=4)
    reducer_0.push("ac" * 10)
    [load] = loads(tick(reducer_0, 1.0))
    assert queued(load) == pytest.approx({"a": 8, "c": 8})


def test_records_that_wait_for_their_table_are_queued_too() -> None:
    reducer_0 = measuring()
    reducer_0.push("ac", version=1)
    [load] = loads(tick(reducer_0, 1.0))
    assert (load.queue, queued(load)) == (2, {"a": 1, "c": 1})


def test_null_keys_are_measured_like_any_other() -> None:
    reducer_0 = measuring()
    reducer_0(reducer(1), push([None, None], hops=1))
    [load] = loads(reducer_0(reducer(1), push([None, "a"])) + tick(reducer_0, 1.0))
    assert queued(load) == {None: 1, "a": 1}


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
    assert load.queued is None
    assert load.costs == {}


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


def test_the_time_before_the_first_records_come_does_not_count() -> None:
    reducer_0 = measuring()
    reducer_0.push("a", now=9.0)
    reducer_0.done(seconds=1.0, now=10.0)
    [load] = loads(tick(reducer_0, 10.0))
    assert load.busy == pytest.approx(1.0)


def test_what_took_longer_than_the_time_between_two_reports_is_no_more_than_all_of_it() -> None:
    reducer_0 = measuring()
    reducer_0.push("a", now=0.0)
    tick(reducer_0, 5.0)
    reducer_0.done(seconds=6.0, now=6.0)
    [load] = loads(tick(reducer_0, 6.0))
    assert load.busy == 1.0


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
    counts: dict[int, int] = {}
    for to, keys in pushed(instructions):
        counts[to] = counts.get(to, 0) + len(keys)
    return counts


def test_when_a_key_is_split_no_more_of_what_waits_is_forwarded_than_the_new_weights_call_for() -> None:
    reducer_0 = OperatorWire()
    reducer_0.push("c")
    reducer_0.push("a" * 100)
    instructions = reducer_0(BALANCER, update_between(REDUCER_TABLES[0], split_table(1, HALF)))
    assert numbers_of(instructions) == {1: pytest.approx(50, abs=1)}


def test_what_a_key_split_dealt_to_a_reducer_stays_there_under_later_tables_that_keep_the_spread() -> None:
    reducer_0 = OperatorWire()
    reducer_0(BALANCER, update_between(REDUCER_TABLES[0], split_table(1, HALF)))
    reducer_0.push("c", version=1)
    reducer_0.push("a" * 100, version=1)
    assert reducer_0(BALANCER, update_between(split_table(1, HALF), split_table(2, HALF))) == []
    assert processing(reducer_0.done()) == ["a" * 100]


def test_a_key_split_that_changes_its_weights_takes_from_a_reducer_what_it_loses() -> None:
    reducer_0 = OperatorWire()
    reducer_0(BALANCER, update_between(REDUCER_TABLES[0], split_table(1, HALF)))
    reducer_0.push("c", version=1)
    reducer_0.push("a" * 100, version=1)
    instructions = reducer_0(BALANCER, update_between(split_table(1, HALF), split_table(2, QUARTER)))
    assert numbers_of(instructions) == {2: pytest.approx(50, abs=1)}  # reducer 1 had its half already
    assert reducer_0.task.queue.length == pytest.approx(51, abs=1)


def test_a_key_that_others_are_to_share_is_dealt_to_them_by_their_weights() -> None:
    reducer_0 = OperatorWire()
    reducer_0.push("c")
    reducer_0.push("ac" * 50)
    instructions = reducer_0(BALANCER, update_between(REDUCER_TABLES[0], split_table(1, TO_OTHERS)))
    assert numbers_of(instructions) == {1: pytest.approx(25, abs=1), 2: pytest.approx(25, abs=1)}
    assert reducer_0.task.queue.length == 51


def test_a_key_that_is_no_longer_spread_goes_to_its_owner_alone() -> None:
    reducer_0 = OperatorWire()
    first, second = split_table(1, HALF), replace(REDUCER_TABLES[1], version=2)
    reducer_0(BALANCER, update_between(REDUCER_TABLES[0], first))
    reducer_0.push("c", version=1)
    reducer_0.push("ab" * 5, version=1)
    instructions = reducer_0(BALANCER, update_between(first, second))
    assert (pushed(instructions), reducer_0.task.queue.length) == ([(1, "bbbbb")], 6)
