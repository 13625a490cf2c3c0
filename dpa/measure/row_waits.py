"""How long rows that a source has read wait for the end of their epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waited:
    """Rows that have waited.

    Attributes:
        rows: how many.
        seconds: since they were read, all rows together.
        longest: since the first of them was read.
    """

    rows: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class RowWaits:
    """Those of one task since they were last taken, in bounded memory: a step of reading is one addition."""

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._rows = 0
        self._later = 0.0

    def read(self, rows: int, at: float) -> None:
        """Rows of which the reading began at a moment, in seconds."""
        if not rows:
            return
        if self._first_at is None:
            self._first_at = at
        self._rows += rows
        self._later += rows * (at - self._first_at)  # differences keep their precision in a sum, moments would not

    def taken(self, now: float) -> Waited:
        """What they have waited by now; the next ones begin with none."""
        if self._first_at is None:
            return Waited()
        longest, rows, later = now - self._first_at, self._rows, self._later
        self._first_at, self._rows, self._later = None, 0, 0.0
        return Waited(rows, rows * longest - later, longest)
