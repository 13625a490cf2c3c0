"""The number of reducers that hold each key: the memory cost of a grouping (CG paper, section IV)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.compiled import compiled


class Replication:
    """Which reducer has seen which key, a bit each."""

    def __init__(self, keys: int, reducers: int) -> None:
        """Of keys and reducers with numbers below these."""
        self._seen = np.zeros((keys, (reducers + 63) // 64), dtype=np.uint64)
        self.states = 0
        self.keys = 0

    def note(self, keys: npt.NDArray[np.int32], owners: npt.NDArray[np.int32]) -> None:
        """Count records of these keys that went to these reducers."""
        states, fresh = _note(keys, owners, self._seen)
        self.states += states
        self.keys += fresh

    @property
    def memory(self) -> float:
        """Distinct keys of all reducers, added up, by distinct keys: 1 if every key is at one reducer."""
        return self.states / self.keys if self.keys else 1.0


@compiled
def _note(keys, owners, seen):  # type: ignore[no-untyped-def]
    """Set the bits. Returns the number of bits that were not set, and of keys that had none set."""
    states = fresh = 0
    for row in range(len(keys)):
        key, reducer = keys[row], owners[row]
        word, bit = reducer >> 6, np.uint64(1) << np.uint64(reducer & 63)
        if not seen[key, word] & bit:
            states += 1
            fresh += not seen[key].any()
            seen[key, word] |= bit
    return states, fresh
