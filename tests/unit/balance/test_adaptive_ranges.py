"""Ranges of a reducer's load: splitting loses no hash, no record and no key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.balance.adaptive._draft import HashRange, SortedRanges
from dpa.balance.adaptive.demand import KeyDemand

LAST = 2**32 - 1
edges = st.one_of(st.integers(0, LAST), st.sampled_from([0, 1, LAST]))


@given(edges, edges, st.lists(st.tuples(st.integers(0, LAST), st.floats(1, 100)), max_size=5), st.floats(0.01, 0.99))
def test_the_parts_of_a_range_cover_it(start: int, stop: int, some: list[tuple[int, float]], share: float) -> None:
    whole = HashRange(start, stop, 0.0)
    placed = {(start + offset % whole.width) % 2**32: records for offset, records in some}
    keys = tuple(KeyDemand("k", where, records) for where, records in sorted(placed.items(), key=lambda key: -key[1]))
    split = HashRange(start, stop, sum(placed.values()) + 10.0, keys)
    if split.single:
        return
    parts = split.split(share * split.records)
    assert sum(part.width for part in parts) == split.width
    assert sum(part.records for part in parts) == pytest.approx(split.records)
    assert sorted(key.hash for part in parts for key in part.keys) == sorted(placed)
    for part in parts:
        assert all((key.hash - part.start) % 2**32 < part.width for key in part.keys)
        assert all(part.stop != other.stop for other in parts if other is not part)
    assert stop in [part.stop for part in parts]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20), st.floats(0, 11))
def test_sorted_ranges_find_the_largest_that_fits_and_the_smallest_that_does_not(
    records: list[float], fit: float
) -> None:
    ranges = SortedRanges([HashRange(0, 5, size) for size in records])
    small, large = ranges.largest_within(fit), ranges.smallest_above(fit)
    assert (small.records if small else None) == max((size for size in records if size <= fit), default=None)
    assert (large.records if large else None) == min((size for size in records if size > fit), default=None)


def test_of_equal_ranges_the_very_one_is_removed() -> None:
    equal = [HashRange(where, where + 1, 1.0) for where in range(3)]
    ranges = SortedRanges(equal)
    ranges.remove(equal[0])
    ranges.remove(equal[2])
    assert ranges.largest_within(1.0) is equal[1]


def test_a_long_key_is_cut_where_people_read_it() -> None:
    """Every reason names keys, and all reasons of plans that were carried out are kept."""
    assert KeyDemand("a", 7, 1.0).name == "key 'a'"
    assert KeyDemand(None, 7, 1.0).name == "key None"
    assert HashRange(7, 8, 1.0, (KeyDemand("x" * 10**6, 7, 1.0),)).name == "key '" + "x" * 59 + "..."
