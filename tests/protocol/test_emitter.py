"""One edge as its sender sees it: credit, windows, order and tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from builders import block_of, limits_of, records_of, same_table, table_giving
from hypothesis import given
from hypothesis import strategies as st
from wires import emitter_for, keys_of, reducer, update_between

from dpa.errors import ProtocolError
from dpa.protocol.flow_control import FlowControl
from dpa.protocol.graph import Edge, Graph, Stage, StageInput
from dpa.protocol.machines import emitters_of
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.data import Ack, CreditTransfer
from dpa.routing.table import RoutingTable
from dpa.sources.splits import MemorySplit

TABLE = table_giving({"a": 0, "b": 1, "c": 1})
LATER = table_giving({"a": 1, "b": 0, "c": 1}, version=1)


def released(emitter: Emitter, *blocks: str, now: float = 0.0) -> list[tuple[int, str]]:
    """What the emitter pushes, once it has been given blocks of these keys, with the numbers of the receivers."""
    for keys in blocks:
        emitter.keep(block_of(list(keys)), now, now)
    return [(to.index, keys_of(push)) for to, push in emitter.release(now)]


def test_a_push_names_its_edge_its_origin_its_times_and_its_table() -> None:
    emitter = emitter_for(TABLE, edge=3, stage="counts", origin=Address("tags", 2))
    emitter.keep(block_of(["a"]), 1.5, 2.5)
    [(to, push)] = emitter.release(4.0)
    assert to == Address("counts", 0)
    assert (push.version, push.origin, push.edge, push.hops) == (0, Address("tags", 2), 3, 0)
    assert (push.read_at, push.emitted_at) == (1.5, 4.0)


def test_a_block_that_fits_does_not_overtake_one_to_the_same_receiver_that_waits() -> None:
    emitter = emitter_for(TABLE, limits=limits_of(100, seconds=0.5))
    emitter.acknowledged(reducer(), Ack(0, 0, window=8))
    assert released(emitter, "aaaaaaa") == [(0, "a" * 7)]
    assert released(emitter, "aaa", "a", "b") == [(1, "b")]  # 1 of 3 is less than a quarter of the window
    emitter.acknowledged(reducer(), Ack(0, 3))
    assert released(emitter) == [(0, "aaa"), (0, "a")]


def test_an_emitter_takes_one_block_beyond_its_credit() -> None:
    emitter = emitter_for(TABLE, credit=2)
    found = []
    for _ in range(2):
        released(emitter, "aa")
        found.append((emitter.is_open, not emitter.held))
    assert found == [(True, True), (False, False)]


def test_more_credits_than_are_in_use_cannot_come_back() -> None:
    emitter = emitter_for(TABLE)
    released(emitter, "ab")
    with pytest.raises(ProtocolError, match="mapper 0, from reducer 0: 3 credits came back, with 2 in use"):
        emitter.acknowledged(reducer(), Ack(0, 3))


# --- windows


def windowed(*windows: int, table: RoutingTable = TABLE) -> Emitter:
    """An emitter to receivers that have told these windows."""
    emitter = emitter_for(table, limits=limits_of(1_000, seconds=0.5))
    for receiver, window in enumerate(windows):
        emitter.acknowledged(reducer(receiver), Ack(0, 0, window))
    return emitter


def test_a_full_window_holds_back_the_records_of_its_receiver_alone() -> None:
    emitter = windowed(2, 50)
    assert released(emitter, "ababab", "bbb") == [(0, "aa"), (1, "bbb"), (1, "bbb")]
    assert (emitter.held, emitter.is_open) == (1, True)
    assert released(emitter, "aa") == []
    assert (emitter.held, emitter.is_open) == (3, False)  # more wait for the receiver than it may have


def test_a_window_that_shrinks_lets_nothing_go_before_the_receiver_has_less() -> None:
    emitter = windowed(8, 8)
    released(emitter, "a" * 8)
    emitter.acknowledged(reducer(), Ack(0, 2, window=3))
    assert released(emitter, "a") == []
    emitter.acknowledged(reducer(), Ack(0, 4, window=3))
    assert released(emitter) == [(0, "a")]


def test_forwarded_records_count_towards_who_has_them() -> None:
    emitter = windowed(4, 4)
    assert released(emitter, "aaaa", "aa") == [(0, "aaaa")]
    emitter.forwarded(reducer(), CreditTransfer(0, 3, receiver=1))
    assert released(emitter) == [(0, "aa")]
    assert released(emitter, "bb") == [(1, "b")]
    assert emitter.in_flight_to == {0: 3, 1: 4}


def test_a_task_may_forward_before_the_table_that_has_it_and_what_was_forwarded_to_it_are_known() -> None:
    emitter = windowed(4, 4)
    released(emitter, "aaaa")
    emitter.forwarded(reducer(3), CreditTransfer(0, 2, receiver=1))
    emitter.forwarded(reducer(), CreditTransfer(0, 2, receiver=3))
    assert emitter.in_flight_to == {0: 2, 1: 2}


def test_wide_records_keep_to_the_bound_in_bytes() -> None:
    emitter = emitter_for(TABLE, limits=limits_of(1_000, bytes=1_000))
    wide = replace(block_of(["a"] * 20), row_bytes=100.0)
    emitter.keep(wide, 0.0, 0.0)
    assert [message.block.rows for _, message in emitter.release(0.0)] == [10]
    assert (emitter.in_flight, emitter.held, emitter.is_open) == (10, 10, False)


def test_steps_make_a_quarter_of_what_the_receiver_with_the_least_room_for_its_share_may_have() -> None:
    emitter = windowed(100, 400)
    assert emitter.step_records == 50  # 100 are half of 200
    for _ in range(50):
        emitter.keep(block_of(list("abbb")), 0.0, 0.0)
    assert emitter.step_records == 100  # a quarter goes to each of 400


def test_steps_never_make_more_than_half_of_what_may_be_in_flight_in_all() -> None:
    assert emitter_for(TABLE, credit=100).step_records == 50
    assert emitter_for(TABLE, credit=1).step_records == 1


# --- tables


@pytest.mark.parametrize("version", [1, 3], ids=["the same again", "one left out"])
def test_a_table_that_is_not_the_very_next_cannot_come(version: int) -> None:
    emitter = emitter_for(TABLE)
    emitter.update(update_between(TABLE, LATER).change)
    with pytest.raises(ProtocolError, match=f"the change to table {version} does not fit table 1"):
        emitter.update(update_between(TABLE, replace(LATER, version=version)).change)
    assert same_table(emitter.table, LATER)


def test_what_is_held_goes_by_the_next_table_in_the_order_in_which_it_was_made() -> None:
    emitter = windowed(2, 2)
    assert released(emitter, "aabb", "ab", "acb", "ca") == [(0, "aa"), (1, "bb")]
    emitter.update(update_between(TABLE, LATER).change)
    for receiver in range(2):
        emitter.acknowledged(reducer(receiver), Ack(0, 2, window=50))
    found = released(emitter)
    assert ["".join(keys for to, keys in found if to == receiver) for receiver in range(2)] == ["bb", "aacac"]


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


# --- two edges to one stage


def two_edges() -> list[Emitter]:
    """Those of the second task of a source, both of whose edges lead to the same stage."""
    stages = (
        Stage("rows", 2, StageInput((MemorySplit(None),))),  # type: ignore[arg-type]
        Stage("counts", 3, flow=FlowControl(batch_records=4, in_flight_records=4)),
    )
    return emitters_of(Graph(stages, (Edge("rows", "counts"), Edge("rows", "counts"))), Address("rows", 1))


def test_each_of_two_edges_to_one_stage_has_credit_of_its_own() -> None:
    first, second = two_edges()
    assert [emitter.edge for emitter in (first, second)] == [0, 1]
    assert {emitter.stage for emitter in (first, second)} == {"counts"}
    for emitter in (first, second):
        released(emitter, "aaaa", "a")
        assert emitter.in_flight == 4 and emitter.held
    [owner] = second.in_flight_to
    second.acknowledged(Address("counts", owner), Ack(1, 4))
    assert len(released(second)) == 1
    assert released(first) == []
    assert (first.emitted, second.emitted) == (4, 5)
