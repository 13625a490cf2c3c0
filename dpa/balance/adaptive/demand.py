"""What all reducers and senders have measured, put together: the work that each token and each hot key will make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dpa.measure.load import KeySample, Load, Records
from dpa.routing.keys import Key, in_words
from dpa.routing.table import RoutingTable

_HICCUP = 0.01  # seconds by which a single measurement may be wrong, of however many records it is
_NOISE = 3.0  # standard errors from the mean at which a service time is half believed

SHOWN = 60
"""Characters of a key that people are shown."""


@dataclass(frozen=True)
class KeyDemand:
    """A hot key's share of its token's work, in records."""

    key: Key
    hash: int
    records: float

    @property
    def name(self) -> str:
        return f"key {in_words(self.key, SHOWN)}"


@dataclass(frozen=True, eq=False)
class Expected:
    """What will be offered: `records` with the keys of `sample`, in its proportions; and what the most frequent of
    these keys are, by hash."""

    records: float
    sample: KeySample
    names: Mapping[int, Key]


@dataclass(frozen=True, eq=False)
class Demand:
    """The work ahead under a routing table, in records that take as long as usual, and how fast each reducer does it.

    Attributes:
        table: the table.
        records: of each token that one reducer owns, shape (tokens,); 0 for tokens that are split.
        parts: of each split token, by its index, the records of each of its reducers.
        keys: the hot keys, by hash.
        speeds: records a second of each reducer, shape (reducers,).
        errors: the standard error of each speed, as a part of it, shape (reducers,); 0 where it is not known.
        arriving: those of all that have not come yet.
        unreported: members whose work is not known: nothing may move to them.
        names: the keys that are known by hash, whether or not they have work.
    """

    table: RoutingTable
    records: Records
    parts: Mapping[int, dict[int, float]]
    keys: Mapping[int, KeyDemand]
    speeds: npt.NDArray[np.float64]
    errors: npt.NDArray[np.float64]
    arriving: float = 0.0
    unreported: frozenset[int] = frozenset()
    names: Mapping[int, Key] = field(default_factory=dict)

    @staticmethod
    def of(
        table: RoutingTable,
        loads: Mapping[int, Load],
        expected: Expected,
        horizon: float = np.inf,
        backlog: float = 1.0,
    ) -> Demand:
        """The demand of what is expected, but not more than all reducers can do in `horizon` seconds, and of what is
        queued, as measured under this very table. A queued record counts as `backlog` of one that is to come.

        Queued records count where they are, if they may be processed there, and else where the table sends them: so
        moves that are under way are not made again."""
        costs = _costs(loads)
        records = np.zeros(len(table.positions))
        parts = {token: dict.fromkeys(split.reducers, 0.0) for token, split in table.splits.items()}
        keys = dict.fromkeys(expected.names, 0.0)
        weight = backlog if expected.records else 1.0
        for reducer, load in loads.items():
            if load.queued is not None:
                queued = _weighed(load.queued, costs)
                _add(table, queued.scaled(weight * queued.total), records, parts, keys, reducer)
        speeds = _speeds(table.reducers, loads)
        coming = _weighed(expected.sample.scaled(expected.records), costs)
        if speeds is not None:
            coming = coming.scaled(min(coming.total, horizon * float(speeds[list(table.members)].sum())))
        _add(table, coming, records, parts, keys)
        hot = {hashed: KeyDemand(expected.names[hashed], hashed, work) for hashed, work in keys.items() if work}
        unreported = frozenset(table.members) - loads.keys()
        known = np.ones(table.reducers) if speeds is None else speeds
        errors = np.zeros(table.reducers)
        errors[list(loads)] = [_relative_error(load) for load in loads.values()]
        return Demand(table, records, parts, hot, known, errors, coming.total, unreported, expected.names)

    @property
    def loads(self) -> Records:
        """Shape (reducers,)."""
        owners = self.table.sole_owners
        single = owners >= 0
        loads = np.bincount(owners[single], self.records[single], self.table.reducers).astype(np.float64)
        for of_each in self.parts.values():
            for reducer, records in of_each.items():
                loads[reducer] += records
        return loads

    @property
    def seconds(self) -> Records:
        """Shape (reducers,)."""
        return self.loads / self.speeds


def _add(
    table: RoutingTable,
    work: KeySample,
    records: Records,
    parts: dict[int, dict[int, float]],
    keys: dict[int, float],
    reporter: int | None = None,
) -> None:
    """Add work to `records`, `parts` and `keys`; `reporter`: the reducer that has it already, None if it is to come."""
    index = table.tokens_of(work.hashes)
    split = table.sole_owners[index] < 0
    np.add.at(records, index[~split], work.records[~split])
    for at, amount in zip(index[split].tolist(), work.records[split].tolist(), strict=True):
        _add_part(parts, table, at, reporter, amount)
    wanted = np.fromiter(keys, dtype=np.uint32, count=len(keys))
    for hashed, amount in zip(wanted.tolist(), work.of(wanted).tolist(), strict=True):
        keys[hashed] += amount


def _add_part(
    parts: dict[int, dict[int, float]], table: RoutingTable, token: int, reporter: int | None, amount: float
) -> None:
    split, of_each = table.splits[token], parts[token]
    if reporter in of_each and reporter is not None:  # what a reducer has it keeps; the rest comes by weight
        of_each[reporter] += amount
        return
    for reducer, weight in zip(split.reducers, split.weights, strict=True):
        of_each[reducer] += weight * amount


def _costs(loads: Mapping[int, Load]) -> dict[int, float]:
    """Of each key that stands out: the cost of a record in units of a usual one, by all reducers that report it."""
    said: dict[int, list[float]] = {}
    for load in loads.values():
        for hashed, cost in load.costs.items():
            said.setdefault(hashed, []).append(cost)
    return {hashed: float(np.median(costs)) for hashed, costs in said.items()}


def _weighed(sample: KeySample, costs: Mapping[int, float]) -> KeySample:
    dear = sorted(costs)
    factors = KeySample(np.array(dear, np.uint32), np.array([costs[key] for key in dear]), 0.0).of(sample.hashes)
    return replace(sample, records=sample.records * np.where(factors, factors, 1.0))


def smoothed(loads: Mapping[int, Load]) -> dict[int, Load]:
    """The loads with times of a usual record that chance cannot shake: each reducer's own counts by its evidence, and
    by how many standard errors it is from the mean of all. A reducer without evidence gets the mean. `error` is then
    that of these times."""
    known = {reducer: seconds for reducer, load in loads.items() if (seconds := _usual(load)) and load.evidence}
    records = sum(loads[reducer].evidence for reducer in known)
    if not records:
        return dict(loads)
    mean = sum(seconds * loads[reducer].evidence for reducer, seconds in known.items()) / records
    return {reducer: _shrunk(load, mean) for reducer, load in loads.items()}


def _usual(load: Load) -> float | None:
    return load.service_seconds if load.usual_seconds is None else load.usual_seconds


def _shrunk(load: Load, mean: float) -> Load:
    """The load with a time of a usual record nearer to the mean. The times of dear keys are known, and stay."""
    measured, believed = _usual(load), _believed(load, mean)
    usual = mean if not measured else mean + believed * (measured - mean)
    factor = 1.0 if load.usual_seconds is None or not usual else load.usual_seconds / usual
    error = believed * _error(load) * usual / load.service_seconds if load.service_seconds and believed else 0.0
    costs = {key: cost * factor for key, cost in load.costs.items()}
    return replace(load, usual_seconds=usual, error=error, costs=costs)


def _believed(load: Load, mean: float) -> float:
    """How much a reducer's own time counts beside the mean of all, 0 to 1."""
    usual = _usual(load)
    if not usual or not load.evidence:
        return 0.0
    apart = (usual - mean) ** 2
    return apart / (apart + (_NOISE * _error(load)) ** 2) if apart else 0.0


def _error(load: Load) -> float:
    """The standard error of a time for which there is evidence, in seconds; of one measurement, as much as that may be
    wrong."""
    return load.error if math.isfinite(load.error) else _HICCUP / load.evidence


def _relative_error(load: Load) -> float:
    """As a part of the time of a usual record; 0 if nothing is known."""
    usual = _usual(load)
    return _error(load) / usual if usual and load.evidence else 0.0


def _speeds(reducers: int, loads: Mapping[int, Load]) -> npt.NDArray[np.float64] | None:
    """Records a second; a reducer without a known service time gets the median. None if none is known."""
    measured = {reducer: seconds for reducer, load in loads.items() if (seconds := _usual(load))}
    if not measured:
        return None
    speeds = np.full(reducers, 1 / float(np.median(list(measured.values()))))
    speeds[list(measured)] = [1 / seconds for seconds in measured.values()]
    return speeds
