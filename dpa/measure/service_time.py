"""The time that a reducer takes for a record, measured."""

from __future__ import annotations

import math


class ServiceTime:
    """The mean over the recent past: a measurement `half_life` seconds of work ago counts half.

    The first measurement includes the user code's imports and first allocations, which may take a hundred times the
    rest: it counts only until there is another one.
    """

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._records = self._seconds = 0.0
        self._squares = self._measurements = 0.0  # of the time of a record, weighted by records; their number
        self._observed = 0

    def observe(self, records: int, seconds: float) -> None:
        """Record that `records` records took `seconds`."""
        if self._observed == 1:
            self._records = self._seconds = self._squares = self._measurements = 0.0
        self._observed += 1
        decay = 2.0 ** (-seconds / self._half_life)
        self._records = self._records * decay + records
        self._seconds = self._seconds * decay + seconds
        self._squares = self._squares * decay + seconds**2 / records
        self._measurements = self._measurements * decay + 1

    @property
    def evidence(self) -> float:
        """The number of records that the mean rests on, older ones counting less."""
        return self._records

    @property
    def seconds(self) -> float | None:
        """Seconds for one record; None before the first."""
        return self._seconds / self._records if self._records else None

    @property
    def error(self) -> float:
        """The standard error of `seconds`, by how measurements differ; infinite before there are two."""
        if self._measurements <= 1.5:
            return math.inf
        mean = self._seconds / self._records
        variance = max(self._squares / self._records - mean**2, 0.0)
        return math.sqrt(variance / (self._measurements - 1))
