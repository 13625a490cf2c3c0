"""A small fluid simulation of a sender, of reducers with queues by key, and of the real adaptive balancer: the closed
loop that a job would be, without its messages. Time goes in steps; nothing sleeps."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.balance.decision import Decision, Outcome
from dpa.balance.options import AdaptiveOptions
from dpa.balance.policy import BalancedStage
from dpa.measure.load import KeySample, Load, Offered
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
        options: AdaptiveOptions | None = None,
        noise: float = 0.05,
        limit: float = np.inf,
        seed: int = 0,
    ) -> None:
        """Measured service times are off by `noise`; with more than `limit` records outstanding, none arrive."""
        self.rates, self.speeds, self.noise, self.limit = rates, np.array(speeds), noise, limit
        keys = len(rates(0.0))
        self.reducers = len(speeds)
        self.names = pa.array([f"key {index}" for index in range(keys)])
        self.balancer = (options or AdaptiveOptions()).policy(BalancedStage(self.reducers))
        self.hashes = hash_column(self.names, self.balancer.table.seed)
        self.queues = np.zeros((self.reducers, keys))
        self.between = np.zeros((self.reducers, keys))
        self.held = self.routed = self.balancer.table
        self._to_adopt: list[tuple[int, RoutingTable]] = []
        self.by_hash = np.argsort(self.hashes)
        self.offered = np.zeros(keys)
        self.busy = np.zeros(self.reducers)
        self.random = np.random.default_rng(seed)
        self.forwarded_out, self.forwarded_in, self.done = (np.zeros(self.reducers) for _ in range(3))
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
        return self.balancer.table.assignment_of(int(self.hashes[key])).reducers

    def run(self, seconds: float) -> "FluidLoop":
        """Go on for so long."""
        for _ in range(round(seconds / STEP)):
            self._step()
        return self

    def _step(self) -> None:
        self.steps += 1
        self.queues += self.between
        self.forwarded_in += self.between.sum(axis=1)
        self.between[:] = 0
        self._arrive()
        self._adopt()
        self._work()
        if self.steps % _REPORT_STEPS == 0:
            self._offer()
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
        self.offered += coming
        arrivals = coming * self._shares(self.routed)
        if self.routed is not self.held:
            self._forward(self.routed, arrivals)
        self.queues += arrivals

    def _shares(self, table: RoutingTable) -> Floats:
        """Of each key's records, the share that each reducer gets; shape (reducers, keys)."""
        shares = np.zeros(self.queues.shape)
        owners, splits = table.resolve(self.hashes)
        shares[owners, np.arange(len(owners))] = 1
        for split, keys in splits:
            shares[np.ix_(split.reducers, keys)] = np.array(split.weights)[:, np.newaxis]
        return shares

    def _adopt(self) -> None:
        newest = self.balancer.table
        if newest is not self.held:
            old, self.held = self.held, newest
            self._forward(old, self.queues)
            self._to_adopt.append((self.steps + _MAPPER_LAG, newest))
        if self._to_adopt and self._to_adopt[0][0] <= self.steps:
            self.routed = self._to_adopt.pop(0)[1]

    def _forward(self, old: RoutingTable, records: Floats) -> None:
        """Reducers forward those of these records that an older table routed and that are not theirs by the one
        held."""
        owners, splits = self.held.resolve(self.hashes)
        split_of = {key: split for split, keys in splits for key in keys.tolist()}
        for key, owner in enumerate(owners.tolist()):
            split = split_of.get(key)
            if split is None and records[:, key].sum() == records[owner, key]:
                continue
            for reducer in np.flatnonzero(records[:, key]).tolist():
                if split is None:
                    shares = {owner: 1.0}
                elif split.since <= old.version and reducer in split.reducers:
                    continue
                else:
                    shares = dict(zip(split.reducers, split.weights_at(reducer), strict=True))
                for to, share in shares.items():
                    if to != reducer and share:
                        sent = records[reducer, key] * share
                        self.between[to, key] += sent
                        self.forwarded_out[reducer] += sent
                records[reducer, key] *= shares.get(reducer, 0.0)

    def _work(self) -> None:
        waiting = self.queues.sum(axis=1)
        done = np.minimum(waiting, self.speeds * STEP)
        self.queues *= (1 - np.divide(done, waiting, out=np.zeros_like(done), where=waiting > 0))[:, np.newaxis]
        self.done += done
        self.busy += done / self.speeds

    def _offer(self) -> None:
        """The sender reports what has arrived since it last did so."""
        names = {int(hashed): self.names[index].as_py() for index, hashed in enumerate(self.hashes)}
        offered = Offered(_REPORT_STEPS * STEP, self._sample(self.offered), names)
        self.balancer.offered("sender", offered, self.now)
        self.offered = np.zeros(len(self.hashes))

    def _sample(self, records: Floats) -> KeySample:
        """Records of each key, exactly."""
        some = self.by_hash[records[self.by_hash] > 1e-9]
        return KeySample(self.hashes[some], records[some], float(records.sum()))

    def _report(self, reducer: int) -> None:
        off = 1 + self.noise * self.random.uniform(-1, 1)
        seconds = float(off / self.speeds[reducer]) if self.done[reducer] else None
        load = Load(
            queue=round(self.queues[reducer].sum()),
            version=self.held.version,
            service_seconds=seconds,
            error=self.noise / self.speeds[reducer],
            evidence=min(self.done[reducer], 1.4 * self.speeds[reducer]),
            busy=min(1.0, float(self.busy[reducer]) / (_REPORT_STEPS * STEP)),
            forwarded_out=round(self.forwarded_out[reducer]),
            forwarded_in=round(self.forwarded_in[reducer]),
            queued=self._sample(self.queues[reducer]),
        )
        self.busy[reducer] = 0.0
        decision = self.balancer.report(reducer, load, self.now)
        if decision is not None:
            self.decisions.append(decision)


def zipf(keys: int, exponent: float, total: float, seed: int = 1) -> Floats:
    """Rates of keys, in random order, adding up to `total`."""
    rates = np.arange(1.0, keys + 1) ** -exponent
    return np.random.default_rng(seed).permutation(rates / rates.sum() * total)
