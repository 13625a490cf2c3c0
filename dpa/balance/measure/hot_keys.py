"""The keys that come most of late: a frequent-items sketch with exponential decay.

Decay is forward: a record that comes at time t counts 2**(t / half_life) times, so that what came before shrinks
relative to it and nothing need be touched as time goes by (Cormode, Shkapenyuk, Srivastava and Xu, "Forward decay",
ICDE 2009). All sketches count from the same moments, so any two can be merged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import datasketches

from dpa.routing.hashing import Key

_ONE = 1 << 10
"""What a record counts at the beginning of a period: enough for fractions to survive rounding."""

_PERIOD = 20
"""Half-lives after which the counts are scaled down: 2**30 a record at most, far from what 64 bits hold."""


@dataclass(frozen=True)
class Estimate:
    """A key's decayed number of records, and its bounds."""

    key: Key
    records: float
    lower: float
    upper: float


class HotKeys:
    """A sketch of bounded size: every key with more than about 3.5 / `2**size` of all decayed records is in it."""

    def __init__(self, half_life: float, size: int = 10) -> None:
        """Halve the weight of a record every `half_life` seconds; `size` is the logarithm of the number of counters."""
        self._half_life = half_life
        self._size = size
        self._period = 0
        self._sketch: Any = datasketches.frequent_items_sketch(size)

    def add(self, keys: list[Key], records: list[float], now: float) -> None:
        """Count records of each key at time `now` (seconds, not before that of an earlier call)."""
        self._advance(self._period_at(now))
        weight = self._weight(now)
        update = self._sketch.update
        for key, number in zip(keys, records, strict=True):
            update(key, round(number * weight))

    def merge(self, other: HotKeys) -> None:
        """Take in what another sketch of the same half-life has counted."""
        self._advance(other._period)
        other._advance(self._period)
        self._sketch.merge(other._sketch)

    def top(self, most: int, now: float) -> list[Estimate]:
        """The keys with the most decayed records as of `now`, most first; all whose count is above the error."""
        self._advance(self._period_at(now))
        weight = self._weight(now)
        found = self._sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES)
        ordered = sorted(found, key=lambda item: -item[1])[:most]
        return [Estimate(key, count / weight, low / weight, high / weight) for key, count, low, high in ordered]

    def _period_at(self, now: float) -> int:
        return math.floor(now / self._half_life / _PERIOD)

    def _weight(self, now: float) -> float:
        return float(_ONE * 2.0 ** (now / self._half_life - self._period * _PERIOD))

    def _advance(self, period: int) -> None:
        """Count from the beginning of a later period on: older counts shrink, and those that vanish are dropped."""
        if period <= self._period:
            return
        scale = 2.0 ** (-_PERIOD * min(period - self._period, 50))
        old, self._sketch = self._sketch, datasketches.frequent_items_sketch(self._size)
        for key, count, _, _ in old.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES):
            if round(count * scale):
                self._sketch.update(key, round(count * scale))
        self._period = period
