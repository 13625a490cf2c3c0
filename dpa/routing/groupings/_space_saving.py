"""The most frequent keys, in bounded memory: SpaceSaving (Metwally, Agrawal and El Abbadi), on key hashes.

`_loops.count` counts a key at a time, because a grouping must know the hot keys at every single record.
"""

# A module of its own that keeps its name: numba's cache names the type by it, and an index that names a module which is
# not there any more fails every job until somebody removes it.

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class SpaceSaving(NamedTuple):
    """A bounded number of counters.

    Attributes:
        counters: for each counter its key, its count, and the part of the count that may belong to other keys;
            shape (most, 3).
        table: the counter of each key, or -1: a hash table with linear probing, a power of two of entries.
        least: counters that had the least count when all were looked at last; shape (most,).
        state: the number of counters in use; the start and the stop of those in `least` that have not been taken; and
            that least count.
    """

    counters: npt.NDArray[np.int64]
    table: npt.NDArray[np.int32]
    least: npt.NDArray[np.int32]
    state: npt.NDArray[np.int64]

    @staticmethod
    def empty(most: int) -> SpaceSaving:
        """No key yet; a count is at most the number of records by `most` too high."""
        entries = 2 ** int(np.ceil(np.log2(4 * most)))
        return SpaceSaving(
            np.zeros((most, 3), dtype=np.int64),
            np.full(entries, -1, dtype=np.int32),
            np.zeros(most, dtype=np.int32),
            np.zeros(4, dtype=np.int64),
        )
