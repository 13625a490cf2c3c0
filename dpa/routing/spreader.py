"""Dealing the records of a spread to its reducers: weighted round robin, a batch at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.table import Spread


class Spreader:
    """One sender's deals. Over any number of batches each reducer is dealt its weight of the records, give or take
    two, so even senders of single records spread evenly. Senders start at different points, told by `seed`."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._credit: dict[tuple[Spread, int | None], npt.NDArray[np.float64]] = {}

    def deal(self, spread: Spread, records: int, at: int | None = None) -> npt.NDArray[np.int64]:
        """How many of so many records each reducer of the spread gets; shape of its `reducers`.

        `at` is the reducer that holds the records because an older table sent them there; None if they are new.
        """
        credit = self._credit.get((spread, at))
        weights = np.array(spread.weights if at is None else spread.weights_at(at))
        weights /= weights.sum()  # they add up to almost 1, and a sender may deal for days
        if credit is None:
            start = np.random.default_rng(self._seed).random(len(weights))
            credit = np.where(weights, start - start.mean(), -np.inf)  # who has no weight is never dealt any
        credit = credit + weights * records
        dealt: npt.NDArray[np.int64] = np.maximum(np.floor(credit), 0).astype(np.int64)
        short = records - int(dealt.sum())
        if short > 0:
            most = np.argsort(dealt - credit, kind="stable")[: np.count_nonzero(weights)]  # owed most first
            dealt += np.bincount(most[np.arange(short) % len(most)], minlength=len(dealt))
        while short < 0:  # a reducer that is owed less than nothing gets none, so others must give back
            fullest = int(np.argmax(np.where(dealt, dealt - credit, -np.inf)))
            dealt[fullest] -= 1
            short += 1
        self._credit[spread, at] = credit - dealt
        return dealt

    def forget(self, current: tuple[Spread, ...]) -> None:
        """Keep only the deals of spreads that still are."""
        self._credit = {deal: credit for deal, credit in self._credit.items() if deal[0] in current}
