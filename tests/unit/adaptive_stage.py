"""A stage of four reducers as the adaptive policy sees it: what a sender and the reducers of known keys report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from adaptive_samples import loads_of

from dpa.balance.adaptive.policy import AdaptivePolicy
from dpa.balance.adaptive.rebalance import FirstTable
from dpa.balance.decision import Decision, Outcome
from dpa.balance.options import AdaptiveOptions
from dpa.balance.policy import BalancedStage
from dpa.measure.load import KeySample, Load, Offered
from dpa.routing.hashing import hash_column
from dpa.routing.table import RoutingTable

REDUCERS = 4
KEYS = 300
NAMES = [f"key {number}" for number in range(KEYS)]
HASHES = hash_column(pa.array(NAMES))
SERVICE_SECONDS = 0.002
ALL_CAN_DO = REDUCERS / SERVICE_SECONDS
"""Records a second."""

BUSY = [1.0] * REDUCERS


class Stage:
    """A policy, and a sender and reducers that report to it.

    Attributes:
        now: the moment of the last look, in seconds; a quarter lies between two.
        decisions: all so far.
    """

    def __init__(self, first: FirstTable | None = None, feeds: Sequence[str] = (), **options: Any) -> None:
        """A stage that begins with this table, and is fed by stages of these names."""
        named = dict(enumerate(feeds))
        self.policy = AdaptiveOptions(**options).policy(BalancedStage(REDUCERS, first=first, feeds=named))
        assert isinstance(self.policy, AdaptivePolicy)
        self.now = 0.0
        self.decisions: list[Decision] = []

    @property
    def table(self) -> RoutingTable:
        return self.policy.table

    @property
    def applied(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.outcome is Outcome.APPLIED]

    def by_owner(self, records: np.ndarray) -> np.ndarray:
        """Records of each reducer if the keys have these, shape (reducers,)."""
        return loads_of(self.table, dict(zip(HASHES.tolist(), records.tolist(), strict=True)))

    def offer(self, shares: np.ndarray, *, rate: float = 2 * ALL_CAN_DO, rows: float = 2_000, feed: int = 0) -> None:
        """A sender of one of the feeds has offered keys in these proportions for a quarter of a second."""
        order = np.argsort(HASHES)
        keys = KeySample(HASHES[order], shares[order] * 0.25 * rate, rows)
        names = {int(HASHES[key]): NAMES[key] for key in np.flatnonzero(shares >= 0.01)}
        sender = "sender" if feed == 0 else f"sender on edge {feed}"
        self.policy.offered(sender, Offered(0.25, keys, names), self.now, feed)

    def load(self, shares: np.ndarray, reducer: int, **more: Any) -> Load:
        """What a reducer reports that has its part of the keys: by default busy, with half a second of work."""
        fields = {"queue": 250, "busy": 1.0, "error": 0.02 * SERVICE_SECONDS, **more}
        order = np.argsort(HASHES)
        mine = self.table.owners_of(HASHES[order]) == reducer
        queued = KeySample(HASHES[order][mine], shares[order][mine], 100.0).scaled(fields["queue"])
        return Load(
            version=fields.pop("version", self.table.version),
            service_seconds=fields.pop("service_seconds", SERVICE_SECONDS),
            evidence=1_000.0,
            queued=queued,
            **fields,
        )

    def report(self, reducer: int, load: Load) -> Decision | None:
        decision = self.policy.report(reducer, load, self.now)
        if decision is not None:
            self.decisions.append(decision)
        return decision

    def look(self, shares: np.ndarray, *, among: Iterable[int] = range(REDUCERS), **more: Any) -> Decision | None:
        """A quarter of a second later all report, each what `more` says or its item of a list; the last decision."""
        self.now += 0.25
        decision = None
        for reducer in among:
            own = {name: value[reducer] if isinstance(value, list) else value for name, value in more.items()}
            decision = self.report(reducer, self.load(shares, reducer, **own)) or decision
        return decision


def zipf(exponent: float, seed: int = 0) -> np.ndarray:
    shares = np.random.default_rng(seed).permutation(np.arange(1.0, KEYS + 1) ** -exponent)
    return shares / shares.sum()


def hot(share: float, key: int = 0) -> np.ndarray:
    shares = np.full(KEYS, (1 - share) / (KEYS - 1))
    shares[key] = share
    return shares


def looked(shares: np.ndarray, looks: int = 1, **more: Any) -> Stage:
    """A stage after some looks at these keys."""
    stage = Stage()
    for _ in range(looks):
        stage.offer(shares)
        stage.look(shares, **more)
    return stage


def only(decision: Decision | None) -> Decision:
    assert decision is not None
    return decision
