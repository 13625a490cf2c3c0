"""The less loaded of two choices: PKG, and W-Choices, in which the few hot keys have more than two.

Nasir et al., "The Power of Both Choices" (PKG), and "When Two Choices Are Not Enough: Balancing at Scale in Distributed
Stream Processing" (W-Choices); CG paper, III-A and III-D. A sender counts only what it has sent itself."""

import math

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._loops import HEAD, both_choices, head_or_tail, less_loaded_of_two, rank_all
from dpa.routing.groupings._space_saving import SpaceSaving
from dpa.routing.groupings.base import Grouping, chosen_by
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

_COUNTERS = 4 * HEAD  # counters for each reducer: enough to find hot keys with a quarter of their least share as error

_MIN_COUNTERS = 256


class PartialKeyGrouping(Grouping):
    """PKG: two hashes of the key, the one that this sender has sent less; a tie goes to the first. Balanced as long as
    the hottest key is under 2/n of the records, since it has two reducers and no more."""

    def __init__(self, reducers: int) -> None:
        super().__init__(reducers)
        self._loads = np.zeros(reducers, dtype=np.int64)

    def choose(self, hashes: Hashes) -> Owners:
        return chosen_by(less_loaded_of_two, hashes, self._loads)

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        both = np.empty((2, len(hashes)), dtype=np.int32)
        both_choices(hashes, self.reducers, both)
        found: npt.NDArray[np.bool_] = (both == reducer).any(axis=0)
        return found


class WChoicesGrouping(Grouping):
    """W-Choices (IV-B): a hot key goes to the least loaded of all reducers, another to the less loaded of two slots. On
    equal reducers the grouping to beat: the balance of shuffle grouping, and only hot keys are everywhere.

    Loads are counted in units of the reducer's own work: a record adds 1 / capacity. The least loaded reducer is the
    one of the least (load + 1) / capacity. When a capacity changes, records flow by the new one from then on."""

    def __init__(self, reducers: int, slots: int | None = None) -> None:
        """A key has two of `slots` equal slots, which `_slot_owners` gives to reducers; by default one each."""
        super().__init__(reducers)
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
        limits = self._slack, self._reach
        ranked = self._sent, self._loads, self._work, self._tree, self._ranks
        return chosen_by(head_or_tail, hashes, *limits, *ranked, self._slot_owners, self._sketch)
