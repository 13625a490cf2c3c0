"""D-Choices: a hot key goes to the least loaded of d reducers, d being the least that suffices.

"When Two Choices Are Not Enough", IV-A. With d hash functions, the h hottest keys reach on average
b = n - n ((n - 1) / n) ** (h d) of n reducers. These must bear the h keys, and of all others the part whose choices lie
within them; d suffices if that is at most b (1 / n + tolerance) of the records for every h.
"""

from __future__ import annotations

import math

import numpy as np

from dpa.routing.groupings._head_tail import HeadTailGrouping
from dpa.routing.groupings._loops import HEAD
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

_TOLERANCE = 1e-4
"""epsilon of the paper's inequality."""

_FIRST, _GROWTH = 1_000, 1.2
"""d is found anew after `_FIRST` records, and again whenever their number has grown by the factor `_GROWTH`."""


class DChoicesGrouping(HeadTailGrouping):
    """W-Choices with fewer copies of hot keys, and as long as d is below n with less balance."""

    def __init__(self, reducers: int) -> None:
        super().__init__(reducers)
        self._choices = min(2, reducers)
        self._find_at = _FIRST

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record. Blocks are cut where d is found anew, so d does not depend on them."""
        parts = []
        while self._sent[0] + len(hashes) >= self._find_at:
            cut = self._find_at - int(self._sent[0])
            parts.append(super().choose(hashes[:cut]))
            hashes = hashes[cut:]
            self._choices = sufficient_choices(self._hot_shares(), self.reducers)
            self._find_at = math.ceil(self._find_at * _GROWTH)
        return np.concatenate([*parts, super().choose(hashes)])

    def _hot_shares(self) -> list[float]:
        """The shares of the hot keys, most first."""
        certain = self._sketch.counters[:, 1] - self._sketch.counters[:, 2]
        shares = certain / self._sent[0]
        return sorted(shares[shares > 1 / (HEAD * self.reducers)].tolist(), reverse=True)


def sufficient_choices(shares: list[float], reducers: int) -> int:
    """The least d that suffices for hot keys of these shares (descending), at least 2 and at most `reducers`."""
    if not shares:
        return min(2, reducers)
    hot = sum(shares)
    for choices in range(max(2, math.ceil(shares[0] * reducers)), reducers):
        held = 0.0
        for keys, share in enumerate(shares, start=1):
            held += share
            reached = reducers - reducers * ((reducers - 1) / reducers) ** (keys * choices)
            inside = reached / reducers
            load = held + inside**choices * (hot - held) + inside**2 * (1 - hot)
            if load > reached * (1 / reducers + _TOLERANCE):
                break
        else:
            return choices
    return reducers
