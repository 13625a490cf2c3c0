"""Samples that add up and say how much they rest on, and loads as they should be some time after they were measured."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.measure.load import KeySample, Load

records_by_hash = st.dictionaries(st.integers(0, 9), st.floats(1, 1e6), max_size=8)


def sample(records: dict[int, float], rows: float | None = None) -> KeySample:
    """Of these hashes, by default exact: as many rows as records."""
    hashes = sorted(records)
    amounts = np.array([records[hashed] for hashed in hashes], dtype=np.float64)
    return KeySample(np.array(hashes, np.uint32), amounts, amounts.sum() if rows is None else rows)


def as_dict(of: KeySample) -> dict[int, float]:
    return dict(zip(of.hashes.tolist(), of.records.tolist(), strict=True))


@given(st.lists(records_by_hash, max_size=5))
def test_a_union_has_each_hash_once_in_order_with_all_its_records(parts: list[dict[int, float]]) -> None:
    union = KeySample.union(sample(part) for part in parts)
    expected: Counter[int] = Counter()
    for part in parts:
        expected.update(part)
    assert union.hashes.tolist() == sorted(expected)
    assert as_dict(union) == pytest.approx(dict(expected))
    assert union.total == pytest.approx(sum(expected.values()))


@given(st.lists(st.tuples(records_by_hash.filter(bool), st.floats(1, 1e6)), min_size=1, max_size=5))
def test_a_union_rests_on_as_many_rows_as_its_parts_at_most(parts: list[tuple[dict[int, float], float]]) -> None:
    """A part of many records of which few were looked at makes the whole as rough as it is."""
    samples = [sample(records, rows) for records, rows in parts]
    union = KeySample.union(samples)
    assert union.rows <= sum(part.rows for part in samples) * (1 + 1e-9)
    assert union.rows >= min(part.rows for part in samples) * (1 - 1e-9)


def test_many_records_that_were_hardly_looked_at_spoil_an_accurate_sample_and_what_fades_weighs_less() -> None:
    union = KeySample.union([sample({1: 100.0}), sample({1: 900.0}, rows=1)])
    assert union.rows == pytest.approx(1000**2 / (100 + 900**2))
    faded = sample({1: 8.0, 2: 1.0}).faded(0.5)
    assert (as_dict(faded), faded.rows) == ({1: 4.0, 2: 0.5}, 4.5)
    assert KeySample.empty().scaled(100.0).total == 0.0


@given(records_by_hash.filter(bool), st.floats(0, 1e6))
def test_scaling_keeps_the_proportions_and_what_they_rest_on(records: dict[int, float], total: float) -> None:
    before = sample(records, rows=7)
    scaled = before.scaled(total)
    assert (scaled.total, scaled.rows) == (pytest.approx(total), 7)
    assert scaled.records * before.total == pytest.approx(before.records * total)


def load(queued: list[float], service_seconds: float | None = 0.1) -> Load:
    keys = sample(dict(enumerate(queued)))
    return Load(round(sum(queued)), 3, service_seconds, queued=keys)


def test_what_arrived_is_added_and_what_is_done_is_taken_off_all_keys_alike() -> None:
    aged = load([30.0, 10.0]).aged(0.5, sample({1: 6.0, 7: 4.0}))  # 5 done of 50
    assert (aged.queue, aged.version) == (45, 3)
    assert aged.queued is not None
    assert as_dict(aged.queued) == pytest.approx({0: 27.0, 1: 14.4, 7: 3.6})
    assert load([30.0], None).aged(0.5, sample({7: 10.0})).queue == 40
    aged = Load(40, 0, 0.1).aged(1.0, KeySample.empty())
    assert (aged.queue, aged.queued) == (30, None)


@given(st.lists(st.floats(0, 1e6), max_size=5), st.floats(1e-6, 10), records_by_hash, st.floats(1e-3, 99))
def test_an_aged_load_is_never_below_nothing_and_adds_up(
    queued: list[float], service_seconds: float, came: dict[int, float], seconds: float
) -> None:
    before, arrived = load(queued, service_seconds), sample(came)
    aged = before.aged(seconds, arrived)
    expected = max(0.0, before.queue + arrived.total - seconds / service_seconds)
    assert aged.queue == round(expected) >= 0
    assert aged.queued is not None
    assert (aged.queued.records >= 0).all()
    assert not sum(queued) + arrived.total or aged.queued.total == pytest.approx(expected, rel=1e-6, abs=1e-3)
