"""Trending topics of Twitter (task allocation paper, section 7.4, figure 6).

The paper ranks for ever, as `configs/trending_live.yaml` does; the input of `configs/trending.yaml` ends, and each
stage emits its result at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa import Generator, batch_mapper
from dpa.executors import Record
from dpa.sources.distributions import names, zipf

HASHTAG = "#([A-Za-z_0-9]+)"
"""What counts as a hashtag; the reference in the job file says the same."""

_BEGAN = 1_700_000_000_000_000
"""When the first live tweet was written, in microseconds since 1970."""


class Tweets(Generator):
    """Tweets, most of them with a hashtag or two; the column is `text`.

    Topics are Zipf-distributed and drift: every `period` tweets each rank is another topic's, `step` further on.
    """

    def __init__(self, tags: int = 20_000, exponent: float = 1.2, period: int = 100_000, step: int = 7) -> None:
        self.tags = tags
        self.exponent = exponent
        self.period = period
        self.step = step

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        shift = np.arange(start, start + rows) // self.period * self.step
        ranks = zipf(random, (2, rows), self.tags, self.exponent)
        wanted = random.random((2, rows)) < [[0.8], [0.3]]
        hashtags = [
            pc.if_else(has, pc.binary_join_element_wise("#", names((rank + shift) % self.tags, self.tags), ""), None)
            for has, rank in zip(wanted, ranks, strict=True)
        ]
        words = [names(random.integers(0, 1_000, rows), 1_000) for _ in range(3)]
        return pa.record_batch({"text": pc.binary_join_element_wise(*words, *hashtags, " ", null_handling="skip")})


def hashtags(tweet: Record) -> Iterator[Record]:
    """Each hashtag of a tweet."""
    for tag in re.findall(HASHTAG, tweet["text"]):
        yield {"tag": tag}


def timed_hashtags(tweet: Record) -> Iterator[Record]:
    """Each hashtag of a tweet, with its time."""
    for tag in re.findall(HASHTAG, tweet["text"]):
        yield {"tag": tag, "time": tweet["time"]}


@batch_mapper
def by_letter(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Counts with the first letter of their tag, by which they are ranked first."""
    tag = counts.column("tag")
    letter = pc.utf8_slice_codeunits(tag, 0, 1)
    return pa.record_batch({"letter": letter, "tag": tag, "count": counts.column("count")})


class LiveTweets(Tweets):
    """The same tweets with the `time` of each: `per_second` of them, which come up to `disorder` seconds late."""

    def __init__(self, per_second: int = 20_000, disorder: float = 2.0, period: int = 100_000) -> None:
        super().__init__(period=period)
        self.per_second = per_second
        self.disorder = disorder

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        late = (random.random(rows) * self.disorder * 1e6).astype(np.int64)
        times = _BEGAN + np.arange(start, start + rows) * 1_000_000 // self.per_second - late
        text = super().batch(start, rows, random).column("text")
        return pa.record_batch({"text": text, "time": pa.array(times).cast(pa.timestamp("us", tz="UTC"))})
