"""What D-Choices and W-Choices share: few hot keys may go to many reducers, all other keys to one of two.

Nasir et al., "When Two Choices Are Not Enough: Balancing at Scale in Distributed Stream Processing". Loads are counted
in units of the reducer's own work, a record adding 1 / capacity to it. So the least loaded reducer is the one of the
least (load + 1) / capacity, and when a capacity changes, records flow by the new one from then on.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._loops import HEAD, head_or_tail, rank_all
from dpa.routing.groupings._space_saving import SpaceSaving
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

_COUNTERS = 4 * HEAD
"""Counters for each reducer: enough to find hot keys with a quarter of their least share as error."""

_MIN_COUNTERS = 256


class HeadTailGrouping(Grouping):
    """A hot key goes to the least loaded of `_choices` reducers, which may be all; another key to the less loaded of
    two slots."""

    def __init__(self, reducers: int, slots: int | None = None) -> None:
        """A key has two of `slots` equal slots, which `_slot_owners` gives to reducers; without `slots` each reducer is
        one."""
        super().__init__(reducers)
        self._choices = reducers
        self._slack = 0.0
        self._reach = np.zeros(reducers)
        self._sent = np.zeros(2, dtype=np.int64)  # in all, and until capacities last changed
        self._loads = np.zeros(reducers)
        self._slot_owners: npt.NDArray[np.int64] = np.arange(slots or reducers) * reducers // (slots or reducers)
        leaves = 2 ** math.ceil(math.log2(max(reducers, 2)))
        self._tree, self._ranks = np.zeros(2 * leaves, dtype=np.int64), np.zeros(2 * leaves)
        self._rely_on(np.ones(reducers))
        self._sketch = SpaceSaving.empty(max(_MIN_COUNTERS, _COUNTERS * reducers))

    def _rely_on(self, capacities: npt.NDArray[np.float64]) -> None:
        """Weigh loads by these capacities from now on; shape (reducers,)."""
        self._work = 1 / capacities
        self._sent[1] = self._sent[0]
        rank_all(self._tree, self._ranks, self._loads, self._work)

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        owners = np.empty(len(hashes), dtype=np.int32)
        head_or_tail(
            hashes,
            self._choices,
            self._slack,
            self._reach,
            self._sent,
            self._loads,
            self._work,
            self._tree,
            self._ranks,
            self._slot_owners,
            self._sketch,
            owners,
        )
        return owners
