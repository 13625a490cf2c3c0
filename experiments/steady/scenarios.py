"""The scenarios of slow records: a stream of keys, what its records cost, and which reducers are slowed.

Virtual and real runs take them from here, so that a scenario means the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dpa.sources.distributions import Ranks
from experiments.steady import streams
from experiments.steady.ideal import Capacity, Slowdown, ideal_seconds
from experiments.steady.streams import KEYS, Floats, Stream

SERVICE_SECONDS = 0.002
REDUCERS, MAPPERS = 4, 2
PACE = 0.9
"""Of what all reducers can do, where the sources keep a pace."""

SPLIT = 100
"""Records that a source is given at a time: a twentieth of a second of work for all reducers."""


@dataclass(frozen=True)
class Scenario:
    """A stream and what it meets. Everything else is left at a job's defaults.

    Attributes:
        stream: its keys.
        drifts: whether what is hot changes, which allows for more redistributions.
        cost: what a record of each hot key takes, in records of another key.
        slowed: reducers that are slowed.
        limits: of the job, besides the size of splits.
        split: records that a source is given at a time; None: all at once.
    """

    name: str
    stream: Stream
    drifts: bool = False
    cost: float = 1.0
    slowed: tuple[Slowdown, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    split: int | None = SPLIT

    def slowness(self, reducer: int, now: float) -> float:
        """The factor by which a reducer takes longer at a moment, in seconds."""
        return max((each.at(now) for each in self.slowed if each.reducer == reducer), default=1.0)


STATIONARY = (
    Scenario("even", streams.even),
    Scenario("zipf 1.0", streams.zipf_keys(1.0)),
    Scenario("zipf 1.5", streams.zipf_keys(1.5)),
    Scenario("hot 40 %", streams.hot(0.4)),
    Scenario("hot 60 %", streams.hot(0.6)),
)
CHANGING = (
    Scenario("drifting", streams.drifting(0.6, 2.0), drifts=True),
    Scenario("alternating", streams.alternating(0.6, 1.0), drifts=True),
    Scenario("late hot key", streams.late(0.6), drifts=True),
)
UNEQUAL = (
    Scenario("slow reducer", streams.even, slowed=(Slowdown(3, 5.0),)),
    Scenario("dear key", streams.hot(0.05), cost=10.0),
    Scenario("sorted", streams.in_order, drifts=True),
)
TIGHT = (
    Scenario("small credit", streams.hot(0.6), limits={"in_flight_records": 50, "batch_records": 50}),
    Scenario("one piece", streams.hot(0.6), split=None),
)
NEIGHBOUR = Scenario("noisy neighbour", streams.even, slowed=(Slowdown(3, 3.0, 5.0, 10.0),), drifts=True)
"""Only in virtual time: real reducers of slow records sleep, and a neighbour does not disturb their sleep."""

REAL = (STATIONARY[0], STATIONARY[4], *CHANGING, *UNEQUAL, TIGHT[0])
"""The nine of real actors."""

VIRTUAL = (*STATIONARY, *CHANGING, *UNEQUAL, NEIGHBOUR, *TIGHT)


@dataclass(frozen=True, eq=False)
class Load:
    """A scenario's input of a length and a seed.

    Attributes:
        table: `key`, and `cost` in records of a key that is not hot.
        rate: records a second that all sources together emit at most; None: as fast as they can.
        ideal: the least seconds that the stream can take.
    """

    scenario: Scenario
    table: pa.Table
    rate: float | None
    ideal: float


def load_of(scenario: Scenario, seconds: float, seed: int, *, paced: bool) -> Load:
    """The input of about `seconds` seconds of work for all reducers."""
    random = np.random.default_rng(seed)
    capacity = Capacity(REDUCERS, scenario.slowed)
    # What a record costs on average, of a first draw: where only hot keys are dear, it depends on how many there are.
    mean = _costs(scenario, scenario.stream(np.random.default_rng(seed), np.linspace(0, seconds, KEYS))).mean()
    rate = capacity.rate(0.0) / (mean * SERVICE_SECONDS)
    records = round(seconds * rate)
    ranks = scenario.stream(random, np.arange(records) / rate)
    costs = _costs(scenario, ranks)
    pace = PACE * rate if paced else None
    arrivals = np.zeros(records) if pace is None else np.arange(1, records + 1) / pace
    table = pa.table({"key": streams.names(ranks), "cost": costs})
    return Load(scenario, table, pace, ideal_seconds(arrivals, costs * SERVICE_SECONDS, capacity))


def _costs(scenario: Scenario, ranks: Ranks) -> Floats:
    return np.where(ranks < KEYS, 1.0, scenario.cost)
