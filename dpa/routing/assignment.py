"""What a routing table makes of an arc of the hash circle: it belongs to one reducer, or its keys are split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Single:
    """One reducer processes all records of the arc."""

    reducer: int

    @property
    def reducers(self) -> tuple[int, ...]:
        """The reducers that may process records of the arc; the first owns the states in the end."""
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
        """The weights for records that an older table sent to `reducer`; shape of `reducers`.

        The reducer keeps as many as its new weight allows, and the others get the rest by what they gain. So no more
        records move than need to.
        """
        own = self.reducers.index(reducer) if reducer in self.reducers else None
        if own is None:
            return self.weights
        gains = [max(new - old, 0.0) for new, old in zip(self.weights, self.before, strict=True)]
        if self.before[own] <= self.weights[own] or not any(gains):  # by rounding alone, shares can shrink only
            return tuple(float(index == own) for index in range(len(self.weights)))
        kept = self.weights[own] / self.before[own]
        weights = [(1 - kept) * gain / sum(gains) for gain in gains]
        weights[own] = kept
        return tuple(weights)


Assignment: TypeAlias = Single | KeySplit
