"""Latencies: quantiles within their bound, exact numbers exact, and parts that add up, in bounded memory."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.measure.latency import RELATIVE_ERROR, LatencyReport, LatencySketch

Added = list[tuple[float, int]]

SHARES = (0.0, 0.25, 0.5, 0.95, 0.99, 1.0)
latencies = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
added = st.lists(st.tuples(latencies, st.integers(1, 1_000)), max_size=30)


def sketch_of(parts: Added) -> LatencySketch:
    sketch = LatencySketch()
    for seconds, records in parts:
        sketch.add(seconds, records)
    return sketch


def quantiles_of(sketch: LatencySketch) -> list[float]:
    return [sketch.records, sketch.max, *(sketch.quantile(share) for share in SHARES)]


@given(added.filter(bool))
def test_a_quantile_is_within_its_bound_and_what_is_exact_is_exact(parts: Added) -> None:
    sketch = sketch_of(parts)
    true = sorted(seconds for seconds, records in parts for _ in range(records))
    for share in SHARES:
        expected = true[int(share * (len(true) - 1))]
        assert sketch.quantile(share) == pytest.approx(expected, rel=RELATIVE_ERROR * 1.0001)
        assert sketch.quantile(share) <= sketch.max
    assert (sketch.records, sketch.max) == (len(true), true[-1])
    assert sketch.mean == pytest.approx(math.fsum(true) / len(true), rel=1e-12)


@given(st.lists(added, max_size=5))
def test_merged_parts_say_the_same_as_the_whole_and_stay_as_they_are(parts: list[Added]) -> None:
    sketches = [sketch_of(part) for part in parts]
    before = [quantiles_of(sketch) for sketch in sketches]
    merged, whole = LatencySketch.union(sketches), sketch_of([one for part in parts for one in part])
    assert quantiles_of(merged) == pytest.approx(quantiles_of(whole), nan_ok=True)
    assert merged.mean == pytest.approx(whole.mean, nan_ok=True)
    arrived = pickle.loads(pickle.dumps(merged))
    for each in (merged, arrived):
        each.add(0.5, 3)
    assert quantiles_of(arrived) == quantiles_of(merged)
    for one, was in zip(sketches, before, strict=True):
        assert quantiles_of(one) == pytest.approx(was, nan_ok=True)


def test_a_sketch_stays_small_whatever_comes_and_keeps_its_bound_for_the_longest() -> None:
    sketch = LatencySketch()
    for power in range(-300, 300):
        sketch.add(10.0**power, 1_000_000_000)
    assert len(pickle.dumps(sketch)) < 20_000
    assert sketch.quantile(0.99) == pytest.approx(1e293, rel=RELATIVE_ERROR * 1.0001)


def test_the_report_names_quantiles_longest_and_mean_or_says_that_there_was_nothing() -> None:
    assert LatencySketch().report is None
    report = sketch_of([(1.0, 98), (3.0, 2)]).report
    one, three = pytest.approx(1.0, rel=0.01), pytest.approx(3.0, rel=0.01)
    assert report == LatencyReport(p50=one, p95=one, p99=three, max=3.0, mean=pytest.approx(1.04))
    sketch = sketch_of([(-0.25, 3), (0.5, 1)])  # less than nothing counts as nothing
    assert (sketch.records, sketch.max, sketch.mean, sketch.quantile(0.0)) == (4, 0.5, 0.125, 0.0)
