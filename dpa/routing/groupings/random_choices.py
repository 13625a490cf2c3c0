"""Power of random choices (PoRC): each key has a random sequence of reducers, and each record goes to the first with
room (CG paper, section V-A, algorithm 1).

A reducer has room while its load is below (1 + epsilon) times the average. The sequence is made of one hash function by
adding a salt to the key, and begins with the key's principal reducer.
"""

from __future__ import annotations

import numpy as np

from dpa.routing.groupings._loops import MEMO, first_with_room
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners


class RandomChoicesGrouping(Grouping):
    """PoRC onto any number of reducers, or of virtual workers of consistent grouping.

    A hot key finds most reducers of its sequence full. Loads are whole numbers, so a reducer that is full stays full
    until the capacity passes the next whole number: until then the probing of a key may go on where it stopped, which
    gives the very same choices at a few probes a record instead of thousands.
    """

    def __init__(self, reducers: int, epsilon: float = 0.01) -> None:
        super().__init__(reducers)
        self._epsilon = min(epsilon, float(reducers))  # from there on, none is ever full; a capacity stays a number
        self._loads = np.zeros(reducers, dtype=np.int64)
        self._counters = np.zeros(3, dtype=np.int64)
        self._memo = np.full((MEMO, 3), -1, dtype=np.int64)

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        owners = np.empty(len(hashes), dtype=np.int32)
        first_with_room(hashes, self._epsilon, self._loads, self._counters, self._memo, owners)
        return owners
