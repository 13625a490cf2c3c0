"""For keys that come and go faster than tables can follow, as in sorted input: every arc is split over all reducers.

Which reducer owns a key then matters no more: the records of each go to all. Its states are merged in the end. There
are few such keys, or none of them would have enough records at a time to be noticed.
"""

from __future__ import annotations

import numpy as np

from dpa.balance.adaptive.demand import Demand
from dpa.balance.adaptive.rebalance import Rebalance
from dpa.routing.assignment import Assignment, KeySplit
from dpa.routing.change import TableChange


def is_spread(demand: Demand) -> bool:
    """Whether there is nothing to split: every arc that has work is, but for those of reducers that have not reported;
    or fewer than two have."""
    if len(set(demand.table.members) - demand.unreported) < 2:
        return True
    owners = demand.table.sole_owners
    whole = owners[(owners >= 0) & (demand.records > 0)]
    return bool(np.isin(whole, list(demand.unreported)).all())


def spread(demand: Demand) -> Rebalance:
    """The table in which each arc is split over all reducers that have reported, by their speeds; arcs that are split
    already, or belong to another, stay as they are."""
    table, seconds = demand.table, demand.seconds
    reported = [reducer for reducer in sorted(table.members) if reducer not in demand.unreported]
    speed = {reducer: float(demand.speeds[reducer]) for reducer in reported}
    share = {reducer: one / sum(speed.values()) for reducer, one in speed.items()}
    splits = {reducer: _split(reducer, share, table.version + 1) for reducer in reported}
    owners = table.sole_owners.tolist()
    assignments: dict[int, Assignment] = {
        position: splits[owner]
        for position, owner in zip(table.positions.tolist(), owners, strict=True)
        if owner in splits
    }
    total = float(demand.loads.sum()) or 1.0
    given = sum(
        work * (1 - share[owner]) for work, owner in zip(demand.records.tolist(), owners, strict=True) if owner in share
    )
    mean = float(demand.loads[reported].sum()) / sum(speed.values())
    return Rebalance(
        table=TableChange.of(table, assignments).apply(table),
        before=float(seconds[reported].max()),
        after=mean,
        mean=mean,
        moved=0.0,
        split=given / total,
        steps=f"split every token over {len(reported)} tasks",
        stuck="",
    )


def _split(owner: int, share: dict[int, float], version: int) -> KeySplit:
    """An arc of this owner, split; the owner comes first, and so keeps the states in the end."""
    reducers = (owner, *(reducer for reducer in share if reducer != owner))
    before = tuple(float(reducer == owner) for reducer in reducers)
    return KeySplit(reducers, tuple(share[reducer] for reducer in reducers), before, version)
