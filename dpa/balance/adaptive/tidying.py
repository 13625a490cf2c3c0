"""Keeping a routing table small: tokens that once divided an arc go when there is no reason for them any more."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import numpy.typing as npt

from dpa.balance.adaptive.demand import Demand
from dpa.routing.hashing import Hashes
from dpa.routing.table import RoutingTable

_BUDGET = 0.01
"""The share of all work that may go back with idle arcs at a time."""


def tidied(
    table: RoutingTable,
    demand: Demand,
    keep: Container[int],
    touched: Container[int],
    crumb: float,
    allowed: float = np.inf,
) -> tuple[RoutingTable, float]:
    """A table that says almost the same with fewer tokens.

    An arc that has less than `crumb` records goes back to the reducer of the arc after it, from which it was taken when
    it had more. A token between two arcs of one reducer is dropped if one of them has less than that.

    Args:
        table: what was planned.
        demand: the work by token, measured under the table before it.
        keep: positions of tokens that are neither given back nor dropped.
        touched: those of tokens that the plan has just placed.
        crumb: in records.
        allowed: the most that may have another owner, in records.

    Returns:
        the table, and the records that have another owner in it.
    """
    work = _work(table, demand)
    spare = np.array(
        [position not in keep and position not in touched for position in table.positions.tolist()], dtype=bool
    )
    places, single = table.places.copy(), table.places < table.reducers
    after = np.roll(table.places, -1)
    idle = np.flatnonzero(spare & single & (after < table.reducers) & (places != after) & (work < crumb))
    idle = idle[np.argsort(work[idle], kind="stable")]
    idle = idle[np.cumsum(work[idle]) <= min(_BUDGET * float(demand.loads.sum()), allowed)]
    places[idle] = after[idle]
    same = single & (places == np.roll(places, -1))
    dropped = spare & same & (np.minimum(work, np.roll(work, -1)) < crumb)
    if not dropped.any() and not len(idle):
        return table, 0.0
    kept = ~dropped
    smaller = RoutingTable(table.epoch, table.positions[kept], places[kept], table.reducers, table.seed, table.spreads)
    return smaller, float(work[idle].sum())


def _work(table: RoutingTable, demand: Demand) -> npt.NDArray[np.float64]:
    """Records of each token of the table; infinite for those that were not measured, and for those that are spread, or
    were: what is measured of a spread is its parts."""
    measured: Hashes = demand.table.positions
    at = np.minimum(np.searchsorted(measured, table.positions), len(measured) - 1)
    told = np.zeros(table.reducers + len(demand.table.spreads), dtype=bool)  # by place in the table that was measured
    told[: table.reducers] = [reducer not in demand.silent for reducer in range(table.reducers)]
    known = (measured[at] == table.positions) & (table.places < table.reducers) & told[demand.table.places[at]]
    return np.where(known, demand.records[at], np.inf)
