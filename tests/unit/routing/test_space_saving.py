"""The sketch that finds hot keys counts as its paper says: SpaceSaving."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpa.routing.groupings._loops import count
from dpa.routing.groupings.choices import SpaceSaving


@given(st.lists(st.integers(0, 12), max_size=200), st.integers(1, 8))
def test_the_sketch_counts_as_a_dict_would_and_evicts_a_key_of_the_least_count(keys: list[int], most: int) -> None:
    sketch, plain, true = SpaceSaving.empty(most), {}, Counter[int]()
    for key in keys:
        true[key] += 1
        counter = count(sketch, key)
        if key in plain:
            plain[key] = (plain[key][0] + 1, plain[key][1])
        elif len(plain) < most:
            plain[key] = (1, 0)
        else:
            held = set(sketch.counters[:, 0].tolist())
            [evicted] = [other for other in plain if other not in held]
            least = plain.pop(evicted)[0]
            assert least <= min((counted for counted, _ in plain.values()), default=least)
            plain[key] = (least + 1, least)
        used = int(sketch.state[0])
        assert sketch.counters[counter, 0] == key
        assert {one[0]: (one[1], one[2]) for one in sketch.counters[:used].tolist()} == plain
        assert all(counted - error <= true[other] <= counted for other, (counted, error) in plain.items())
    check_sketch(sketch)


def check_sketch(sketch: SpaceSaving) -> None:
    """The table finds each key in use, from its home on without a gap."""
    used = int(sketch.state[0])
    assert sorted(sketch.table[sketch.table >= 0].tolist()) == list(range(used))
    before = sketch.counters.copy()
    for key in before[:used, 0].tolist():
        counter = count(sketch, key)
        assert sketch.counters[counter, 0] == key
    assert (sketch.counters[:used, 1] == before[:used, 1] + 1).all()
    sketch.counters[:] = before


def test_a_large_sketch_keeps_its_order_through_many_evictions() -> None:
    random = np.random.default_rng(2)
    sketch = SpaceSaving.empty(256)
    for key in (random.zipf(1.3, 20_000) % 2**32).tolist():
        count(sketch, key)
    check_sketch(sketch)
    assert sketch.counters[:, 1].sum() == 20_000
