"""Power of random choices onto virtual workers that share their room with the others of the same worker (ours).

PoRC sends a key that finds its virtual worker full to another one at random, which is mostly another worker's: so keys
have copies though their own worker has room. Here a virtual worker is full only when its worker is: when that has more
than (1 + epsilon) times its share of the records, its share being that of the virtual workers that it has. Copies then
are as few as those of PoRC onto workers.

Loads are those of about the last thousand records a worker. Loads since the beginning would do for shares that never
change; where they do, all the room that a worker has ever left would be filled at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._loops import first_worker_with_room
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

RECORDS_A_WORKER = 1_000
"""A record that is so many records a worker ago weighs 1 / e of a new one."""


class PooledChoicesGrouping(Grouping):
    """Onto the virtual workers of a `ConsistentGrouping`, which says whose each is; at first each is its own worker."""

    def __init__(self, bins: int, epsilon: float = 0.01) -> None:
        super().__init__(bins)
        self._epsilon = min(epsilon, float(bins))
        self._workers = self._firsts = np.arange(bins)
        self._loads: npt.NDArray[np.float64] = np.zeros(bins)
        self._shares: npt.NDArray[np.float64] = np.zeros(bins)
        self._weights = np.array([1.0, 0.0])
        self.regroup(self._workers)

    def regroup(self, workers: npt.NDArray[np.int64]) -> None:
        """Whose each virtual worker is from now on, shape (bins,); each takes its part of its worker's load along."""
        taken = (self._loads / np.maximum(np.bincount(self._workers), 1))[self._workers]
        self._workers = workers.astype(np.int64)  # a copy: its owner changes it in place
        self._loads = np.bincount(self._workers, weights=taken).astype(np.float64)
        counts = np.bincount(self._workers)
        self._shares = counts / self.bins
        self._firsts = np.full(len(counts), -1)
        self._firsts[self._workers[::-1]] = np.arange(self.bins)[::-1]
        self._growth = 1 + 1 / (RECORDS_A_WORKER * np.count_nonzero(counts))

    def choose(self, hashes: Hashes) -> Owners:
        """The virtual worker of each record."""
        chosen = np.empty(len(hashes), dtype=np.int32)
        room = (self._workers, (1 + self._epsilon) * self._shares, self._firsts)
        first_worker_with_room(hashes, room, self._growth, self._weights, self._loads, chosen)
        return chosen
