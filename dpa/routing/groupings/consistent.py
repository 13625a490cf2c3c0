"""Consistent grouping (CG): keys to equal virtual workers, virtual workers to reducers by their capacity.

CG paper, section V; the paper's workers are our reducers. The first step is PoRC, or another grouping onto virtual
workers; the second one changes with the reducers' signals, at every source at its own time. A virtual worker that moves
takes nothing along: queued records stay where they are, and only later ones go to its new reducer.
"""

from __future__ import annotations

import numpy as np

from dpa.routing.groupings._pairing import PairingQueues
from dpa.routing.groupings._reported_slots import ReportedSlots
from dpa.routing.groupings._shares import apportion, reassign
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.pooled_choices import PooledChoicesGrouping
from dpa.routing.groupings.signal import Signal
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

_MIN_UTILISATION = 0.01
"""A reducer that is hardly utilised is not given everything in one step."""

_BAND = 0.04
"""A reducer may differ from its target by this share of its virtual workers, and by what chance alone explains: four
times the standard deviation of measurements that are off by 1 %."""


class ConsistentGrouping(Grouping):
    """Every reducer starts with the same number of virtual workers, and always keeps one.

    With `proportional` (ours) a reducer's target is its share of the records divided by its utilisation, and all
    virtual workers that are due move at once, where the paper moves one a signal.
    """

    def __init__(self, reducers: int, inner: Grouping, *, proportional: bool = False) -> None:
        """`inner` groups keys onto `inner.reducers` virtual workers, a multiple of `reducers`; pooled choices learn
        to which reducer each is assigned."""
        super().__init__(reducers)
        if inner.reducers % reducers:
            raise ValueError(f"{reducers} reducers cannot start with equal parts of {inner.reducers} virtual workers")
        self._inner = inner
        self._proportional = proportional
        self._owners = np.arange(inner.reducers) // (inner.reducers // reducers)
        self._of_reducer = [np.flatnonzero(self._owners == reducer).tolist() for reducer in range(reducers)]
        self._queues = PairingQueues()
        self._reported = ReportedSlots(reducers)
        self._utilisations = np.zeros(reducers)
        self._records = np.zeros(reducers)
        self._moved = 0
        self._regroup()

    @property
    def virtual_workers(self) -> tuple[int, ...]:
        """The number of virtual workers of each reducer."""
        return tuple(np.bincount(self._owners, minlength=self.reducers).tolist())

    @property
    def moved(self) -> int:
        """The number of times that a virtual worker was given to another reducer."""
        return self._moved

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        return self._owners.take(self._inner.choose(hashes)).astype(np.int32)

    def observe(self, reducer: int, signal: Signal) -> None:
        """Receive a reducer's signal: each counts once, however many acknowledgements carry it."""
        if not self._reported.is_news(reducer, signal.slot):
            return
        self._utilisations[reducer], self._records[reducer] = signal.utilisation, signal.records
        if self._proportional:
            self._move_in_proportion()
            return
        paired = self._queues.pair(reducer, signal.request, lambda other: len(self._of_reducer[other]) > 1)
        if paired is not None:
            giver, taker = paired
            self._give(self._of_reducer[giver].pop(), taker)
            self._regroup()

    def _give(self, virtual_worker: int, taker: int) -> None:
        """Callers give the virtual worker that the giver gained last: those that have been there for long stay."""
        self._of_reducer[taker].append(virtual_worker)
        self._owners[virtual_worker] = taker
        self._moved += 1

    def _regroup(self) -> None:
        if isinstance(self._inner, PooledChoicesGrouping):
            self._inner.regroup(self._owners)

    def _move_in_proportion(self) -> None:
        """Once every reducer has reported a new slot, give each its target, if any is further from it than `_BAND`
        and chance explain.

        A reducer's capacity in a slot is the records that came, divided by its utilisation. All sources see the same
        numbers, so they come to the same targets, whatever each has made of earlier ones.
        """
        if not self._reported.is_complete():
            return
        busy = self._records > 0
        if not busy.any() or not self._utilisations.any():
            return
        used = np.maximum(self._utilisations / self._utilisations.max(), _MIN_UTILISATION)
        capacities = np.divide(self._records, used, out=np.zeros(self.reducers), where=busy)
        capacities[~busy] = capacities[busy].mean()
        wanted = apportion(capacities, len(self._owners))
        have = np.bincount(self._owners, minlength=self.reducers)
        chance = 1 / np.sqrt(np.maximum(self._records, 1))
        if np.any(np.abs(wanted - have) > 1 + have * (_BAND + chance)):
            self._moved += len(reassign(self._owners, wanted))
            self._regroup()
