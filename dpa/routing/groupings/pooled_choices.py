"""Power of random choices onto virtual workers that share their room with the others of the same reducer (ours).

PoRC sends a key that finds its virtual worker full to another one at random, which mostly is another reducer's: so keys
have copies though their own reducer has room. Here a virtual worker is full only when its reducer is: when that has as
much as all its virtual workers may have together. Copies then are about as few as those of PoRC onto reducers.

Loads are counted since a virtual worker last changed its reducer; at that moment all reducers are taken to be equally
loaded. Else all the room that a reducer has ever left would be filled at once when it is given more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._loops import first_reducer_with_room
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

LEVEL = 1_000
"""Records that each reducer is taken to have when counting begins anew, on average. With none, chance would make many
copies each time; the more there are, the longer it takes until a reducer that got too much is full."""


class PooledChoicesGrouping(Grouping):
    """Onto the virtual workers of a `ConsistentGrouping`, which assigns them to reducers; at first each is its own."""

    def __init__(self, virtual_workers: int, epsilon: float = 0.01) -> None:
        super().__init__(virtual_workers)
        self._epsilon = min(epsilon, float(virtual_workers))
        self._sent = np.zeros(1, dtype=np.int64)
        self.regroup(np.arange(virtual_workers))

    def regroup(self, owners: npt.NDArray[np.int64]) -> None:
        """Assign each virtual worker to a reducer, shape (virtual workers,)."""
        self._owners = owners.astype(np.int64)  # a copy: the caller changes it in place
        self._counts = np.bincount(self._owners)
        self._firsts = np.full(len(self._counts), -1)
        self._firsts[self._owners[::-1]] = np.arange(self.reducers)[::-1]
        each = -(-LEVEL * np.count_nonzero(self._counts) // self.reducers) if self._sent[0] else 0
        self._loads = each * self._counts
        self._sent[0] = each * self.reducers

    def choose(self, hashes: Hashes) -> Owners:
        """The virtual worker of each record."""
        chosen = np.empty(len(hashes), dtype=np.int32)
        first_reducer_with_room(
            hashes,
            self._epsilon,
            self._owners,
            self._counts,
            self._firsts,
            self._loads,
            self._sent,
            chosen,
        )
        return chosen
