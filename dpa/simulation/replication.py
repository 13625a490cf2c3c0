"""How often keys are held: the memory cost of a grouping (CG paper, section IV)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.compiled import compiled


class Replication:
    """Which worker has seen which key, a bit each."""

    def __init__(self, keys: int, workers: int) -> None:
        """Of keys and workers with numbers below these."""
        self._seen = np.zeros((keys, (workers + 63) // 64), dtype=np.uint64)
        self.states = 0
        self.keys = 0

    def note(self, keys: npt.NDArray[np.int32], owners: npt.NDArray[np.int32]) -> None:
        """Records of these keys have gone to these workers."""
        states, fresh = _note(keys, owners, self._seen)
        self.states += states
        self.keys += fresh

    @property
    def memory(self) -> float:
        """Distinct keys of all workers, added up, by distinct keys: 1 if every key is at one worker."""
        return self.states / self.keys if self.keys else 1.0


@compiled
def _note(keys, owners, seen):  # type: ignore[no-untyped-def]
    """Set the bits; how many were not set, and how many keys had none set."""
    states = fresh = 0
    for row in range(len(keys)):
        key, worker = keys[row], owners[row]
        word, bit = worker >> 6, np.uint64(1) << np.uint64(worker & 63)
        if not seen[key, word] & bit:
            states += 1
            fresh += not seen[key].any()
            seen[key, word] |= bit
    return states, fresh
