"""What all reducers have measured, put together: the work that each token and each hot key will make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpa.measure.load import Load, Records
from dpa.routing.keys import Key, in_words
from dpa.routing.table import RoutingTable

_PRIOR = 8.0
"""Records: a measurement with this much evidence counts as much as the mean of all reducers."""

_SHOWN = 60
"""Characters of a key that a reason shows."""


@dataclass(frozen=True)
class KeyDemand:
    """A hot key's share of its token's work, in records."""

    key: Key
    hash: int
    records: float

    @property
    def name(self) -> str:
        """For people: the key, cut to a readable length."""
        return f"key {in_words(self.key, _SHOWN)}"


@dataclass(frozen=True, eq=False)
class Demand:
    """The work ahead under a routing table, in records, and how fast each reducer does it.

    Attributes:
        table: the table.
        records: of each token that one reducer owns, shape (tokens,); 0 for tokens that are split.
        parts: of each split token, by its index, the records of each of its reducers.
        keys: the hot keys, by hash.
        speeds: records a second of each reducer, shape (reducers,).
        arriving: records that arrive a second, all reducers together.
        unreported: reducers whose work is not known: nothing is to be moved to them.
    """

    table: RoutingTable
    records: Records
    parts: Mapping[int, dict[int, float]]
    keys: Mapping[int, KeyDemand]
    speeds: npt.NDArray[np.float64]
    arriving: float = 0.0
    unreported: frozenset[int] = frozenset()

    @staticmethod
    def of(table: RoutingTable, loads: Mapping[int, Load], horizon: float) -> Demand:
        """The demand of the next `horizon` seconds, and of what is queued, as measured under this very table.

        Queued records count where they are, if they may be processed there, and else where the table sends them: so
        moves that are under way are not made again.
        """
        measured = [(reducer, load.by_token) for reducer, load in loads.items() if load.by_token is not None]
        records = np.zeros(len(table.positions))
        parts = {token: dict.fromkeys(split.reducers, 0.0) for token, split in table.splits.items()}
        keys: dict[int, KeyDemand] = {}
        arriving = 0.0
        for reducer, tokens in measured:
            index = np.searchsorted(table.positions, tokens.tokens)
            expected = tokens.queued + horizon * tokens.rates
            arriving += float(tokens.rates.sum())
            split = table.sole_owners[index] < 0
            np.add.at(records, index[~split], expected[~split])
            for at, queued, rate in zip(
                index[split].tolist(), tokens.queued[split].tolist(), tokens.rates[split].tolist(), strict=True
            ):
                _add_part(parts, table, at, reducer, queued, horizon * rate)
            for hot in tokens.hot:
                known = keys[hot.hash].records if hot.hash in keys else 0.0
                keys[hot.hash] = KeyDemand(hot.key, hot.hash, known + hot.queued + horizon * hot.rate)
        unreported = frozenset(range(table.reducers)) - loads.keys()
        return Demand(table, records, parts, keys, _speeds(table.reducers, loads), arriving, unreported)

    @property
    def loads(self) -> Records:
        """The records of each reducer, shape (reducers,)."""
        owners = self.table.sole_owners
        single = owners >= 0
        loads = np.bincount(owners[single], self.records[single], self.table.reducers).astype(np.float64)
        for of_each in self.parts.values():
            for reducer, records in of_each.items():
                loads[reducer] += records
        return loads


def _add_part(
    parts: dict[int, dict[int, float]], table: RoutingTable, token: int, reporter: int, queued: float, coming: float
) -> None:
    split, of_each = table.splits[token], parts[token]
    here = queued if reporter in of_each else 0.0
    if here:
        of_each[reporter] += here
    for reducer, weight in zip(split.reducers, split.weights, strict=True):
        of_each[reducer] += weight * (coming + queued - here)


def smoothed(loads: Mapping[int, Load]) -> dict[int, Load]:
    """The loads with service times that a few odd records cannot shake: each reducer's own measurement counts by its
    evidence, the mean of all as `_PRIOR` records. A reducer without evidence gets the mean."""
    known = {reducer: load for reducer, load in loads.items() if load.service_seconds is not None and load.evidence}
    records = sum(load.evidence for load in known.values())
    if not records:
        return dict(loads)
    mean = sum((load.service_seconds or 0.0) * load.evidence for load in known.values()) / records
    return {
        reducer: replace(
            load,
            service_seconds=((load.service_seconds or 0.0) * load.evidence + mean * _PRIOR) / (load.evidence + _PRIOR),
        )
        for reducer, load in loads.items()
    }


def _speeds(reducers: int, loads: Mapping[int, Load]) -> npt.NDArray[np.float64]:
    """Records a second; a reducer without a known service time is taken to be as fast as the median."""
    measured = {reducer: load.service_seconds for reducer, load in loads.items() if load.service_seconds}
    median = float(np.median(list(measured.values()))) if measured else 1.0
    return np.array([1 / measured.get(reducer, median) for reducer in range(reducers)])
