"""The streams of the consistent-grouping paper, made from their published figures, because its data sets are not
available.

A stream has a hottest key of a given share over a tail of Zipf-distributed keys, and a rate that changes by the hour.
It is made slot by slot from the seed alone, so memory stays small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.routing.hashing import Hashes, hash_column
from experiments.queues import Arrivals

SLOT_SECONDS = 60.0
HOUR, DAY = 3_600.0, 86_400.0
SWING = 0.15
"""How far the hourly rate swings about its mean over a day, as a share."""


@dataclass(frozen=True)
class Stream:
    """The properties of a stream.

    Attributes:
        records: the number of records.
        keys: the number of possible keys.
        exponent: of the Zipf distribution of all keys, or of all but the hottest.
        hottest: share of the hottest key; None: what the distribution gives it.
        seconds: its duration.
        swing: the amplitude of the hourly rate about its mean over a day, as a share.
    """

    name: str
    records: int
    keys: int
    exponent: float = 1.0
    hottest: float | None = None
    seconds: float = DAY
    swing: float = SWING

    def scaled(self, scale: float) -> Stream:
        """The same stream with this share of the records and keys, in the same time."""
        return replace(self, records=max(1, round(self.records * scale)), keys=max(2, round(self.keys * scale)))

    def shares(self) -> npt.NDArray[np.float64]:
        """The probability of each key, most first; shape (keys,)."""
        weights = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.exponent
        if self.hottest is None:
            return weights / weights.sum()
        tail = weights[:-1] / weights[:-1].sum() * (1 - self.hottest)
        return np.concatenate([[self.hottest], tail])

    def hashes(self) -> Hashes:
        """The hash of each key, as a job would hash it; shape (keys,)."""
        return hash_column(pa.array(np.arange(self.keys)).cast(pa.string()))

    def hourly(self) -> npt.NDArray[np.float64]:
        """Records of each hour, as shares of all; the day has its low in the night and its high in the evening."""
        hours = np.arange(max(1, math.ceil(self.seconds / HOUR)))
        rates = 1 - self.swing * np.cos((hours - 4) * (2 * math.pi * HOUR / DAY))
        rates /= rates.sum()
        return rates

    def slots(self, seed: int, slot_seconds: float = SLOT_SECONDS) -> Iterator[Arrivals]:
        """The records of each slot, evenly spaced within it."""
        random = np.random.default_rng(seed)
        cumulative = np.cumsum(self.shares())
        count = max(1, round(self.seconds / slot_seconds))
        ends = np.arange(1, count + 1) * slot_seconds
        by_hour = np.concatenate([[0.0], np.cumsum(self.hourly())])
        due = np.interp(ends, np.linspace(0, self.seconds, len(by_hour)), by_hour) * self.records
        bounds = np.concatenate([[0], np.round(due).astype(np.int64)])
        for slot in range(count):
            records = int(bounds[slot + 1] - bounds[slot])
            drawn = np.searchsorted(cumulative, random.random(records), side="right")
            keys = np.minimum(drawn, self.keys - 1).astype(np.int32)
            times = slot * slot_seconds + (np.arange(records) + 0.5) * (slot_seconds / max(records, 1))
            yield Arrivals(keys, times, float(ends[slot]))


WIKIPEDIA = Stream("Wikipedia-like", 22_000_000, 2_900_000, hottest=0.0932)
TWITTER = Stream("Twitter-like", 1_200_000_000, 31_000_000, hottest=0.0267, seconds=7 * DAY)


def zipf(exponent: float, records: int, keys: int = 10_000) -> Stream:
    """The paper's ZF: Zipf-distributed keys at an even rate, a second for each slot."""
    return Stream(f"Zipf {exponent:g}", records, keys, exponent, seconds=DAY, swing=0.0)
