"""An operator task that measures its load by token and key, and its records of arcs that several tasks share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from wires import REDUCER_TABLES, OperatorWire, processing, push, pushed, reducer, sent, update_between

from dpa.measure.load import Load
from dpa.protocol.addresses import BALANCER, COORDINATOR
from dpa.protocol.machine import Instruction, Tick
from dpa.protocol.messages import Drain, LoadReport
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


def queued(load: Load) -> dict[str, float]:
    """What waits, by the key at whose token it is counted."""
    assert load.by_token is not None
    names = {hash_key(key) + 1: key for key in "abcxy"}
    at = zip(load.by_token.tokens.tolist(), load.by_token.queued.tolist(), strict=True)
    return {names[token]: records for token, records in at if records}


# --- reports


def test_the_load_is_reported_at_ticks_even_if_nothing_is_queued() -> None:
    reducer_0 = measuring()
    reported = [len(loads(tick(reducer_0, now))) for now in (0.1, 0.25, 0.4, 0.5, 0.74, 0.75)]
    assert reported == [0, 1, 0, 1, 0, 1]


def test_the_number_of_records_dequeued_calls_for_no_report() -> None:
    reducer_0 = measuring()
    assert loads(reducer_0.push("aaaa") + reducer_0.done()) == []


def test_what_waits_is_reported_by_token_but_for_what_user_code_has_already() -> None:
    reducer_0 = measuring()
    for keys in ("aa", "aab", "cc"):
        reducer_0.push(keys)
    [load] = loads(tick(reducer_0, 1.0))
    assert (load.queue, load.version, queued(load)) == (7, 0, {"a": 2, "b": 1, "c": 2})
    assert {hot.key: hot.queued for hot in load.by_token.hot} == {"a": 2, "b": 1, "c": 2}


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


def test_rates_are_of_records_from_mappers_and_0_once_these_are_done() -> None:
    reducer_0 = measuring()
    reducer_0(reducer(1), push(["b"] * 100, hops=1))
    for step in range(10):
        reducer_0.push("a" * 10, now=step / 10)
    [before] = loads(tick(reducer_0, 1.0))
    assert [(hot.key, hot.rate) for hot in before.by_token.hot] == [("a", pytest.approx(100, rel=0.1))]
    assert before.by_token.rates.max() == pytest.approx(100, rel=0.1)
    reducer_0(COORDINATOR, Drain())
    [after] = loads(tick(reducer_0, 1.25))
    assert after.by_token.rates.tolist() == [0.0] * len(after.by_token.tokens)
    assert (after.queue, after.by_token.queued.sum()) == (200, 184)  # user code has the first 16


def test_null_keys_are_measured_like_any_other() -> None:
    reducer_0 = measuring()
    reducer_0(reducer(1), push([None, None], hops=1))
    [load] = loads(reducer_0(reducer(1), push([None, "a"])) + tick(reducer_0, 1.0))
    assert {hot.key: hot.queued for hot in load.by_token.hot} == {None: 1, "a": 1}


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
    assert load.by_token is None


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
