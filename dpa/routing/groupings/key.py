"""Key grouping (KG): the hash of the key determines the reducer, as in any hash partitioning."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings.base import Grouping
from dpa.routing.hashing import Hashes
from dpa.routing.table import Owners


class KeyGrouping(Grouping):
    """hash(key) mod n."""

    splits_keys: ClassVar[bool] = False

    def owners_of(self, hashes: Hashes) -> Owners:
        """The reducer of each key."""
        return (hashes % np.uint32(self.reducers)).astype(np.int32)

    def choose(self, hashes: Hashes) -> Owners:
        """The reducer of each record."""
        return self.owners_of(hashes)

    def may_process(self, reducer: int, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether each key belongs to the reducer."""
        found: npt.NDArray[np.bool_] = self.owners_of(hashes) == reducer
        return found
