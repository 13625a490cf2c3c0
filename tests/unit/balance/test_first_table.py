"""The first table of a stage: as even as its sample says, of a ring's tokens, and no reason to move anything back."""

import numpy as np
import pytest
from adaptive_samples import loads_of
from adaptive_stage import BUSY, HASHES, NAMES, REDUCERS, Stage, hot, zipf

from dpa.balance.adaptive.rebalance import FirstTable
from dpa.balance.options import BY_STRATEGY, AdaptiveOptions, DoublingOptions
from dpa.measure.load import KeySample
from dpa.measure.skew import skew

NAMED = dict(zip(HASHES.tolist(), NAMES, strict=True))
OPTIONS = AdaptiveOptions()


def sampled(shares: np.ndarray, rows: int = 20_000) -> KeySample:
    """What a sample of a stream with these keys finds."""
    counts = np.random.default_rng(1).multinomial(rows, shares)
    order = np.argsort(HASHES)
    order = order[counts[order] > 0]
    return KeySample(HASHES[order], counts[order].astype(float), rows)


def planned(shares: np.ndarray, *, may_split: bool = True) -> FirstTable:
    found = OPTIONS.planned(REDUCERS, sampled(shares), NAMED, may_split=may_split)
    assert found is not None
    return found


def skew_of(first: FirstTable, shares: np.ndarray) -> float:
    loads = loads_of(first.table, dict(zip(HASHES.tolist(), (shares * 1e6).tolist(), strict=True)))
    return skew(loads.round().astype(int).tolist())


@pytest.mark.parametrize("shares", [zipf(1.2), zipf(0.8), hot(0.6), hot(0.1)], ids=["1.2", "0.8", "60 %", "10 %"])
def test_keys_are_even_from_the_first_record(shares: np.ndarray) -> None:
    ring = FirstTable(OPTIONS.ring(REDUCERS).snapshot(0), KeySample.empty(), {})
    assert skew_of(planned(shares), shares) < 0.04
    assert skew_of(ring, shares) > 0.05


def test_it_has_the_number_0_and_the_tokens_of_the_ring_and_only_adaptive_plans_it() -> None:
    ring, first = OPTIONS.ring(REDUCERS).snapshot(0), planned(hot(0.6))
    assert (first.table.version, first.table.members, first.splits) == (0, ring.members, 1)
    assert set(ring.positions.tolist()) < set(first.table.positions.tolist())
    [split] = first.table.splits.values()
    assert set(split.reducers) == set(range(REDUCERS)) and split.since == 0
    plans = {name for name, options in BY_STRATEGY.items() if options().plans_first_table}
    assert plans == {"adaptive"}
    assert not AdaptiveOptions(first_table="ring").plans_first_table
    assert DoublingOptions().planned(2, sampled(hot(0.5)), NAMED) is None


def test_where_keys_may_not_be_split_a_hot_one_is_left_alone_on_its_reducer() -> None:
    shares = hot(0.4)
    first = planned(shares, may_split=False)
    assert not first.splits
    loads = loads_of(first.table, dict(zip(HASHES.tolist(), shares.tolist(), strict=True)))
    assert loads.max() < 0.45
    assert sorted(loads)[:3] == pytest.approx([0.2] * 3, abs=0.04)


def test_an_even_ring_stays_the_ring() -> None:
    order = np.sort(np.random.default_rng(0).integers(0, 2**32, 5_000, dtype=np.uint32))
    ring = OPTIONS.ring(2).snapshot(0)
    even = np.concatenate([order[ring.owners_of(order) == owner][:1_000] for owner in (0, 1)])
    first = OPTIONS.planned(2, KeySample(np.sort(even), np.ones(2_000), 2_000.0), {})
    assert first is not None
    assert first.table.positions.tolist() == ring.positions.tolist()


@pytest.mark.parametrize("shares", [zipf(1.2), hot(0.6)], ids=["zipf", "a hot key"])
def test_nothing_moves_back_while_the_keys_are_those_of_the_sample(shares: np.ndarray) -> None:
    stage = Stage(first=planned(shares))
    for _ in range(40):
        stage.offer(shares)
        stage.look(shares, busy=BUSY)
    assert not stage.applied
    assert stage.table.version == 0


def test_other_keys_than_those_of_the_sample_are_balanced_as_ever() -> None:
    stage = Stage(first=planned(hot(0.6, key=3)))
    shares = hot(0.6, key=200)
    for _ in range(12):
        stage.offer(shares)
        stage.look(shares)
    assert stage.applied
    loads = stage.by_owner(shares)
    assert loads.max() < 1.15 * loads.mean()
