"""A small fluid simulation of reducers with queues by key, real meters and the real adaptive balancer: the closed loop
that a job would be, without its messages. Time goes in steps; nothing sleeps."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.balance.decision import Decision, Outcome
from dpa.balance.load import KeySample, Load
from dpa.balance.measure.meter import LoadMeter
from dpa.protocol.assembly import AdaptiveSettings, BalanceOptions
from dpa.routing.hashing import hash_column
from dpa.routing.table import RoutingTable

Floats = npt.NDArray[np.float64]

STEP = 0.05
_REPORT_STEPS = 5
_MAPPER_LAG = 2
"""Steps by which mappers adopt a table later than reducers."""


class FluidLoop:
    """Records arrive by key at `rates(seconds)` a second; each reducer works off `speeds[reducer]` records a second.

    Attributes:
        queues: records by reducer and key, shape (reducers, keys).
        worst: the longest delay of any reducer at each step, in seconds.
        tokens: tokens of the table at each step.
        decisions: all that the balancer decided.
    """

    def __init__(
        self,
        rates: Callable[[float], Floats],
        speeds: list[float],
        *,
        settings: AdaptiveSettings | None = None,
        noise: float = 0.05,
        limit: float = np.inf,
        seed: int = 0,
    ) -> None:
        """Measured service times are off by `noise`; with more than `limit` records outstanding, none arrive."""
        self.rates, self.speeds, self.noise, self.limit = rates, np.array(speeds), noise, limit
        keys = len(rates(0.0))
        self.reducers = len(speeds)
        self.names = pa.array([f"key {index}" for index in range(keys)])
        settings = settings or AdaptiveSettings()
        options = BalanceOptions(strategy="adaptive", adaptive=settings)
        self.balancer = options.policy(self.reducers)
        self.hashes = hash_column(self.names, self.balancer.table.seed)
        self.queues = np.zeros((self.reducers, keys))
        self.between = np.zeros((self.reducers, keys))
        self.held = self.routed = self.balancer.table
        self._to_adopt: list[tuple[int, RoutingTable]] = []
        self.meters = [
            LoadMeter(self.held, half_life=settings.half_life, hot_keys=settings.hot_keys) for _ in range(self.reducers)
        ]
        self.random = np.random.default_rng(seed)
        self.sent_on, self.taken_over, self.done = (np.zeros(self.reducers) for _ in range(3))
        self.steps = 0
        self.arrived = 0.0
        self.decisions: list[Decision] = []
        self.worst: list[float] = []
        self.tokens: list[int] = []

    @property
    def now(self) -> float:
        return self.steps * STEP

    @property
    def applied(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.outcome is Outcome.APPLIED]

    @property
    def outstanding(self) -> float:
        return float(self.queues.sum() + self.between.sum())

    def owners_of(self, key: int) -> tuple[int, ...]:
        """The reducers that the newest table gives a key to."""
        place = int(self.balancer.table.places_of(self.hashes[key : key + 1])[0])
        spread = self.balancer.table.spread_at(place)
        return spread.reducers if spread else (place,)

    def run(self, seconds: float) -> "FluidLoop":
        """Go on for so long."""
        for _ in range(round(seconds / STEP)):
            self._step()
        return self

    def _step(self) -> None:
        self.steps += 1
        self.queues += self.between
        self.taken_over += self.between.sum(axis=1)
        self.between[:] = 0
        self._arrive()
        self._adopt()
        self._work()
        for reducer in range(self.reducers):
            if (self.steps + reducer) % _REPORT_STEPS == 0:
                self._report(reducer)
        self.worst.append(float((self.queues.sum(axis=1) / self.speeds).max()))
        self.tokens.append(len(self.balancer.table.positions))

    def _arrive(self) -> None:
        if self.outstanding >= self.limit:
            return
        coming = self.random.poisson(self.rates(self.now) * STEP).astype(float)
        if self.outstanding + coming.sum() > self.limit:
            coming *= max(0.0, self.limit - self.outstanding) / coming.sum()
        self.arrived += coming.sum()
        arrivals = coming * self._shares(self.routed)
        for reducer, meter in enumerate(self.meters):
            some = np.flatnonzero(arrivals[reducer])
            if len(some):
                sample = KeySample(self.names.take(pa.array(some)), self.hashes[some], arrivals[reducer, some])
                meter.arrived(sample, self.now)
        if self.routed is not self.held:
            self._forward(self.routed, arrivals)
        self.queues += arrivals

    def _shares(self, table: RoutingTable) -> Floats:
        """Of each key's records, the share that each reducer gets; shape (reducers, keys)."""
        shares = np.zeros(self.queues.shape)
        places = table.places_of(self.hashes)
        for key, place in enumerate(places.tolist()):
            spread = table.spread_at(place)
            if spread is None:
                shares[place, key] = 1
            else:
                shares[list(spread.reducers), key] = spread.weights
        return shares

    def _adopt(self) -> None:
        newest = self.balancer.table
        if newest is not self.held:
            old, self.held = self.held, newest
            for meter in self.meters:
                meter.rebase(newest, self.now)
            self._forward(old, self.queues)
            self._to_adopt.append((self.steps + _MAPPER_LAG, newest))
        if self._to_adopt and self._to_adopt[0][0] <= self.steps:
            self.routed = self._to_adopt.pop(0)[1]

    def _forward(self, old: RoutingTable, records: Floats) -> None:
        """Reducers send on what of these was routed by an older table and is not theirs by the one held."""
        places = self.held.places_of(self.hashes)
        for key in range(len(places)):
            spread = self.held.spread_at(int(places[key]))
            if spread is None and records[:, key].sum() == records[places[key], key]:
                continue
            for reducer in np.flatnonzero(records[:, key]).tolist():
                if spread is None:
                    dealt = {int(places[key]): 1.0}
                elif spread.since <= old.epoch and reducer in spread.reducers:
                    continue
                else:
                    dealt = dict(zip(spread.reducers, spread.weights_at(reducer), strict=True))
                for to, share in dealt.items():
                    if to != reducer and share:
                        sent = records[reducer, key] * share
                        self.between[to, key] += sent
                        self.sent_on[reducer] += sent
                records[reducer, key] *= dealt.get(reducer, 0.0)

    def _work(self) -> None:
        waiting = self.queues.sum(axis=1)
        done = np.minimum(waiting, self.speeds * STEP)
        self.queues *= (1 - np.divide(done, waiting, out=np.zeros_like(done), where=waiting > 0))[:, np.newaxis]
        self.done += done

    def _report(self, reducer: int) -> None:
        some = np.flatnonzero(self.queues[reducer] > 1e-9)
        sample = KeySample(self.names.take(pa.array(some)), self.hashes[some], self.queues[reducer, some])
        off = 1 + self.noise * self.random.uniform(-1, 1)
        seconds = float(off / self.speeds[reducer]) if self.done[reducer] else None
        load = Load(
            queue=round(self.queues[reducer].sum()),
            epoch=self.held.epoch,
            service_seconds=seconds,
            evidence=min(self.done[reducer], 1.4 * self.speeds[reducer]),
            sent_on=round(self.sent_on[reducer]),
            taken_over=round(self.taken_over[reducer]),
        )
        load = replace(load, by_token=self.meters[reducer].measure([sample] if len(some) else [], self.now))
        decision = self.balancer.report(reducer, load, self.now)
        if decision is not None:
            self.decisions.append(decision)


def zipf(keys: int, exponent: float, total: float, seed: int = 1) -> Floats:
    """Rates of keys, in random order, adding up to `total`."""
    rates = np.arange(1.0, keys + 1) ** -exponent
    return np.random.default_rng(seed).permutation(rates / rates.sum() * total)
