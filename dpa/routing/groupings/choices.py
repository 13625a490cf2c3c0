"""The less loaded of two choices: PoTC and PKG, and D- and W-Choices, in which the few hot keys have more than two.

Nasir et al., "The Power of Both Choices" (PKG), and "When Two Choices Are Not Enough: Balancing at Scale in Distributed
Stream Processing" (D- and W-Choices); CG paper, III-A and III-D. A sender counts only what it has sent itself.
"""

import math

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._loops import (
    HEAD,
    both_choices,
    head_or_tail,
    less_loaded_of_drawn,
    less_loaded_of_two,
    rank_all,
)
from dpa.routing.groupings._space_saving import SpaceSaving
from dpa.routing.groupings.base import Grouping, chosen_by
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners

_COUNTERS = 4 * HEAD
"""Counters for each reducer: enough to find hot keys with a quarter of their least share as error."""

_MIN_COUNTERS = 256

_TOLERANCE = 1e-4
"""epsilon of the inequality in "When Two Choices Are Not Enough", IV-A."""

_FIRST, _GROWTH = 1_000, 1.2
"""d is found anew after `_FIRST` records, and again whenever their number has grown by the factor `_GROWTH`."""


class TwoRandomGrouping(Grouping):
    """PoTC: each record has two random reducers, drawn by its number and the sender's. Near perfect balance, and in the
    end every frequent key is everywhere."""

    def __init__(self, reducers: int, source: int = 0) -> None:
        super().__init__(reducers)
        self._source = source
        self._sent = 0
        self._loads = np.zeros(reducers, dtype=np.int64)

    def choose(self, hashes: Hashes) -> Owners:
        owners = chosen_by(less_loaded_of_drawn, hashes, self._sent, self._source, self._loads)
        self._sent += len(hashes)
        return owners


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


class HeadTailGrouping(Grouping):
    """A hot key goes to the least loaded of `_choices` reducers, which may be all; another key to the less loaded of
    two slots.

    Loads are counted in units of the reducer's own work: a record adds 1 / capacity. The least loaded reducer is the
    one of the least (load + 1) / capacity. When a capacity changes, records flow by the new one from then on.
    """

    def __init__(self, reducers: int, slots: int | None = None) -> None:
        """A key has two of `slots` equal slots, which `_slot_owners` gives to reducers; by default one each."""
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
        limits = self._choices, self._slack, self._reach
        ranked = self._sent, self._loads, self._work, self._tree, self._ranks
        return chosen_by(head_or_tail, hashes, *limits, *ranked, self._slot_owners, self._sketch)


class WChoicesGrouping(HeadTailGrouping):
    """W-Choices (IV-B): a hot key may go to every reducer. On equal reducers the grouping to beat: the balance of
    shuffle grouping, and only hot keys are everywhere."""


class DChoicesGrouping(HeadTailGrouping):
    """D-Choices (IV-A): a hot key goes to the least loaded of d reducers, d being the least that suffices. Fewer copies
    of hot keys than W-Choices and, as long as d is below n, less balance."""

    def __init__(self, reducers: int) -> None:
        super().__init__(reducers)
        self._choices = min(2, reducers)
        self._find_at = _FIRST

    def choose(self, hashes: Hashes) -> Owners:
        parts = []
        # Blocks are cut where d is found anew, so d depends on the number of records and not on how they come.
        while self._sent[0] + len(hashes) >= self._find_at:
            cut = self._find_at - int(self._sent[0])
            parts.append(super().choose(hashes[:cut]))
            hashes = hashes[cut:]
            self._choices = sufficient_choices(self._hot_shares(), self.reducers)
            self._find_at = math.ceil(self._find_at * _GROWTH)
        return np.concatenate([*parts, super().choose(hashes)])

    def _hot_shares(self) -> list[float]:
        certain = self._sketch.counters[:, 1] - self._sketch.counters[:, 2]
        shares = certain / self._sent[0]
        return sorted(shares[shares > 1 / (HEAD * self.reducers)].tolist(), reverse=True)


def sufficient_choices(shares: list[float], reducers: int) -> int:
    """The least d that suffices for hot keys of these shares (descending), at least 2 and at most `reducers`.

    With d hash functions, the h hottest keys reach on average b = n - n ((n - 1) / n) ** (h d) of n reducers. These
    must bear the h keys, and of all others the part whose choices lie within them; d suffices if that is at most
    b (1 / n + epsilon) of the records for every h (IV-A).
    """
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
