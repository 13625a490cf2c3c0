"""The most frequent keys of the recent past: a frequent-items sketch with exponential decay.

Decay is forward: a record that arrives at time t counts 2**(t / half_life) times, so that earlier counts shrink
relative to it and need not be touched as time goes by (Cormode, Shkapenyuk, Srivastava and Xu, "Forward decay", ICDE
2009). All sketches count from the same moments, so any two can be merged.

A sketch can be copied and pickled, and the copy goes on exactly as the original does: what it holds is a function of
what was counted, and not of the order in which a hash table has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import datasketches

from dpa.routing.keys import Key

_ONE = 1 << 10
"""The count of a record at the beginning of a period: large enough for fractions to survive rounding."""

_PERIOD = 20
"""Half-lives after which the counts are scaled down: 2**30 a record at most, far below the range of 64 bits."""

_NULL = ()
"""Stands for the null key in a sketch, which takes no None."""


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
        self._missed = 0  # the most that any key lost when counts were scaled down; whole, so that sums are exact
        self._sketch: Any = datasketches.frequent_items_sketch(size)

    def __getstate__(self) -> dict[str, Any]:
        """The sketch as keys and counts; what it has lost of each key is added to what was lost before."""
        held = self._items()
        counts = [(key, low) for key, _, low, _ in held]
        return {**self.__dict__, "_missed": self._missed + _lost(held), "_sketch": counts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sketch = datasketches.frequent_items_sketch(self._size)
        for key, count in state["_sketch"]:
            self._sketch.update(key, count)

    def add(self, keys: list[Key], records: list[float], now: float) -> None:
        """Count records of each key at time `now` (seconds, not before that of an earlier call)."""
        self._advance(self._period_at(now))
        weight = self._weight(now)
        update = self._sketch.update
        for key, number in zip(keys, records, strict=True):
            update(_NULL if key is None else key, round(number * weight))

    def merge(self, other: HotKeys) -> None:
        """Add the counts of another sketch of the same half-life."""
        self._advance(other._period)
        other._advance(self._period)
        self._sketch.merge(other._sketch)
        self._missed += other._missed

    def top(self, most: int, now: float) -> list[Estimate]:
        """The `most` keys with the most decayed records as of `now`, most first and equal ones by their text, of those
        whose count is above the error."""
        self._advance(self._period_at(now))
        weight = self._weight(now)
        ordered = sorted(self._items(), key=lambda item: (-item[1], repr(item[0])))[:most]
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
        """The sketch's entries: key, count, and the bounds of the count."""
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
        self._missed = math.ceil(scale * (self._missed + _lost(held)))
        self._sketch = datasketches.frequent_items_sketch(self._size)
        for key, _, low, _ in held:
            if round(low * scale):
                self._sketch.update(key, round(low * scale))
        self._period = period


def _lost(held: list[tuple[Any, int, int, int]]) -> int:
    """At most so much of any key a sketch has lost, by the items that it holds."""
    return max((high - low for _, _, low, high in held), default=0)
