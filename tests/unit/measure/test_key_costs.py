"""What a record costs by its key: a dear key is found soon and nearly right, and chance makes none."""

from collections.abc import Mapping

import numpy as np
import pytest

from dpa.measure.key_costs import KeyCosts

SECONDS = 0.002
"""A usual record takes so long."""

KEYS = 60
SEEDS = range(8)


def quanta(costs: KeyCosts, number: int, shares: Mapping[int, float], dear: Mapping[int, float], seed: int) -> KeyCosts:
    """Have it observe quanta of about 35 records: `shares` of single keys, the others even; a record of a key takes
    `dear[key]` times as long as usual. How long a quantum takes varies by a fifth."""
    random = np.random.default_rng(seed)
    rest = (1 - sum(shares.values())) / (KEYS - len(shares))
    likely = np.array([shares.get(key, rest) for key in range(KEYS)])
    factors = np.array([dear.get(key, 1.0) for key in range(KEYS)])
    for _ in range(number):
        drawn = random.multinomial(random.integers(30, 41), likely / likely.sum())
        some = random.permutation(np.flatnonzero(drawn))
        seconds = SECONDS * float(drawn @ factors) * random.uniform(0.8, 1.2)
        costs.observe(some.astype(np.uint32), drawn[some].astype(float), seconds)
    return costs


def observed(seed: int, shares: Mapping[int, float], dear: Mapping[int, float], number: int = 30) -> KeyCosts:
    return quanta(KeyCosts(), number, shares, dear, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("shares", "dear", "number", "off"),
    [({0: 0.05}, {0: 10.0}, 30, 0.2), ({0: 0.1, 1: 0.1}, {0: 10.0, 1: 8.0}, 60, 0.25)],
    ids=["one of 5 percent", "two"],
)
def test_dear_keys_are_found_soon_and_nearly_right(
    seed: int, shares: dict[int, float], dear: dict[int, float], number: int, off: float
) -> None:
    usual, costs = observed(seed, shares, dear, number).found()
    assert costs == pytest.approx(dear, rel=0.35)
    assert usual == pytest.approx(SECONDS, rel=off)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.9], ids=lambda share: f"{share:.0%} hot")
def test_where_all_keys_cost_the_same_none_stands_out(seed: int, share: float) -> None:
    costs = KeyCosts()
    for look in range(20):
        shares = {0: share} if share else {}
        assert quanta(costs, 10, shares, {}, 1_000 * seed + look).found() == (None, {})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cheap_key_is_found_too(seed: int) -> None:
    _, costs = observed(seed, {0: 0.5}, {0: 0.1}, number=60).found()
    assert set(costs) == {0}
    assert costs[0] < 0.4


@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_a_task_with_one_key_only_has_none_that_stands_out(factor: float) -> None:
    """Whether the key is dear or the task slow cannot be told."""
    costs = KeyCosts()
    random = np.random.default_rng(0)
    for _ in range(50):
        records = float(random.integers(30, 41))
        seconds = factor * SECONDS * records * random.uniform(0.8, 1.2)
        costs.observe(np.array([7], np.uint32), np.array([records]), seconds)
    assert costs.found() == (None, {})


def test_a_key_is_dear_once_there_is_evidence_and_until_it_costs_no_more_than_others() -> None:
    costs = KeyCosts()
    assert costs.found() == (None, {})
    assert quanta(costs, 1, {0: 0.05}, {0: 10.0}, 0).found() == (None, {})
    costs = observed(0, {0: 0.1}, {0: 10.0}, number=60)
    assert set(costs.found()[1]) == {0}
    assert quanta(costs, 400, {0: 0.1}, {}, 1).found() == (None, {})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dear_key_is_found_after_many_others_have_been_frequent(seed: int) -> None:
    """The frequent keys drift: those that are looked at give way to newer ones."""
    costs = KeyCosts()
    for hot in range(1, 40):
        quanta(costs, 4, {hot: 0.3}, {}, 1_000 * seed + hot)
    _, found = quanta(costs, 60, {0: 0.1}, {0: 10.0}, seed).found()
    assert 0 in found
    assert found[0] == pytest.approx(10.0, rel=0.4)


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_the_unit_of_time_does_not_matter(unit: float) -> None:
    random = np.random.default_rng(3)
    one, other = KeyCosts(), KeyCosts()
    for _ in range(40):
        drawn = random.multinomial(35, [0.1] + [0.9 / 59] * 59)
        some = np.flatnonzero(drawn)
        seconds = SECONDS * (drawn.sum() + 9 * drawn[0]) * random.uniform(0.8, 1.2)
        for costs, spent in ((one, seconds), (other, unit * seconds)):
            costs.observe(some.astype(np.uint32), drawn[some].astype(float), spent)
    assert one.found()[1] == pytest.approx(dict(other.found()[1]))
