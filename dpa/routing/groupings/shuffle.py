"""Shuffle grouping (SG): round robin, whatever the key."""

from __future__ import annotations

import numpy as np

from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners


class ShuffleGrouping(Grouping):
    """Each record to the next reducer; senders start at different ones."""

    def __init__(self, reducers: int, source: int = 0) -> None:
        super().__init__(reducers)
        self._next = source % reducers

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        owners = (np.arange(self._next, self._next + len(hashes)) % self.reducers).astype(np.int32)
        self._next = (self._next + len(hashes)) % self.reducers
        return owners
