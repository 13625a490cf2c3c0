"""The latency of records, from source to processed: a sketch of its quantiles that can be merged and sent.

DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
VLDB 2019) in bounded memory. The mapper decides when a record's time begins, the reducer when it ends."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ddsketch import LogCollapsingLowestDenseDDSketch

RELATIVE_ERROR = 0.01
"""The greatest error of a quantile, as a share of its value."""

_MAX_BINS = 2_048
"""At most 19 kB pickled. Quantiles below a 10**17th of the longest latency (1.02**-2048) may be off by more."""


@dataclass(frozen=True)
class LatencyReport:
    """Seconds of the processed records from source to processed. A record's source is the moment at which a source's
    task began the step that read its block's rows, so mapping, waiting for credit, transport, queueing and processing
    are in it. Longest and mean are exact, up to the difference of the machines' clocks.

    Attributes:
        p50: median, in seconds, within 1 %.
        p95: 95th percentile, in seconds, within 1 %.
        p99: 99th percentile, in seconds, within 1 %.
        max: maximum, in seconds.
        mean: mean, in seconds.
    """

    p50: float
    p95: float
    p99: float
    max: float
    mean: float


class LatencySketch:
    """The latencies of any number of records, in seconds. To add those of a block takes about two microseconds.

    Attributes:
        records: how many there were.
        max: the longest, exact; 0 if there was none.
    """

    def __init__(self) -> None:
        self.records = 0
        self.max = 0.0
        self._sketch = LogCollapsingLowestDenseDDSketch(RELATIVE_ERROR, _MAX_BINS)
        self._seconds = 0.0

    @classmethod
    def union(cls, sketches: Iterable[LatencySketch]) -> LatencySketch:
        """A new sketch; `sketches` stay unchanged."""
        made = cls()
        for sketch in sketches:
            made.merge(sketch)
        return made

    @property
    def mean(self) -> float:
        """Exact but for rounding; NaN if there was none."""
        return self._seconds / self.records if self.records else math.nan

    def add(self, seconds: float, records: int) -> None:
        """Add `records` records, at least one, that took `seconds` each."""
        seconds = max(seconds, 0.0)  # clocks that differ may give a negative time
        self._sketch.add(seconds, records)
        self._seconds += seconds * records
        self.records += records
        self.max = max(self.max, seconds)

    def merge(self, other: LatencySketch) -> None:
        self._sketch.merge(other._sketch)
        self._seconds += other._seconds
        self.records += other.records
        self.max = max(self.max, other.max)

    def quantile(self, share: float) -> float:
        """What `share` of the records (0 to 1) do not exceed, within `RELATIVE_ERROR`; NaN if there was none."""
        found = self._sketch.get_quantile_value(share)
        return math.nan if found is None else min(float(found), self.max)

    @property
    def report(self) -> LatencyReport | None:
        """None if there was none."""
        if not self.records:
            return None
        return LatencyReport(self.quantile(0.5), self.quantile(0.95), self.quantile(0.99), self.max, self.mean)

    def __repr__(self) -> str:
        return f"LatencySketch(records={self.records}, mean={self.mean:.6f}, max={self.max:.6f})"
