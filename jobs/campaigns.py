"""Advertisements and what people do with them (Yahoo streaming benchmark, Chintapalli et al., 2016), for
`configs/campaigns.yaml`: views are joined with the campaign of their advertisement, and counted by campaign and time.

In the benchmark all campaigns get as many events. Here a few have most of them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Generator, batch_filter, batch_mapper
from dpa.sources.distributions import names, zipf

CAMPAIGNS, ADS = 100, 10
"""Campaigns, and advertisements of each."""

_BEGAN = 1_700_000_000_000_000
"""When the first event happened, in microseconds since 1970."""

_KINDS = ("view", "click", "purchase")


class Events(Generator):
    """Events: `user`, `ad`, `kind`, `time`.

    Args:
        exponent: of the Zipf distribution of their events.
        per_second: events that happen in a second.
        disorder: seconds by which an event may come late.
    """

    def __init__(self, exponent: float = 1.5, per_second: int = 50_000, disorder: float = 1.0) -> None:
        self.exponent = exponent
        self.per_second = per_second
        self.disorder = disorder

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        ads = zipf(random, rows, CAMPAIGNS, self.exponent) * ADS + random.integers(0, ADS, rows)
        late = (random.random(rows) * self.disorder * 1e6).astype(np.int64)
        times = _BEGAN + np.arange(start, start + rows) * 1_000_000 // self.per_second - late
        kinds = pa.DictionaryArray.from_arrays(random.integers(0, len(_KINDS), rows).astype(np.int8), list(_KINDS))
        return pa.record_batch(
            {
                "user": random.integers(0, 100_000, rows),
                "ad": ads,
                "kind": kinds.cast(pa.string()),
                "time": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
            }
        )


@batch_filter
def is_view(events: pa.RecordBatch) -> pa.BooleanArray:
    """The views among the events."""
    return pc.equal(events.column("kind"), "view")


@batch_mapper
def with_campaign(views: pa.RecordBatch) -> pa.RecordBatch:
    """The campaign of the advertisement of each view, from a table in memory."""
    campaign = names(views.column("ad").to_numpy() // ADS, CAMPAIGNS)
    return pa.record_batch({"campaign": campaign, "time": views.column("time")})
