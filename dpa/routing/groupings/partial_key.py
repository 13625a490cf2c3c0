"""Partial key grouping (PKG): each key has two reducers, and each record goes to the less loaded one.

Nasir et al., "The Power of Both Choices"; CG paper, III-A. Balanced as long as the hottest key is under 2/n of the
records, since it has two reducers and no more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._loops import both_choices, less_loaded_of_two
from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners


class PartialKeyGrouping(Grouping):
    """Two hashes of the key, the one that this sender has sent less; a tie goes to the first."""

    def __init__(self, reducers: int) -> None:
        super().__init__(reducers)
        self._loads = np.zeros(reducers, dtype=np.int64)

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        owners = np.empty(len(hashes), dtype=np.int32)
        less_loaded_of_two(hashes, self._loads, owners)
        return owners

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether the reducer is one of the two of each key."""
        both = np.empty((2, len(hashes)), dtype=np.int32)
        both_choices(hashes, self.reducers, both)
        found: npt.NDArray[np.bool_] = (both == reducer).any(axis=0)
        return found
