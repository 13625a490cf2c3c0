"""Keeping a routing table small: tokens that once split an arc go when there is no reason for them any more."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpa.balance.adaptive.demand import Demand
from dpa.routing.hashing import Hashes
from dpa.routing.table import RoutingTable

_BUDGET = 0.01
"""The share of all work that may return to former owners with idle arcs in one compaction."""


def compacted(
    table: RoutingTable,
    demand: Demand,
    keep: Container[int],
    touched: Container[int],
    negligible: float,
    allowed: float = np.inf,
) -> tuple[RoutingTable, float]:
    """A table that says almost the same with fewer tokens.

    An arc with less than `negligible` records returns to the reducer of the arc after it, from which it was taken when
    it had more. A token between two arcs of one reducer is dropped if one of them has less than that.

    Args:
        table: what was planned.
        demand: the work by token, measured under the table before it.
        keep: positions of tokens that are neither returned nor dropped.
        touched: those of tokens that have just been assigned.
        negligible: in records.
        allowed: the most that may have another owner, in records.

    Returns:
        the table, and the records that have another owner in it.
    """
    work = _work(table, demand)
    spare = np.array(
        [position not in keep and position not in touched for position in table.positions.tolist()], dtype=bool
    )
    assigned, owners = table.assigned.copy(), table.sole_owners
    after = np.roll(owners, -1)
    idle = np.flatnonzero(spare & (owners >= 0) & (after >= 0) & (owners != after) & (work < negligible))
    idle = idle[np.argsort(work[idle], kind="stable")]
    idle = idle[np.cumsum(work[idle]) <= min(_BUDGET * float(demand.loads.sum()), allowed)]
    assigned[idle] = np.roll(assigned, -1)[idle]
    same = (owners >= 0) & (assigned == np.roll(assigned, -1))
    dropped = spare & same & (np.minimum(work, np.roll(work, -1)) < negligible)
    if not dropped.any() and not len(idle):
        return table, 0.0
    kept = ~dropped
    smaller = replace(table, positions=table.positions[kept], assigned=assigned[kept])
    return smaller, float(work[idle].sum())


def _work(table: RoutingTable, demand: Demand) -> npt.NDArray[np.float64]:
    """Records of each token of the table; infinite for those that were not measured, and for those that are split, or
    were: what is measured of a split token is its parts."""
    measured: Hashes = demand.table.positions
    at = np.minimum(np.searchsorted(measured, table.positions), len(measured) - 1)
    owners = demand.table.sole_owners[at]
    reported = (owners >= 0) & ~np.isin(owners, list(demand.unreported))
    known = (measured[at] == table.positions) & (table.sole_owners >= 0) & reported
    return np.where(known, demand.records[at], np.inf)
