"""Where states are that memory has no room for: on local disk, to be read again by the hashes of their keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpa.execution.states import StatePart
from dpa.routing.hashing import ALL_HASHES, Hashes, Interval
from dpa.routing.table import Owners

BINS = 4096
"""Equal stretches of the hash circle, by which it is known how much lies where."""

BIN_BITS = 20
"""The hashes of a stretch differ in the last bits alone, this number of them."""


class Shelf(ABC):
    """States of keys.

    Attributes:
        keys: about how many it has.
        bytes: that they take on disk.
        written: bytes that were ever put.
    """

    keys = bytes = written = 0

    @abstractmethod
    def put(self, part: StatePart) -> None:
        """Take in states; those of keys that it has already are to be merged with them."""

    @abstractmethod
    def read(self, interval: Interval = ALL_HASHES) -> Iterator[StatePart]:
        """The states of all keys with these hashes, the oldest first where a key has several."""

    @abstractmethod
    def drop(self, interval: Interval) -> None:
        """Forget the states of all keys with these hashes."""

    @abstractmethod
    def recall(self, hashes: Hashes) -> StatePart | None:
        """Give back the states of keys with one of these hashes, which cannot be merged with others; None without
        any."""

    @abstractmethod
    def close(self) -> None:
        """Forget all."""

    def cuts(self, size: int, within: Interval = ALL_HASHES) -> list[Interval]:
        """Intervals that together are `within`, each with at most about `size` bytes."""
        bins = np.cumsum(self._sizes()) // max(1, size)
        starts = ((np.flatnonzero(np.diff(bins)) + 1).astype(np.int64) << BIN_BITS).tolist()
        first, last = within
        starts = [first, *(start for start in starts if first < start <= last)]
        return list(zip(starts, [*(start - 1 for start in starts[1:]), last], strict=True))

    @abstractmethod
    def _sizes(self) -> npt.NDArray[np.float64]:
        """About how many bytes lie in each stretch, shape (BINS,)."""


def bins_of(hashes: Hashes) -> npt.NDArray[np.uint32]:
    found: npt.NDArray[np.uint32] = hashes >> np.uint32(BIN_BITS)
    return found


@dataclass(frozen=True)
class Everything:
    """The owner of all keys is 0."""

    seed: int

    def owners_of(self, hashes: Hashes) -> Owners:
        return np.zeros(len(hashes), dtype=np.int32)
