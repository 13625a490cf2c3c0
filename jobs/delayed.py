"""Visits of pages that come after they happened, a few of them much later; for `experiments.event_times`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpa import Generator

RATE = 12.0
"""Rows that come in a second."""

BEGAN = 1_700_000_000
"""When the first row came, in seconds since 1970."""

_LATE, _LATE_SECONDS, _SOON_SECONDS = 0.08, 7.0, 1.5
"""The part of rows that come late, by how many seconds in the mean, and within how many the others come."""


class Delayed(Generator):
    """Rows of a `page`, and the `time` of the visit."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        came = np.arange(start, start + rows) / RATE
        delays = [random.random(rows) * _SOON_SECONDS, random.exponential(_LATE_SECONDS, rows)]
        happened = np.maximum(0.0, came - np.where(random.random(rows) < _LATE, delays[1], delays[0]))
        times = pa.array(((BEGAN + happened) * 1e6).astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))
        return pa.record_batch({"page": pa.array(random.integers(0, 3, rows)), "time": times})
