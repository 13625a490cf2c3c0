"""A copy of a sketch of hot keys goes on exactly as the original does, whatever was counted before and after."""

import copy
import pickle
import random
from collections.abc import Callable

import pytest

from dpa.measure.hot_keys import HotKeys


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda hot: pickle.loads(pickle.dumps(hot))], ids=["copy", "pickle"])
@pytest.mark.parametrize("size", [4, 6, 10])
def test_a_copy_names_the_same_keys_with_the_same_bounds(copied: Callable[[HotKeys], HotKeys], size: int) -> None:
    draw, now = random.Random(size), 0.0
    original = HotKeys(half_life=0.5, size=size)
    newest = copied(original)
    for step in range(200):
        now += draw.random() / 2  # over several periods, with more keys than counters
        keys = [f"key {int(draw.paretovariate(0.1)) % 20_000}" for _ in range(50)]
        records = [draw.random() * 20 for _ in keys]
        original.add(keys, records, now)
        newest.add(keys, records, now)
        if step % 7 == 0:
            newest = copied(newest)
        assert newest.top(1000, now) == original.top(1000, now)


def test_keys_of_equal_count_are_in_one_order_however_they_came() -> None:
    keys = [f"key {number}" for number in range(100)]
    one, other = HotKeys(1.0), HotKeys(1.0)
    one.add(keys, [1.0] * 100, 0.0)
    other.add(keys[::-1], [1.0] * 100, 0.0)
    assert [found.key for found in one.top(10, 0.0)] == [found.key for found in other.top(10, 0.0)] == sorted(keys)[:10]
