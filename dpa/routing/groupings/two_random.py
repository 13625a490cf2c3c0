"""Power of two choices (PoTC): each record has two random reducers, and goes to the less loaded one (CG paper, III-D).

Near perfect balance, and in the end every frequent key is everywhere.
"""

from __future__ import annotations

import numpy as np

from dpa.routing.groupings._loops import less_loaded_of_drawn
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners


class TwoRandomGrouping(Grouping):
    """Two reducers drawn by the record's number and the sender's, the only source of randomness."""

    def __init__(self, reducers: int, source: int = 0) -> None:
        super().__init__(reducers)
        self._source = source
        self._sent = 0
        self._loads = np.zeros(reducers, dtype=np.int64)

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        owners = np.empty(len(hashes), dtype=np.int32)
        less_loaded_of_drawn(self._sent, self._source, self._loads, owners)
        self._sent += len(hashes)
        return owners
