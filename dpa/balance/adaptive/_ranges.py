"""The movable parts of a reducer's load: ranges of the hash circle, which can be split until one key is left."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

from dpa.balance.adaptive.demand import KeyDemand

_CIRCLE = 2**32


@dataclass(frozen=True)
class HashRange:
    """A range of hashes and the work that one reducer has with it.

    Attributes:
        start, stop: hashes of the range, from `start` up to `stop` without it; `stop` is its token's position, and is
            below `start` where the range passes 0.
        records: the work, in records.
        keys: the hot keys in it, by descending records.
        shared: whether the keys in it are split over this reducer and others.
    """

    start: int
    stop: int
    records: float
    keys: tuple[KeyDemand, ...] = ()
    shared: bool = False

    @property
    def width(self) -> int:
        return (self.stop - self.start) % _CIRCLE or _CIRCLE

    @property
    def single(self) -> bool:
        """One hash is one key, but for collisions."""
        return self.width == 1

    @property
    def name(self) -> str:
        """For people: the key, if it is one and known."""
        if self.single and self.keys:
            return self.keys[0].name
        return "a key" if self.single else f"token {self.stop:08x}"

    def split(self, records: float) -> list[HashRange]:
        """Smaller ranges that cover this one: its hottest known key by itself, else a range with about `records`, and
        the rest. A range of a single hash cannot be split."""
        if self.keys:
            return self._around(self.keys[0])
        cut = max(1, min(self.width - 1, round(self.width * records / self.records)))
        middle = (self.start + cut) % _CIRCLE
        share = self.records * cut / self.width
        return [HashRange(self.start, middle, share), HashRange(middle, self.stop, self.records - share)]

    def _around(self, hot: KeyDemand) -> list[HashRange]:
        """The range before the key, the key, and the range after it; the work of other than hot keys lies evenly."""
        after = (hot.hash + 1) % _CIRCLE
        known = sum(key.records for key in self.keys)
        even = max(self.records - known, 0.0) / self.width
        ranges = [HashRange(hot.hash, after, max(self.records - known, 0.0) / self.width + hot.records, (hot,))]
        for start, stop in ((self.start, hot.hash), (after, self.stop)):
            width = (stop - start) % _CIRCLE
            if width and width < self.width:
                keys = tuple(key for key in self.keys[1:] if (key.hash - start) % _CIRCLE < width)
                ranges.append(HashRange(start, stop, even * width + sum(key.records for key in keys), keys))
        return ranges


class SortedRanges:
    """One reducer's ranges, in order of their work."""

    def __init__(self, ranges: list[HashRange]) -> None:
        self._ranges = sorted(ranges, key=_records)

    def largest_within(self, records: float) -> HashRange | None:
        index = bisect_right(self._ranges, records, key=_records)
        return self._ranges[index - 1] if index else None

    def smallest_above(self, records: float) -> HashRange | None:
        index = bisect_right(self._ranges, records, key=_records)
        return self._ranges[index] if index < len(self._ranges) else None

    def add(self, added: HashRange) -> None:
        insort(self._ranges, added, key=_records)

    def remove(self, removed: HashRange) -> None:
        index = bisect_right(self._ranges, removed.records, key=_records) - 1
        while self._ranges[index] is not removed:
            index -= 1
        del self._ranges[index]


def _records(of: HashRange) -> float:
    return of.records
