"""Demands of known keys, and what a table makes of them: what the tests of the adaptive strategy judge plans by."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from dpa.balance.adaptive.demand import Demand, KeyDemand
from dpa.routing.table import RoutingTable


def table_of(positions: list[int], owners: list[int], reducers: int) -> RoutingTable:
    return RoutingTable(0, np.array(positions, np.uint32), np.array(owners, np.int32), reducers)


def loads_of(table: RoutingTable, keys: Mapping[int, float]) -> npt.NDArray[np.float64]:
    """The records of each reducer if the hashes have so many."""
    loads = np.zeros(table.reducers)
    for place, records in zip(table.places_of(np.array(list(keys), np.uint32)).tolist(), keys.values(), strict=True):
        spread = table.spread_at(place)
        if spread is None:
            loads[place] += records
        else:
            loads[list(spread.reducers)] += records * np.array(spread.weights)
    return loads


def demand_of(table: RoutingTable, keys: Mapping[int, float], speeds: list[float]) -> Demand:
    """The demand of keys that are all known."""
    records = np.zeros(len(table.positions))
    parts: dict[int, dict[int, float]] = {}
    for token, place in enumerate(table.places.tolist()):
        spread = table.spread_at(place)
        if spread is not None:
            parts[token] = dict.fromkeys(spread.reducers, 0.0)
    tokens = table.tokens_of(np.array(list(keys), np.uint32)).tolist()
    for token, of_key in zip(tokens, keys.values(), strict=True):
        spread = table.spread_at(int(table.places[token]))
        if spread is None:
            records[token] += of_key
        else:
            for reducer, weight in zip(spread.reducers, spread.weights, strict=True):
                parts[token][reducer] += weight * of_key
    known = {where: KeyDemand(f"key {where}", where, of_key) for where, of_key in keys.items()}
    return Demand(table, records, parts, known, np.array(speeds), float(sum(keys.values())))
