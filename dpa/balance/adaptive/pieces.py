"""The movable pieces of a reducer's load: arcs of the hash circle, which can be divided until one key is left."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

from dpa.balance.adaptive.demand import KeyDemand

_CIRCLE = 2**32


@dataclass(frozen=True)
class Piece:
    """An arc and the work that one reducer has with it.

    Attributes:
        start, stop: hashes of the arc, from `start` up to `stop` without it; `stop` is its token's position, and is
            below `start` where the arc passes 0.
        records: the work, in records.
        keys: the hot keys in it, by descending records.
        spread: whether other reducers share it.
    """

    start: int
    stop: int
    records: float
    keys: tuple[KeyDemand, ...] = ()
    spread: bool = False

    @property
    def width(self) -> int:
        """How many hashes the arc has."""
        return (self.stop - self.start) % _CIRCLE or _CIRCLE

    @property
    def single(self) -> bool:
        """Whether it is the arc of one hash: one key, but for collisions."""
        return self.width == 1

    @property
    def name(self) -> str:
        """For people: the key, if it is one and known."""
        if self.single and self.keys:
            return self.keys[0].name
        return "a key" if self.single else f"token {self.stop:08x}"

    def divided(self, records: float) -> list[Piece]:
        """Smaller pieces of the same arc: its hottest key by itself if one is known to be in it, else a piece of about
        so many records and the rest. A piece of a single hash cannot be divided."""
        if self.keys:
            return self._around(self.keys[0])
        cut = max(1, min(self.width - 1, round(self.width * records / self.records)))
        middle = (self.start + cut) % _CIRCLE
        share = self.records * cut / self.width
        return [Piece(self.start, middle, share), Piece(middle, self.stop, self.records - share)]

    def _around(self, hot: KeyDemand) -> list[Piece]:
        """The arc before the key, the key, and the arc after it; what is not of hot keys lies evenly."""
        after = (hot.hash + 1) % _CIRCLE
        known = sum(key.records for key in self.keys)
        even = max(self.records - known, 0.0) / self.width
        pieces = [Piece(hot.hash, after, max(self.records - known, 0.0) / self.width + hot.records, (hot,))]
        for start, stop in ((self.start, hot.hash), (after, self.stop)):
            width = (stop - start) % _CIRCLE
            if width and width < self.width:
                keys = tuple(key for key in self.keys[1:] if (key.hash - start) % _CIRCLE < width)
                pieces.append(Piece(start, stop, even * width + sum(key.records for key in keys), keys))
        return pieces


class Pile:
    """One reducer's pieces, in order of their work."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = sorted(pieces, key=_records)

    def largest_within(self, records: float) -> Piece | None:
        """The largest piece with at most so many records."""
        index = bisect_right(self._pieces, records, key=_records)
        return self._pieces[index - 1] if index else None

    def smallest_above(self, records: float) -> Piece | None:
        """The smallest piece with more than so many records."""
        index = bisect_right(self._pieces, records, key=_records)
        return self._pieces[index] if index < len(self._pieces) else None

    def add(self, piece: Piece) -> None:
        """Put a piece on."""
        insort(self._pieces, piece, key=_records)

    def take(self, piece: Piece) -> None:
        """Take a piece off."""
        index = bisect_right(self._pieces, piece.records, key=_records) - 1
        while self._pieces[index] is not piece:
            index -= 1
        del self._pieces[index]


def _records(piece: Piece) -> float:
    return piece.records
