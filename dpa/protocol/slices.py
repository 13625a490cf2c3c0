"""How many records a reducer takes at a time, so that news reaches it soon however slow its user code is."""

from __future__ import annotations

_FIRST = 16
"""The first slice: small enough to learn the speed of slow user code soon."""
_GROWTH = 8.0
"""A slice is at most so many times as long as the one before: one lucky measurement must not cost seconds."""


class SliceSizer:
    """Adapts the slice to the measured service time, so that one slice takes about `seconds`."""

    def __init__(self, most_records: int, seconds: float) -> None:
        """Slices have between 1 and `most_records` records."""
        self._most = most_records
        self._seconds = seconds
        self.size = min(_FIRST, most_records)

    def observe(self, records: int, seconds: float) -> None:
        """Learn that `records` took `seconds`."""
        fitting = records * self._seconds / seconds if seconds > 0 else float("inf")
        self.size = int(max(1, min(fitting, self.size * _GROWTH, self._most)))
