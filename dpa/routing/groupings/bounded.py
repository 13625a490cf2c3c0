"""Groupings that bound loads: none goes above (1 + epsilon) times the average, and what is full is passed over, along a
random sequence of the key (PoRC)."""

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._loops import MEMO, first_reducer_with_room, first_with_room
from dpa.routing.groupings.base import Grouping, chosen_by
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

LEVEL = 1_000
"""Records that each reducer is taken to have when pooled choices begin to count anew, on average. With none, chance
would make many copies each time; the more there are, the longer it takes until a reducer that got too much is full."""


class RandomChoicesGrouping(Grouping):
    """PoRC: each key has a random sequence of reducers, and each record goes to the first with room (CG paper, V-A,
    algorithm 1). Salts added to the key make one hash function a sequence; it begins with the principal reducer.

    A hot key finds most reducers of its sequence full. Loads are whole numbers, so a full reducer stays full until the
    capacity passes the next whole number. Until then the probing of a key continues where it stopped, which gives the
    very same choices at a few probes a record instead of thousands."""

    def __init__(self, reducers: int, epsilon: float = 0.01) -> None:
        super().__init__(reducers)
        self._epsilon = min(epsilon, float(reducers))  # from there on, none is ever full; a capacity stays a number
        self._loads = np.zeros(reducers, dtype=np.int64)
        self._counters = np.zeros(3, dtype=np.int64)
        self._memo = np.full((MEMO, 3), -1, dtype=np.int64)

    def choose(self, hashes: Hashes) -> Owners:
        return chosen_by(first_with_room, hashes, self._epsilon, self._loads, self._counters, self._memo)


class PooledChoicesGrouping(Grouping):
    """PoRC onto the virtual workers of a `ConsistentGrouping`, which share their room with the others of the same
    reducer (ours).

    PoRC sends a key that finds its virtual worker full to another one at random, mostly of another reducer: keys get
    copies though their own reducer has room. Here a virtual worker is full only when its reducer has as much as all its
    virtual workers may have together. Copies then are about as few as those of PoRC onto reducers."""

    def __init__(self, virtual_workers: int, epsilon: float = 0.01) -> None:
        super().__init__(virtual_workers)
        self._epsilon = min(epsilon, float(virtual_workers))
        self._sent = np.zeros(1, dtype=np.int64)
        self.regroup(np.arange(virtual_workers))  # at first each is its own reducer

    def regroup(self, owners: npt.NDArray[np.int64]) -> None:
        """Assign each virtual worker to a reducer, shape (virtual workers,)."""
        self._owners = owners.astype(np.int64)  # a copy: the caller changes it in place
        self._counts = np.bincount(self._owners)
        self._firsts = np.full(len(self._counts), -1)
        self._firsts[self._owners[::-1]] = np.arange(self.reducers)[::-1]
        # Counting begins anew, with all reducers equally loaded. Else a reducer that is given more would get all the
        # room that it has ever left, at once.
        each = -(-LEVEL * np.count_nonzero(self._counts) // self.reducers) if self._sent[0] else 0
        self._loads = each * self._counts
        self._sent[0] = each * self.reducers

    def choose(self, hashes: Hashes) -> Owners:
        of_reducers = self._counts, self._firsts, self._loads
        return chosen_by(first_reducer_with_room, hashes, self._epsilon, self._owners, *of_reducers, self._sent)
