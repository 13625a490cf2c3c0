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

from dpa.routing.keys import Key

_ONE = 1 << 10
"""What a record counts at the beginning of a period: enough for fractions to survive rounding."""

_PERIOD = 20
"""Half-lives after which the counts are scaled down: 2**30 a record at most, far from what 64 bits hold."""

_NULL = ()
"""What stands for the null key in a sketch, which takes no None."""


@dataclass(frozen=True)
class Estimate:
    """A key's decayed number of records, and its bounds, apart from rounding to a thousandth of a record."""

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
        self._missed = 0.0  # at most so much of any key was lost when counts were scaled down
        self._sketch: Any = datasketches.frequent_items_sketch(size)

    def add(self, keys: list[Key], records: list[float], now: float) -> None:
        """Count records of each key at time `now` (seconds, not before that of an earlier call)."""
        self._advance(self._period_at(now))
        weight = self._weight(now)
        update = self._sketch.update
        for key, number in zip(keys, records, strict=True):
            update(_NULL if key is None else key, round(number * weight))

    def merge(self, other: HotKeys) -> None:
        """Take in what another sketch of the same half-life has counted."""
        self._advance(other._period)
        other._advance(self._period)
        self._sketch.merge(other._sketch)
        self._missed += other._missed

    def top(self, most: int, now: float) -> list[Estimate]:
        """The keys with the most decayed records as of `now`, most first; all whose count is above the error."""
        self._advance(self._period_at(now))
        weight = self._weight(now)
        ordered = sorted(self._items(), key=lambda item: -item[1])[:most]
        return [
            Estimate(
                None if key == _NULL else key,
                (count + self._missed) / weight,
                low / weight,
                (high + self._missed) / weight,
            )
            for key, count, low, high in ordered
        ]

    def _items(self) -> list[tuple[Any, int, int, int]]:
        """What the sketch holds: key, count, and the bounds of the count."""
        found: list[tuple[Any, int, int, int]] = self._sketch.get_frequent_items(
            datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES
        )
        return found

    def _period_at(self, now: float) -> int:
        return math.floor(now / self._half_life / _PERIOD)

    def _weight(self, now: float) -> float:
        return float(_ONE * 2.0 ** (now / self._half_life - self._period * _PERIOD))

    def _advance(self, period: int) -> None:
        """Count from the beginning of a later period on: older counts shrink, and those that vanish are dropped."""
        if period <= self._period:
            return
        scale = 2.0 ** (-_PERIOD * min(period - self._period, 50))
        held = self._items()
        self._missed = scale * (self._missed + max((high - low for _, _, low, high in held), default=0))
        self._sketch = datasketches.frequent_items_sketch(self._size)
        for key, _, low, _ in held:
            if round(low * scale):
                self._sketch.update(key, round(low * scale))
        self._period = period
