"""What a routing table makes of an arc of the hash circle: it belongs to one reducer, or its keys are split."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Single:
    """One reducer processes all records of the arc. The first of `reducers` owns the states in the end."""

    reducer: int

    @property
    def reducers(self) -> tuple[int, ...]:
        return (self.reducer,)


@dataclass(frozen=True, slots=True)
class KeySplit:
    """Several reducers process the records of the arc, each its share: for a key too hot for any one of them.

    Attributes:
        reducers: at least two, each once; the first owns the states in the end.
        weights: the share of the records that each reducer gets, above 0 and adding up to 1.
        before: the share of the records that each reducer had when the split was made, adding up to at most 1.
        since: version of the first routing table with this split.
    """

    reducers: tuple[int, ...]
    weights: tuple[float, ...]
    before: tuple[float, ...]
    since: int

    def __post_init__(self) -> None:
        if len(self.reducers) < 2 or len(set(self.reducers)) < len(self.reducers):
            raise ValueError(f"a key split needs at least two reducers, each once, not {self.reducers}")
        if (
            len(self.weights) != len(self.reducers)
            or not min(self.weights) > 0
            or not abs(sum(self.weights) - 1) <= 1e-6
        ):
            raise ValueError(f"a key split needs a weight above 0 for each reducer, 1 in all, not {self.weights}")
        if len(self.before) != len(self.reducers) or min(self.before) < 0 or not sum(self.before) <= 1 + 1e-6:
            raise ValueError(f"a key split needs the former share of each reducer, at most 1 in all, not {self.before}")

    def weights_at(self, reducer: int) -> tuple[float, ...]:
        """The weights for records that an older table sent to `reducer`; shape of `reducers`."""
        own = self.reducers.index(reducer) if reducer in self.reducers else None
        if own is None:
            return self.weights
        # It keeps as many as its new weight allows, and the others get the rest by what they gain: so no more records
        # move than need to.
        gains = [max(new - old, 0.0) for new, old in zip(self.weights, self.before, strict=True)]
        if self.before[own] <= self.weights[own] or not any(gains):  # by rounding alone, shares can shrink only
            return tuple(float(index == own) for index in range(len(self.weights)))
        kept = self.weights[own] / self.before[own]
        weights = [(1 - kept) * gain / sum(gains) for gain in gains]
        weights[own] = kept
        return tuple(weights)


Assignment: TypeAlias = Single | KeySplit


class Distributor:
    """One sender's weighted round robin of the records of a split key over its reducers, a batch at a time.

    Over any number of batches each reducer gets its weight of the records, give or take two, so even senders of single
    records distribute evenly. `seed` decides where a sender starts: different ones start at different points."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._credit: dict[tuple[KeySplit, int | None], npt.NDArray[np.float64]] = {}

    def distribute(self, split: KeySplit, records: int, at: int | None = None) -> npt.NDArray[np.int64]:
        """How many of the records each reducer of the split gets; shape of its `reducers`. `at`: the reducer that holds
        them because an older table sent them there; None if they are new."""
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
        self._credit = {of: credit for of, credit in self._credit.items() if of[0] in current}
