"""Power of random choices onto virtual workers that share their room with the others of the same worker (ours).

PoRC sends a key that finds its virtual worker full to another one at random, which is mostly another worker's: so keys
have copies though their own worker has room. Here a virtual worker is full only when its worker is: when that has as
much as all its virtual workers may have together. Copies then are about as few as those of PoRC onto workers.

Loads are counted since a virtual worker last changed its worker; by then, all workers are taken to be level. Else all
the room that a worker has ever left would be filled at once when it is given more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._loops import first_worker_with_room
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

LEVEL = 1_000
"""Records that each worker is taken to have when counting begins anew, on average. With none, chance would make many
copies each time; the more there are, the longer a worker that got too much is not yet full."""


class PooledChoicesGrouping(Grouping):
    """Onto the virtual workers of a `ConsistentGrouping`, which says whose each is; at first each is its own worker."""

    def __init__(self, bins: int, epsilon: float = 0.01) -> None:
        super().__init__(bins)
        self._epsilon = min(epsilon, float(bins))
        self._sent = np.zeros(1, dtype=np.int64)
        self.regroup(np.arange(bins))

    def regroup(self, workers: npt.NDArray[np.int64]) -> None:
        """Whose each virtual worker is from now on, shape (bins,)."""
        self._workers = workers.astype(np.int64)  # a copy: its owner changes it in place
        self._counts = np.bincount(self._workers)
        self._firsts = np.full(len(self._counts), -1)
        self._firsts[self._workers[::-1]] = np.arange(self.bins)[::-1]
        each = -(-LEVEL * np.count_nonzero(self._counts) // self.bins) if self._sent[0] else 0
        self._loads = each * self._counts
        self._sent[0] = each * self.bins

    def choose(self, hashes: Hashes) -> Owners:
        """The virtual worker of each record."""
        chosen = np.empty(len(hashes), dtype=np.int32)
        first_worker_with_room(
            hashes,
            self._epsilon,
            self._workers,
            self._counts,
            self._firsts,
            self._loads,
            self._sent,
            chosen,
        )
        return chosen
