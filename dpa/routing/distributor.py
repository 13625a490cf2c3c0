"""Distributing the records of a split key over its reducers: weighted round robin, a batch at a time."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from dpa.routing.assignment import KeySplit


class Distributor:
    """One sender's round robin.

    Over any number of batches each reducer gets its weight of the records, give or take two, so even senders of single
    records distribute evenly. `seed` decides where a sender starts: different ones start at different points.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._credit: dict[tuple[KeySplit, int | None], npt.NDArray[np.float64]] = {}

    def distribute(self, split: KeySplit, records: int, at: int | None = None) -> npt.NDArray[np.int64]:
        """The number of the `records` that each reducer of the split gets; shape of its `reducers`.

        `at` is the reducer that holds the records because an older table sent them there; None if they are new.
        """
        credit = self._credit.get((split, at))
        weights = np.array(split.weights if at is None else split.weights_at(at))
        weights /= weights.sum()  # they add up to almost 1, and a sender may run for days
        if credit is None:
            start = np.random.default_rng(self._seed).random(len(weights))
            credit = np.where(weights, start - start.mean(), -np.inf)  # a reducer without weight never gets any
        credit = credit + weights * records
        given: npt.NDArray[np.int64] = np.maximum(np.floor(credit), 0).astype(np.int64)
        short = records - int(given.sum())
        if short > 0:
            most = np.argsort(given - credit, kind="stable")[: np.count_nonzero(weights)]  # owed most first
            given += np.bincount(most[np.arange(short) % len(most)], minlength=len(given))
        while short < 0:  # a reducer that is owed less than nothing gets none, so others must give back
            fullest = int(np.argmax(np.where(given, given - credit, -np.inf)))
            given[fullest] -= 1
            short += 1
        self._credit[split, at] = credit - given
        return given

    def retain(self, current: Collection[KeySplit]) -> None:
        """Forget all splits but these."""
        self._credit = {of: credit for of, credit in self._credit.items() if of[0] in current}
