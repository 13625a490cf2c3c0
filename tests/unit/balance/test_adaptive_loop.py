"""The adaptive policy in a closed loop: what it does to queues in the end, and how often it changes the table."""

from __future__ import annotations

import numpy as np
import pytest
from fluid_loop import FluidLoop, zipf

EVEN = [1000.0] * 4


def hot(share: float, total: float = 3400, keys: int = 60, key: int = 0) -> np.ndarray:
    rates = zipf(keys, 0.3, total * (1 - share))
    rates[key] += share * total
    return rates


@pytest.mark.parametrize("total", [2000.0, 5000.0], ids=["with room", "overloaded"])
def test_even_load_however_noisy_is_left_alone(total: float) -> None:
    rates = zipf(2_000, 0.0, total)
    assert len(FluidLoop(lambda now: rates, EVEN, noise=0.3, limit=4000).run(10).applied) <= 1


def test_a_hot_key_is_split_at_once_and_then_all_is_still() -> None:
    rates = hot(0.6)
    loop = FluidLoop(lambda now: rates, EVEN).run(10)
    assert 1 <= len(loop.applied) <= 2
    assert loop.applied[-1].at < 2.0
    assert 3 <= len(loop.owners_of(0)) <= 4
    assert max(loop.worst[-40:]) < 0.3


@pytest.mark.parametrize("total", [3400.0, 800.0])
def test_a_key_is_unsplit_once_it_is_below_the_threshold(total: float) -> None:
    """With hardly anything queued the balancer did not look at all, and the key stayed split for good."""
    first, then = hot(0.6), zipf(60, 0.3, total)
    loop = FluidLoop(lambda now: first if now < 3 else then, EVEN).run(14)
    assert len(loop.owners_of(0)) == 1
    assert loop.balancer.table.splits == {}


def test_a_key_with_everything_keeps_all_reducers_busy() -> None:
    rates = np.array([20_000.0])
    loop = FluidLoop(lambda now: rates, EVEN, limit=4000).run(10)
    assert loop.owners_of(0) != (0,)
    assert loop.done.sum() > 0.9 * 10 * sum(EVEN)
    assert len(loop.applied) <= 6


def test_unequal_reducers_get_what_they_can_do() -> None:
    rates = zipf(60, 1.0, 3600)
    loop = FluidLoop(lambda now: rates, [2000.0, 1000.0, 500.0, 500.0]).run(10)
    assert len(loop.applied) <= 4
    assert max(loop.worst[-40:]) < 0.4


def test_a_hot_key_that_drifts_is_followed() -> None:
    loop = FluidLoop(lambda now: hot(0.6, key=int(now / 3) % 60), EVEN, limit=4000).run(15)
    assert loop.done.sum() > 0.9 * min(loop.arrived, 15 * sum(EVEN))
    assert len(loop.applied) <= 12
