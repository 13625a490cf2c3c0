"""What an excess and a gain must be for a rebalance to be worth it."""

from dataclasses import replace

import numpy as np
from adaptive_samples import demand_of, table_of

from dpa.balance.adaptive._arrivals import Arrivals
from dpa.balance.adaptive._worth import Worth
from dpa.balance.adaptive.demand import Demand
from dpa.balance.adaptive.rebalance import Rebalance
from dpa.measure.load import KeySample, Offered

TABLE = table_of([10, 20], [0, 1], 2)
DEMAND = demand_of(TABLE, {5: 1_200.0, 15: 800.0}, [1_000.0, 1_000.0])
LOOK = 0.25


class Looks:
    """A judge that is asked once a quarter of a second."""

    def __init__(self) -> None:
        self._arrivals = Arrivals(2)
        self.learn(times=1)
        self.worth = Worth(self._arrivals, max_imbalance=0.1, min_gain=0.25)
        self.now = 0.0

    def learn(self, *, times: int) -> None:
        """Come to know so many times as much of the same keys."""
        rows = (times - 0.95) * self._arrivals.sample.rows or 1e6  # what was known before fades
        shares = np.array([0.6, 0.4])
        self._arrivals.add("sender", Offered(LOOK, KeySample(np.array([5, 15], np.uint32), rows * shares, rows)))
        self._arrivals.look()

    def acts(
        self, excess: float, *, version: int = 0, gain: float = 1.0, moved: float = 0.0, demand: Demand = DEMAND
    ) -> bool:
        self.now += LOOK
        self.worth.look(version, self.now)
        proposal = Rebalance(TABLE, 1 + excess, 1 + excess - gain, 1.0, moved, 0.0, "", "")
        return self.worth.why_not(proposal, demand, 0) is None


def test_with_each_table_for_the_same_keys_it_takes_a_greater_excess() -> None:
    looks = Looks()
    assert looks.acts(0.12, version=0)
    assert not looks.acts(0.12, version=1)
    assert looks.acts(0.17, version=1)
    assert not looks.acts(0.17, version=4)


def test_a_table_is_worth_making_again_with_four_times_the_evidence() -> None:
    looks = Looks()
    looks.acts(0.0)
    looks.acts(0.0, version=3)  # the table was made of what was known at the look before
    looks.learn(times=2)
    assert not looks.acts(0.12, version=3)
    looks.learn(times=2)
    assert looks.acts(0.12, version=3)


def test_an_excess_that_is_uncertain_and_a_gain_of_less_than_a_quarter_of_what_moves_are_not_worth_it() -> None:
    assert Looks().acts(0.3)
    assert not Looks().acts(0.3, demand=replace(DEMAND, errors=np.array([0.15, 0.0])))
    assert Looks().acts(2.0, gain=0.3, moved=1.0)
    assert not Looks().acts(2.0, gain=0.3, moved=1.3)


def test_a_backlog_counts_less_with_each_table_for_the_same_keys() -> None:
    looks = Looks()
    weights = []
    for version in range(4):
        looks.acts(0.0, version=version)
        weights.append(looks.worth.backlog)
    assert weights == sorted(weights, reverse=True)
    assert 0 < weights[-1] < weights[0] == 1


def test_where_nothing_comes_any_more_a_gain_counts_beside_the_time_so_far() -> None:
    """A quarter of a second was gained in the last moment of a stream of a minute."""
    over = replace(DEMAND, arriving=0.0)
    young, old = Looks(), Looks()
    for looks in (young, old):
        looks.acts(0.0)
    old.now += 60.0
    assert young.acts(1.0, gain=0.5, demand=over)
    assert not old.acts(1.0, gain=0.5, demand=over)
    assert old.acts(1.0, gain=0.5)
