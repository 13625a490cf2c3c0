"""The keys that are shown as hot: the most frequent ones, with bounds that hold."""

from __future__ import annotations

import numpy as np
import pytest
from adaptive_stage import hot, looked, zipf
from hypothesis import given, settings
from hypothesis import strategies as st
from test_arrivals import HASHES, TOKENS, Shares, drawn, look, with_hot
from test_arrivals import zipf as zipf_of_keys

from dpa._util.words import key_text
from dpa.balance.adaptive._arrivals import Arrivals
from dpa.balance.options import BY_STRATEGY
from dpa.balance.policy import BalancedStage
from dpa.measure.load import KeySample


def by_hash(shares: Shares) -> dict[int, float]:
    return dict(zip(HASHES.tolist(), shares.tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.0, 3.0), st.integers(20, 3_000), st.integers(1, 30), st.integers(0, 2**32))
def test_the_true_share_of_each_hot_key_lies_within_its_bounds(
    exponent: float, rows: int, looks: int, seed: int
) -> None:
    shares = zipf_of_keys(exponent)
    true, arrivals, random = by_hash(shares), Arrivals(TOKENS), np.random.default_rng(seed)
    for _ in range(looks):
        look(arrivals, drawn(shares, random, rows, total=1e6))
        found = arrivals.hottest
        order = [share for *_, share, _, _ in found]
        assert len(found) <= 10 and order == sorted(order, reverse=True)
        for hashed, _, share, low, high in found:
            assert 0 <= low < share <= high <= 1
            assert low <= true[hashed] <= high


def test_bounds_are_closer_the_longer_keys_stay() -> None:
    random, arrivals, widths = np.random.default_rng(0), Arrivals(TOKENS), []
    for _ in range(30):
        look(arrivals, drawn(with_hot(3, 0.2), random))
        [(hashed, _, _, low, high), *_] = arrivals.hottest
        assert hashed == HASHES[3]
        widths.append(high - low)
    assert widths[0] < 0.11 and widths[-1] < 0.4 * widths[0]


def test_a_key_that_becomes_hot_is_the_hottest_at_the_next_look() -> None:
    random, arrivals = np.random.default_rng(1), Arrivals(TOKENS)
    for key in (*[3] * 30, 7):
        look(arrivals, drawn(with_hot(key, 0.3), random))
    [(hashed, name, share, low, high), *_] = arrivals.hottest
    assert (hashed, name) == (HASHES[7], f"name of {HASHES[7]}")
    assert low < 0.3 < high and share == pytest.approx(0.3, abs=0.05)


def test_no_key_is_hot_where_all_are_rare() -> None:
    random, arrivals = np.random.default_rng(2), Arrivals(TOKENS)
    for _ in range(10):
        look(arrivals, drawn(zipf_of_keys(0.0), random))  # of 200
    assert arrivals.hottest == []


def test_a_sample_of_which_all_is_one_key_says_that_nearly_all_records_have_it() -> None:
    low, high = KeySample(HASHES[:1], np.ones(1), 1_000.0).bounds(1.0)
    assert high == 1.0 and low == pytest.approx(1 - 20 / 1_000)


def test_a_hot_key_is_shown_with_the_task_that_owns_it_and_whether_it_is_split() -> None:
    stage = looked(zipf(1.0))
    for found in stage.policy.hottest:
        hashed = next(hashed for hashed, key, *_ in stage.policy._arrivals.hottest if key_text(key) == found.key)
        tasks = stage.table.assignment_of(hashed).reducers
        assert (found.task, found.split) == (tasks[0], len(tasks) > 1)
    [first, *_] = looked(hot(0.9), 3).policy.hottest
    assert first.split and first.low < 0.9 < first.high


@pytest.mark.parametrize("strategy", [name for name in BY_STRATEGY if name != "adaptive"])
def test_strategies_that_do_not_look_at_keys_know_no_hot_ones(strategy: str) -> None:
    assert BY_STRATEGY[strategy](initial_tokens=8).policy(BalancedStage(4)).hottest is None
