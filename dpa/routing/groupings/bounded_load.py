"""Consistent hashing with bounded loads (CH): clockwise from the key's point to the first reducer with room.

Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads"; CG paper, III-C. A reducer has room
while its load is below (1 + epsilon) times the average. A hot key always overflows into the next reducer on the circle.
"""

from __future__ import annotations

import numpy as np

from dpa.routing.groupings._loops import ARC_BITS, clockwise_with_room
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.ring import TokenRing
from dpa.routing.table import Owners


class BoundedLoadGrouping(Grouping):
    """CH onto any number of reducers, each with this number of `tokens` on the circle.

    Loads are whole numbers, so a reducer that is full stays full until the capacity passes the next whole number: until
    then a walk may skip the tokens that an earlier one found full, which gives the very same choices.
    """

    def __init__(self, reducers: int, epsilon: float = 0.01, tokens: int = 1) -> None:
        super().__init__(reducers)
        ring = TokenRing(reducers, tokens).snapshot(0)
        self._epsilon = min(epsilon, float(reducers))  # from there on, none is ever full; a capacity stays a number
        self._positions, self._owners = ring.positions, ring.sole_owners.astype(np.int64)
        arcs = np.arange(2**ARC_BITS, dtype=np.uint64) << np.uint64(32 - ARC_BITS)
        self._first_token = np.searchsorted(self._positions, arcs, side="right").astype(np.int64)
        self._loads = np.zeros(reducers, dtype=np.int64)
        self._sent = np.zeros(1, dtype=np.int64)
        self._skips = np.full((len(self._positions), 2), -1, dtype=np.int64)

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        chosen = np.empty(len(hashes), dtype=np.int32)
        clockwise_with_room(
            hashes,
            self._epsilon,
            self._positions,
            self._owners,
            self._first_token,
            self._loads,
            self._sent,
            self._skips,
            chosen,
        )
        return chosen
