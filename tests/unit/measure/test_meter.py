"""Measuring load: hot keys within their bounds as time goes by, rates that are right, and queues that add up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from builders import block_of, key_lists, table_giving
from hypothesis import given
from hypothesis import strategies as st

from dpa.measure.hot_keys import HotKeys
from dpa.measure.load import KeySample, TokenLoad
from dpa.measure.meter import LoadMeter
from dpa.measure.service_time import ServiceTime
from dpa.routing.keys import Key
from dpa.routing.ring import TokenRing

TABLE = table_giving({"a": 0, "b": 1, "c": 2})


def top(hot: HotKeys, now: float, most: int = 100) -> dict[Key, float]:
    return {estimate.key: estimate.records for estimate in hot.top(most, now)}


# --- hot keys


@given(key_lists())
def test_a_few_keys_of_any_type_are_counted_exactly(some: list[Key]) -> None:
    hot = HotKeys(half_life=1.0)
    hot.add(some, [1.0] * len(some), now=0.0)
    assert top(hot, 0.0) == Counter(some)


@pytest.mark.parametrize("some", [[None, ""], [2**53, 2**53 + 1], [-1, -2], ["é", "e\u0301"], [b"\xff", b""]], ids=repr)
def test_keys_that_are_easily_confused_are_told_apart(some: list[Key]) -> None:
    hot = HotKeys(half_life=1.0)
    hot.add(some, [5.0, 3.0], now=0.0)
    assert [(estimate.key, estimate.records) for estimate in hot.top(9, 0.0)] == [(some[0], 5.0), (some[1], 3.0)]


def test_of_many_keys_those_with_the_most_records_are_named_first() -> None:
    hot = HotKeys(half_life=1.0)
    hot.add(["a", "b", "c", "d"], [1.0, 7.0, 3.0, 5.0], now=0.0)
    assert [estimate.key for estimate in hot.top(2, 0.0)] == ["b", "d"]


@pytest.mark.parametrize("half_lives", [0.5, 1, 3, 9.5, 19.9, 20, 20.1, 25])
@pytest.mark.parametrize("half_life", [0.01, 1.0, 30.0])
def test_a_count_halves_in_every_half_life(half_lives: float, half_life: float) -> None:
    hot = HotKeys(half_life)
    hot.add(["a"], [2.0**30], now=0.0)
    assert top(hot, half_lives * half_life) == {"a": pytest.approx(2.0 ** (30 - half_lives), rel=1e-3)}


@pytest.mark.parametrize("half_life", [1e-9, 1e-3, 1.0])
@pytest.mark.parametrize("idle", [0.0, 1.0, 1e5])
def test_neither_long_idle_times_nor_tiny_half_lives_overflow(half_life: float, idle: float) -> None:
    hot = HotKeys(half_life)
    hot.add(["old"], [1e6], now=0.0)
    hot.add(["new"], [1e6], now=idle)
    found = top(hot, idle)
    assert found["new"] == pytest.approx(1e6, rel=1e-3)
    assert ("old" in found) == (idle < 40 * half_life)


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 0.0), (15.0, 15.0), (19.9, 20.1), (20.5, 20.5), (39.9, 40.5)])
def test_what_a_key_truly_has_lies_within_its_bounds_however_many_keys_there_are(seconds: float, asked: float) -> None:
    random = np.random.default_rng(1)
    hot, true = HotKeys(half_life=1.0, size=6), Counter()
    for now in np.linspace(0.0, seconds, 40).tolist():
        drawn = Counter((random.zipf(1.2, size=300) % 5_000).tolist())
        hot.add(list(drawn), [float(records) for records in drawn.values()], now)
        for key, records in drawn.items():
            true[key] += records * 2.0 ** (now - asked)
    found = hot.top(1_000, asked)
    assert found
    for estimate in found:
        assert estimate.lower * 0.999 - 0.01 <= true[estimate.key] <= estimate.upper * 1.001 + 0.01
    biggest = [key for key, _ in true.most_common(2)]
    assert set(biggest) <= {estimate.key for estimate in found[:5]}


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans(), st.floats(0, 30)), max_size=30))
def test_what_two_sketches_counted_is_what_one_would_have_counted(events: list[tuple[str, bool, float]]) -> None:
    one, left, right = HotKeys(1.0), HotKeys(1.0), HotKeys(1.0)
    for key, to_left, now in sorted(events, key=lambda event: event[2]):
        for hot in (one, left if to_left else right):
            hot.add([key], [1000.0], now)
    left.merge(right)
    merged, together = top(left, 30.0), top(one, 30.0)
    for key in merged.keys() | together.keys():
        assert merged.get(key, 0.0) == pytest.approx(together.get(key, 0.0), rel=1e-3, abs=0.01)


# --- the meter


def steady(meter: LoadMeter, *, keys: str, per_second: int, seconds: float, start: float = 0.0) -> TokenLoad:
    """The load measured after each of these keys has come at its rate for some seconds."""
    every = min(0.02, seconds / 100)
    for step in range(round(seconds / every)):
        block = block_of(list(keys))
        sample = KeySample(block.keys, block.hashes, np.full(len(block.keys), per_second * every))
        meter.arrived(sample, start + step * every)
    return meter.measure([], start + seconds)


@pytest.mark.parametrize("half_life", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("start", [0.0, 1e6])
def test_the_rates_of_a_steady_stream_are_right(half_life: float, start: float) -> None:
    meter = LoadMeter(TABLE, half_life=half_life, hot_keys=8)
    every = half_life / 20
    block = block_of(["a", "c"])
    for step in range(200):
        meter.arrived(KeySample(block.keys, block.hashes, np.array([100.0, 50.0]) * every), start + step * every)
    load = meter.measure([], start + 200 * every)
    owners = TABLE.sole_owners[np.searchsorted(TABLE.positions, load.tokens)].tolist()
    assert dict(zip(owners, load.rates.tolist(), strict=True)) == pytest.approx({0: 100.0, 2: 50.0}, rel=0.1)
    assert {hot.key: hot.rate for hot in load.hot} == pytest.approx({"a": 100.0, "c": 50.0}, rel=0.1)
    assert load.queued.tolist() == [0.0, 0.0]


def test_a_rate_is_right_long_before_a_half_life_has_passed() -> None:
    load = steady(LoadMeter(TABLE, half_life=60.0, hot_keys=8), keys="a", per_second=1000, seconds=1.0)
    assert load.rates.tolist() == [pytest.approx(1000, rel=0.1)]


def test_a_single_burst_is_not_taken_for_a_rate() -> None:
    meter = LoadMeter(TABLE, half_life=1.0, hot_keys=8)
    meter.arrived(block_of(["a"] * 100).sample(1000, np.random.default_rng(0)), 5.0)
    [rate] = meter.measure([], 5.0).rates
    assert rate == pytest.approx(1000, rel=0.05)  # as if it had taken a tenth of a second


@pytest.mark.parametrize("idle", [30.0, 70.0, 5_000.0, 1e9])
def test_after_a_long_silence_nothing_is_hot_and_what_comes_then_is_measured_anew(idle: float) -> None:
    meter = LoadMeter(TABLE, half_life=1.0, hot_keys=8)
    steady(meter, keys="a", per_second=1000, seconds=2.0)
    silent = meter.measure([], idle)
    assert silent.rates.sum() == pytest.approx(0.0, abs=1e-3)
    again = steady(meter, keys="b", per_second=100, seconds=10.0, start=idle)
    assert again.rates.max() == pytest.approx(100, rel=0.1)


@given(st.lists(key_lists(least=1), max_size=5))
def test_what_is_queued_is_told_by_token_and_by_hot_key_and_adds_up(queue: list[list[Key]]) -> None:
    table = TokenRing(3, 4, seed=0).snapshot(0)
    meter = LoadMeter(table, half_life=1.0, hot_keys=100)
    random = np.random.default_rng(0)
    samples = [block_of(some).sample(1000, random) for some in queue]
    for sample in samples:
        meter.arrived(sample, 0.0)
    load = meter.measure(samples, 0.0)
    assert load.queued.sum() == sum(map(len, queue))
    assert load.tokens.tolist() == sorted(load.tokens.tolist())
    by_hash: Counter[int] = Counter()
    for sample in samples:
        for hashed, records in zip(sample.hashes.tolist(), sample.records.tolist(), strict=True):
            by_hash[hashed] += int(records)  # null and the empty string have one hash
    queued: Counter[int] = Counter()
    for hot in load.hot:
        queued[hot.hash] += int(hot.queued)
    assert queued == by_hash


def test_no_more_hot_keys_are_named_than_asked_for() -> None:
    meter = LoadMeter(TABLE, half_life=1.0, hot_keys=2)
    meter.arrived(block_of(list("aaabbc")).sample(1000, np.random.default_rng(0)), 0.0)
    assert [hot.key for hot in meter.measure([], 0.0).hot] == ["a", "b"]


def test_with_nothing_ever_arrived_there_is_no_load() -> None:
    load = LoadMeter(TABLE, half_life=1.0, hot_keys=8).measure([], 1e9)
    assert (load.tokens.tolist(), load.hot) == ([], ())


def test_once_the_mappers_are_done_nothing_more_is_expected_but_what_is_queued_stays() -> None:
    meter = LoadMeter(TABLE, half_life=1.0, hot_keys=8)
    sample = block_of(list("aab")).sample(1000, np.random.default_rng(0))
    meter.arrived(sample, 0.0)
    meter.end()
    load = meter.measure([sample], 1.0)
    assert (sorted(load.queued.tolist()), load.rates.tolist()) == ([1.0, 2.0], [0.0, 0.0])
    assert {hot.key: (hot.queued, hot.rate, hot.upper) for hot in load.hot} == {"a": (2, 0, 0), "b": (1, 0, 0)}


def test_under_another_table_rates_by_token_begin_anew_and_those_of_keys_go_on() -> None:
    meter = LoadMeter(TABLE, half_life=1.0, hot_keys=8)
    steady(meter, keys="a", per_second=100, seconds=5.0)
    other = table_giving({"a": 1}, version=1)
    meter.rebase(other, 5.0)
    fresh = meter.measure([], 5.0)
    assert (fresh.tokens.tolist(), [hot.key for hot in fresh.hot]) == ([], ["a"])
    later = steady(meter, keys="a", per_second=100, seconds=5.0, start=5.0)
    assert later.tokens.tolist() == other.positions.tolist()
    assert later.rates.tolist() == [pytest.approx(100, rel=0.1)]
    assert later.hot[0].rate == pytest.approx(100, rel=0.1)


def test_a_dictionary_that_repeats_a_key_is_measured_as_if_it_did_not() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b", "a"]))
    sample = block_of(keys).sample(1000, np.random.default_rng(0))
    meter = LoadMeter(TABLE, half_life=1.0, hot_keys=8)
    meter.arrived(sample, 0.0)
    load = meter.measure([sample], 0.0)
    assert sorted(load.queued.tolist()) == [1.0, 2.0]
    assert {hot.key: hot.queued for hot in load.hot} == {"a": 2.0, "b": 1.0}


# --- service time


def test_the_service_time_is_the_mean_of_what_was_measured_of_late() -> None:
    service = ServiceTime(half_life=1.0)
    assert (service.seconds, service.evidence) == (None, 0.0)
    service.observe(3, 60.0)
    assert (service.seconds, service.evidence) == (20.0, 3.0)
    service.observe(100, 1.0)
    assert (service.seconds, service.evidence) == (0.01, 100.0), "the first one warms up"
    service.observe(10, 1.0)
    assert service.seconds == pytest.approx((0.5 * 1.0 + 1.0) / (0.5 * 100 + 10))
    for _ in range(30):
        service.observe(10, 1.0)
    assert service.seconds == pytest.approx(0.1)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
def test_a_service_time_of_any_length_is_taken(seconds: float) -> None:
    service = ServiceTime(half_life=1e-3)
    for _ in range(3):
        service.observe(4, seconds)
    assert service.seconds == pytest.approx(seconds / 4)
