"""Consistent grouping (CG): keys to equal virtual workers, virtual workers to workers by what each can do.

CG paper, section V. The first step is PoRC, or another grouping onto virtual workers; the second one changes with the
workers' signals, at every source at its own time. A virtual worker that moves takes nothing along: what is queued stays
where it is, and only later records go to its new worker.
"""

from __future__ import annotations

import numpy as np

from dpa.routing.groupings._heard import Heard
from dpa.routing.groupings._pairing import PairingQueues
from dpa.routing.groupings._shares import apportion, reassign
from dpa.routing.groupings.base import Grouping
from dpa.routing.groupings.pooled_choices import PooledChoicesGrouping
from dpa.routing.groupings.signal import Signal
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

_LEAST_UTILISATION = 0.01
"""A worker with next to nothing to do is not given all there is in one step."""

_BAND = 0.04
"""Virtual workers so close to their target, as a share of them, may stay as they are; besides, so many as chance alone
may call for. Four times the standard deviation of measurements that are off by 1 %."""


class ConsistentGrouping(Grouping):
    """Every worker starts with as many virtual workers as any other, and always keeps one.

    With `proportional` (ours) a worker's target is its share of the records divided by its utilisation, and all that is
    due moves at once, where the paper moves one virtual worker a signal.
    """

    def __init__(self, bins: int, inner: Grouping, *, proportional: bool = False) -> None:
        """`inner` groups keys onto `inner.bins` virtual workers, a multiple of the number of workers; pooled choices
        are told whose each is."""
        super().__init__(bins)
        if inner.bins % bins:
            raise ValueError(f"{bins} workers cannot start with equally many of {inner.bins} virtual workers")
        self._inner = inner
        self._proportional = proportional
        self._owners = np.arange(inner.bins) // (inner.bins // bins)
        self._of_worker = [np.flatnonzero(self._owners == worker).tolist() for worker in range(bins)]
        self._queues = PairingQueues()
        self._heard = Heard(bins)
        self._utilisations = np.zeros(bins)
        self._records = np.zeros(bins)
        self._moved = 0
        self._tell()

    @property
    def virtual_workers(self) -> tuple[int, ...]:
        """How many virtual workers each worker has."""
        return tuple(np.bincount(self._owners, minlength=self.bins).tolist())

    @property
    def moved(self) -> int:
        """How many virtual workers have been given to another worker."""
        return self._moved

    def choose(self, hashes: Hashes) -> Owners:
        """The worker of each record."""
        return self._owners.take(self._inner.choose(hashes)).astype(np.int32)

    def observe(self, reducer: int, signal: Signal) -> None:
        """Hear a worker's signal: each counts once, however many acknowledgements bring it."""
        if not self._heard.is_news(reducer, signal.slot):
            return
        self._utilisations[reducer], self._records[reducer] = signal.utilisation, signal.records
        if self._proportional:
            self._level()
            return
        paired = self._queues.pair(reducer, signal.wish, lambda worker: len(self._of_worker[worker]) > 1)
        if paired is not None:
            giver, taker = paired
            self._give(self._of_worker[giver].pop(), taker)
            self._tell()

    def _give(self, virtual_worker: int, taker: int) -> None:
        """The one gained last goes first, so what has been where it is for long stays there."""
        self._of_worker[taker].append(virtual_worker)
        self._owners[virtual_worker] = taker
        self._moved += 1

    def _tell(self) -> None:
        if isinstance(self._inner, PooledChoicesGrouping):
            self._inner.regroup(self._owners)

    def _level(self) -> None:
        """Once every worker has been heard of a new slot: give each its target, if any is further from it than a little
        and than chance explains.

        What a worker could do in a slot is what came by how far that used it. All sources see the same numbers, so
        they come to the same targets, whatever each has made of earlier ones.
        """
        if not self._heard.is_complete():
            return
        busy = self._records > 0
        if not busy.any() or not self._utilisations.any():
            return
        used = np.maximum(self._utilisations / self._utilisations.max(), _LEAST_UTILISATION)
        could_do = np.divide(self._records, used, out=np.zeros(self.bins), where=busy)
        could_do[~busy] = could_do[busy].mean()
        wanted = apportion(could_do, len(self._owners))
        have = np.bincount(self._owners, minlength=self.bins)
        chance = 1 / np.sqrt(np.maximum(self._records, 1))
        if np.any(np.abs(wanted - have) > 1 + have * (_BAND + chance)):
            self._moved += len(reassign(self._owners, wanted))
            self._tell()
