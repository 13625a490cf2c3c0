"""How long records take, from source to processed: a sketch of their quantiles that can be merged and sent.

DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
VLDB 2019) in bounded memory. When a record's time begins is the mapper's to say, when it ends the reducer's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ddsketch import LogCollapsingLowestDenseDDSketch

RELATIVE_ERROR = 0.01
"""A quantile is off by at most so much of its value."""

_MOST_BINS = 2_048
"""At most 19 kB pickled. Quantiles below a 10**17th of the longest latency (1.02**-2048) may be off by more."""


class LatencySketch:
    """The latencies of any number of records, in seconds; adding takes about two microseconds, for many records at
    once too."""

    def __init__(self) -> None:
        self._sketch = LogCollapsingLowestDenseDDSketch(RELATIVE_ERROR, _MOST_BINS)
        self._seconds = 0.0
        self._records = 0
        self._max = 0.0

    @classmethod
    def union(cls, sketches: Iterable[LatencySketch]) -> LatencySketch:
        """A new sketch of all records of these, which stay as they are."""
        made = cls()
        for sketch in sketches:
            made.merge(sketch)
        return made

    @property
    def records(self) -> int:
        """How many records were added, exactly."""
        return self._records

    @property
    def max(self) -> float:
        """The longest latency, exactly; 0 if there was none."""
        return self._max

    @property
    def mean(self) -> float:
        """The mean latency, exactly but for rounding; NaN if there was none."""
        return self._seconds / self._records if self._records else math.nan

    def add(self, seconds: float, records: int) -> None:
        """So many records (at least one) took so long. Less than nothing, which clocks that differ may give, counts as
        nothing."""
        seconds = max(seconds, 0.0)
        self._sketch.add(seconds, records)
        self._seconds += seconds * records
        self._records += records
        self._max = max(self._max, seconds)

    def merge(self, other: LatencySketch) -> None:
        """Take in the records of another sketch, as if they had been added here."""
        self._sketch.merge(other._sketch)
        self._seconds += other._seconds
        self._records += other._records
        self._max = max(self._max, other._max)

    def quantile(self, share: float) -> float:
        """The latency that `share` of the records (0 to 1) do not exceed, within `RELATIVE_ERROR`; NaN if there was
        none."""
        found = self._sketch.get_quantile_value(share)
        return math.nan if found is None else min(float(found), self._max)

    def __repr__(self) -> str:
        return f"LatencySketch(records={self._records}, mean={self.mean:.6f}, max={self._max:.6f})"
