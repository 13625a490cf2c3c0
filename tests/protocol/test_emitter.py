"""One edge as its sender sees it: credit, order, tables and signals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import block_of, same_table, table_giving
from wires import emitter_for, keys_of, reducer, update_between

from dpa.errors import ProtocolError
from dpa.protocol.addresses import Address
from dpa.protocol.emitter import Emitter
from dpa.protocol.graph import Edge, Graph, Stage
from dpa.protocol.machines import emitters_of
from dpa.protocol.messages import Ack
from dpa.sources.splits import MemorySplit

TABLE = table_giving({"a": 0, "b": 1, "c": 1})
LATER = table_giving({"a": 1, "b": 0, "c": 1}, version=1)


def released(emitter: Emitter, *blocks: str, now: float = 0.0) -> list[tuple[int, str]]:
    """What the emitter pushes, once it has been given blocks of these keys, with the numbers of the receivers."""
    for keys in blocks:
        emitter.keep(block_of(list(keys)), now)
    return [(to.index, keys_of(push)) for to, push in emitter.release(now)]


def test_a_push_names_its_edge_its_origin_its_times_and_its_table() -> None:
    emitter = emitter_for(TABLE, edge=3, stage="counts", origin=Address("tags", 2))
    emitter.keep(block_of(["a"]), 1.5)
    [(to, push)] = emitter.release(4.0)
    assert to == Address("counts", 0)
    assert (push.version, push.origin, push.edge, push.hops) == (0, Address("tags", 2), 3, 0)
    assert (push.read_at, push.emitted_at) == (1.5, 4.0)


def test_credit_comes_back_and_lets_what_waits_go_in_order() -> None:
    emitter = emitter_for(TABLE, credit=4)
    assert released(emitter, "aaaa", "b", "cc") == [(0, "aaaa")]
    for records, freed in ((1, [(1, "b")]), (1, []), (2, [(1, "cc")])):
        emitter.acknowledged(reducer(), Ack(0, records))
        assert released(emitter) == freed
    assert (emitter.emitted, emitter.in_flight, emitter.is_empty) == (7, 3, True)


def test_a_block_that_fits_does_not_overtake_one_that_waits() -> None:
    emitter = emitter_for(TABLE, credit=4)
    released(emitter, "aaa", "bb", "c")
    assert emitter.in_flight == 3


def test_an_emitter_takes_one_block_beyond_the_one_that_waits() -> None:
    emitter = emitter_for(TABLE, credit=2)
    found = []
    for _ in range(3):
        released(emitter, "aa")
        found.append((emitter.is_open, emitter.is_empty))
    assert found == [(True, True), (True, False), (False, False)]


def test_a_block_larger_than_the_credit_is_refused_as_it_could_never_be_pushed() -> None:
    with pytest.raises(ProtocolError, match="mapper 0 made 3 records at once, with credit for 2"):
        emitter_for(TABLE, credit=2).keep(block_of(["a"] * 3), 0.0)


def test_more_credits_than_are_in_use_cannot_come_back() -> None:
    emitter = emitter_for(TABLE)
    released(emitter, "ab")
    with pytest.raises(ProtocolError, match="mapper 0 got 3 credits back, with 2 in use"):
        emitter.acknowledged(reducer(), Ack(0, 3))


def test_the_next_table_is_made_of_the_one_before_it() -> None:
    emitter = emitter_for(TABLE)
    emitter.update(update_between(TABLE, LATER).change)
    assert same_table(emitter.table, LATER)
    assert released(emitter, "ab") == [(0, "b"), (1, "a")]


@pytest.mark.parametrize("version", [1, 3], ids=["the same again", "one left out"])
def test_a_table_that_is_not_the_very_next_cannot_come(version: int) -> None:
    emitter = emitter_for(TABLE)
    emitter.update(update_between(TABLE, LATER).change)
    with pytest.raises(ProtocolError, match=f"the change to table {version} does not fit table 1"):
        emitter.update(update_between(TABLE, replace(LATER, version=version)).change)
    assert same_table(emitter.table, LATER)


# --- two edges to one stage


def two_edges() -> list[Emitter]:
    """Those of the second task of a source, both of whose edges lead to the same stage."""
    stages = (Stage("rows", 2, splits=(MemorySplit(None),)), Stage("counts", 3, in_flight_records=4))  # type: ignore[arg-type]
    return emitters_of(Graph(stages, (Edge("rows", "counts"), Edge("rows", "counts"))), Address("rows", 1))


def test_each_of_two_edges_to_one_stage_has_credit_of_its_own() -> None:
    first, second = two_edges()
    assert [emitter.edge for emitter in (first, second)] == [0, 1]
    assert {emitter.stage for emitter in (first, second)} == {"counts"}
    for emitter in (first, second):
        released(emitter, "aaaa", "a")
        assert (emitter.in_flight, emitter.is_empty) == (4, False)
    second.acknowledged(Address("counts", 0), Ack(1, 4))
    assert len(released(second)) == 1
    assert released(first) == []
    assert (first.emitted, second.emitted) == (4, 5)
