"""Consistent hashing with bounded loads (CH): clockwise from the key's point to the first bin that has room.

Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads"; CG paper, III-C. A bin has room while its
load is below (1 + epsilon) times the average. What a hot key overflows into is always its neighbour.
"""

from __future__ import annotations

import numpy as np

from dpa.routing.groupings._loops import ARC_BITS, clockwise_with_room
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.ring import TokenRing
from dpa.routing.table import Owners


class BoundedLoadGrouping(Grouping):
    """CH onto any number of bins, each at so many `tokens` of the circle.

    Loads are whole numbers, so a bin that is full stays full until the capacity passes the next whole number: until
    then a walk may skip the tokens that an earlier one found full, which gives the very same choices.
    """

    def __init__(self, bins: int, epsilon: float = 0.01, tokens: int = 1) -> None:
        super().__init__(bins)
        ring = TokenRing(bins, tokens).snapshot(0)
        self._epsilon = min(epsilon, float(bins))  # from there on, none is ever full; a capacity stays a number
        self._positions, self._owners = ring.positions, ring.places.astype(np.int64)
        arcs = np.arange(2**ARC_BITS, dtype=np.uint64) << np.uint64(32 - ARC_BITS)
        self._first_token = np.searchsorted(self._positions, arcs, side="right").astype(np.int64)
        self._loads = np.zeros(bins, dtype=np.int64)
        self._sent = np.zeros(1, dtype=np.int64)
        self._skips = np.full((len(self._positions), 2), -1, dtype=np.int64)

    def choose(self, hashes: Hashes) -> Owners:
        """The bin of each record."""
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
