"""How often a result's keys came: the most frequent by name, the others as a histogram of counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.routing.keys import Key, to_python

_NAMED = 20
_RANKS = 64


@dataclass(frozen=True, eq=False)
class KeyStats:
    """Exact counts of disjoint sets of keys, in little memory.

    Attributes:
        top: the most frequent keys and their mapped records, most first.
        counts: the different numbers of records that keys have, ascending; shape (distinct counts,).
        keys: how many keys have each; shape (distinct counts,).
    """

    top: tuple[tuple[Key, int], ...]
    counts: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]

    @staticmethod
    def of(keys: pa.Array | pa.ChunkedArray, mapped: npt.NDArray[np.int64]) -> KeyStats:
        """Each key comes once; both have shape (keys,)."""
        most = np.argsort(-mapped, kind="stable")[:_NAMED]
        names = to_python(keys.take(pa.array(most)))
        counts, number = np.unique(mapped, return_counts=True)
        return KeyStats(tuple(zip(names, mapped[most].tolist(), strict=True)), counts, number)

    @staticmethod
    def union(parts: Iterable[KeyStats]) -> KeyStats:
        """No key is in two parts."""
        parts = list(parts)
        top = sorted((named for part in parts for named in part.top), key=lambda named: -named[1])
        counts, place = np.unique(np.concatenate([part.counts for part in parts]), return_inverse=True)
        keys = np.bincount(place, np.concatenate([part.keys for part in parts]), len(counts)).astype(np.int64)
        return KeyStats(tuple(top[:_NAMED]), counts, keys)

    @property
    def distinct(self) -> int:
        return int(self.keys.sum())

    @property
    def mapped(self) -> int:
        return int((self.counts * self.keys).sum())

    def cumulative(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Some ranks from 1 to `distinct`, evenly spaced in their logarithm, and the share of all mapped records that
        the keys up to each rank hold."""
        if self.distinct == 0:
            return (), ()
        ranks = np.unique(np.geomspace(1, self.distinct, min(_RANKS, self.distinct)).round().astype(np.int64))
        keys, counts = np.cumsum(self.keys[::-1]), self.counts[::-1]
        records = np.cumsum(self.keys[::-1] * counts)
        run = np.searchsorted(keys, ranks)
        held = records[run] - (keys[run] - ranks) * counts[run]
        return tuple(ranks.tolist()), tuple((held / self.mapped).tolist())
