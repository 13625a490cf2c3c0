"""What a sender offers: measured as blocks are made, whatever credit does with them, and reported until its end."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from builders import block_of
from hypothesis import given
from hypothesis import strategies as st
from wires import REDUCER_TABLES, SourceWire, emitter_for, sent

from dpa.measure.load import Offered
from dpa.protocol.graph import REDUCER
from dpa.protocol.task.emitter import OfferedMeter
from dpa.protocol.wire.addresses import BALANCER
from dpa.protocol.wire.events import Tick
from dpa.protocol.wire.messages.tables import OfferedReport
from dpa.routing.hashing import hash_key
from dpa.routing.keys import Key


def counts(offered: Offered | None, *keys: Key) -> list[float]:
    """The records of each key."""
    assert offered is not None
    records = dict(zip(offered.sample.hashes.tolist(), offered.sample.records.tolist(), strict=True))
    return [records.get(hash_key(key), 0.0) for key in keys]


def test_nothing_is_reported_before_something_was_offered_and_the_end_is_said_with_the_last_report() -> None:
    assert OfferedMeter(0, 1).report(5.0) is None
    assert OfferedMeter(0, 1).report(5.0, ended=True) is None
    meter = OfferedMeter(0, 5_000)
    for now in (0.0, 0.02, 0.04):  # of thousands of senders too each looks at a block between two reports
        meter.add(block_of("ab"), now)
        assert counts(meter.report(now + 0.01), "a", "b") == [1, 1]
    offered = meter.report(1.0, ended=True)
    assert offered is not None and offered.ended


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), min_size=1, max_size=9))
def test_small_blocks_that_come_seldom_are_counted_exactly(blocks: list[list[str]]) -> None:
    meter, all_keys = OfferedMeter(0, 1), Counter[str]()
    for second, of_keys in enumerate(blocks):
        meter.add(block_of(of_keys), float(second))
        all_keys.update(of_keys)
    offered = meter.report(float(len(blocks)))
    assert counts(offered, *"abc") == [pytest.approx(all_keys[key]) for key in "abc"]
    assert offered is not None
    assert (offered.seconds, offered.sample.rows) == (len(blocks), pytest.approx(all_keys.total()))
    assert offered.names == {hash_key(key): key for key in all_keys}


def test_each_report_is_of_what_came_since_the_last_one() -> None:
    meter = OfferedMeter(0, 1)
    meter.add(block_of("aab"), 1.0)
    meter.report(2.0)
    meter.add(block_of("c"), 3.0)
    offered = meter.report(4.5)
    assert offered is not None
    assert (offered.seconds, counts(offered, *"abc")) == (2.5, [0.0, 0.0, 1.0])
    assert set(offered.names.values()) == {"c"}
    nothing = meter.report(5.0)
    assert nothing is not None
    assert (nothing.seconds, nothing.sample.total, nothing.names) == (0.5, 0.0, {})


def test_blocks_in_between_are_taken_to_be_like_those_that_were_looked_at() -> None:
    meter = OfferedMeter(0, 1)
    for step in range(1_000):
        meter.add(block_of("aaab"), step / 1_000)
    offered = meter.report(1.0)
    assert counts(offered, "a", "b") == pytest.approx([3_000, 1_000])
    assert offered is not None
    assert offered.sample.rows < 200, "few were looked at"


def test_of_a_large_block_some_rows_are_looked_at() -> None:
    meter = OfferedMeter(0, 1)
    meter.add(block_of((["hot"] * 3 + list("xyz")) * 5_000), 0.0)
    offered = meter.report(1.0)
    assert offered is not None
    assert offered.sample.total == pytest.approx(30_000)
    assert offered.sample.rows < 3_000
    assert counts(offered, "hot") == pytest.approx([15_000], rel=0.15)
    assert offered.names[hash_key("hot")] == "hot"


def test_a_key_that_a_block_has_twice_is_one() -> None:
    """Null and the empty string have the same hash; a user's dictionary may repeat a key."""
    meter = OfferedMeter(0, 1)
    meter.add(block_of([None, "", None, "b"]), 0.0)
    offered = meter.report(1.0)
    assert offered is not None
    assert len(set(offered.sample.hashes.tolist())) == len(offered.sample.hashes) == 2
    assert counts(offered, None, "b") == [3.0, 1.0]


# --- by a machine


@pytest.mark.parametrize("measures", [False, True])
def test_what_credit_holds_back_is_offered_too_where_the_load_balancer_wants_to_know(measures: bool) -> None:
    source = SourceWire(emitter_for(REDUCER_TABLES[0], 4, measures=measures))
    source.stepped("a" * 100, now=1.0)
    reports = sent(source.task.handle(Tick(), 2.0), OfferedReport)
    assert [(to, report.stage, report.edge) for to, report in reports] == [(BALANCER, REDUCER, 0)] * measures
    assert [counts(report.offered, "a") for _, report in reports] == [[100.0]] * measures
    assert source.task.emitters[0].held > 0


def test_rows_are_looked_at_by_a_seed() -> None:
    def sampled(seed: int) -> list[float]:
        meter = OfferedMeter(seed, 2)
        meter.add(block_of(np.random.default_rng(0).integers(0, 50, 20_000).tolist()), 0.0)
        offered = meter.report(1.0)
        assert offered is not None
        return offered.sample.records.tolist()

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)
