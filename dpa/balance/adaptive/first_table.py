"""The first routing table of a stage, planned from a sample of its records before there is any load.

It is drafted as every later table is. A sample says how often keys come, not what they cost or how fast reducers are:
those are taken to be equal until they are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpa.balance.adaptive._arrivals import Arrivals
from dpa.balance.adaptive.demand import Demand, Expected
from dpa.balance.adaptive.rebalance import RebalanceOptions, rebalance
from dpa.measure.load import KeySample, Load
from dpa.routing.keys import Key
from dpa.routing.ring import TokenRing
from dpa.routing.table import RoutingTable


@dataclass(frozen=True, eq=False)
class FirstTable:
    """A planned first table, and what it was planned from.

    Attributes:
        table: numbered 0.
        keys: the keys to expect, in their proportions.
        names: the frequent ones of them, by hash.
        rounds: redistributions that each reducer's load has caused before, where the policy counts them.
    """

    table: RoutingTable
    keys: KeySample
    names: Mapping[int, Key]
    rounds: Mapping[int, int] = field(default_factory=dict)

    @property
    def splits(self) -> int:
        return len(self.table.splits)


def planned(ring: TokenRing, keys: KeySample, names: Mapping[int, Key], aim: RebalanceOptions) -> FirstTable:
    """Plan the first table of a stage from a sample of keys, at least one record. The tokens of `ring` stay in it. The
    standard error of a key's share p is `sqrt(p (1 - p) / keys.rows)`, and keys that are frequent by chance alone are
    not named. Nothing moves, so `max_moved` of the aim does not matter."""
    before = ring.snapshot(-1)
    arrivals = Arrivals(len(before.positions))
    arrivals.expect(keys, names)
    expected = Expected(arrivals.sample.total, arrivals.sample, arrivals.names)
    nothing = Load(queue=0, version=before.version)
    demand = Demand.of(before, dict.fromkeys(before.members, nothing), expected)
    plan = rebalance(
        demand,
        RebalanceOptions(aim.tolerance, may_split=aim.may_split),
        base=frozenset(before.positions.tolist()),
    )
    table = plan.table if plan.steps else ring.snapshot(0)
    return FirstTable(table, arrivals.sample, arrivals.names)
