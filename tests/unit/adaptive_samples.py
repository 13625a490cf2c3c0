"""Demands of known keys, and what a table makes of them: what the tests of the adaptive strategy judge plans by."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from dpa.balance.adaptive.demand import Demand, KeyDemand
from dpa.routing.table import RoutingTable


def table_of(positions: list[int], owners: list[int], reducers: int) -> RoutingTable:
    return RoutingTable.unsplit(0, np.array(positions, np.uint32), np.array(owners, np.int32), reducers)


def loads_of(table: RoutingTable, keys: Mapping[int, float]) -> npt.NDArray[np.float64]:
    """The records of each reducer if the hashes have these records."""
    loads = np.zeros(table.reducers)
    for hashed, records in keys.items():
        assignment = table.assignment_of(hashed)
        loads[list(assignment.reducers)] += records * np.array(getattr(assignment, "weights", (1.0,)))
    return loads


def demand_of(table: RoutingTable, keys: Mapping[int, float], speeds: list[float]) -> Demand:
    """The demand of keys that are all known."""
    records = np.zeros(len(table.positions))
    parts = {token: dict.fromkeys(split.reducers, 0.0) for token, split in table.splits.items()}
    tokens = table.tokens_of(np.array(list(keys), np.uint32)).tolist()
    for token, of_key in zip(tokens, keys.values(), strict=True):
        split = table.splits.get(token)
        if split is None:
            records[token] += of_key
        else:
            for reducer, weight in zip(split.reducers, split.weights, strict=True):
                parts[token][reducer] += weight * of_key
    known = {where: KeyDemand(f"key {where}", where, of_key) for where, of_key in keys.items()}
    return Demand(table, records, parts, known, np.array(speeds), np.zeros(len(speeds)), float(sum(keys.values())))
