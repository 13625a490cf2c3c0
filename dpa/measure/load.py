"""A reducer's measurement of its own load: by token, and by key for the most frequent keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.routing.hashing import Hashes
from dpa.routing.keys import Key

Records = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KeySample:
    """Keys and the approximate number of records of each.

    Attributes:
        keys: shape (keys,), each once.
        hashes: their hashes, shape (keys,).
        records: shape (keys,); an estimate where they were sampled.
    """

    keys: pa.Array
    hashes: Hashes
    records: Records


@dataclass(frozen=True)
class KeyLoad:
    """The load of one key at one reducer.

    Attributes:
        key, hash: the key and its hash.
        queued: the approximate number of its records that are queued.
        rate: records that arrive a second, recently, from mappers.
        lower, upper: bounds of `rate` by the sketch.
    """

    key: Key
    hash: int
    queued: float
    rate: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class TokenLoad:
    """A reducer's load by token of the routing table it holds; tokens without any are left out.

    Attributes:
        tokens: positions, ascending, shape (tokens,).
        queued: records in the queue, shape (tokens,).
        rates: records that arrive a second, recently, from mappers, shape (tokens,).
        hot: the most frequent keys; the load of each is part of its token's.
    """

    tokens: Hashes
    queued: Records
    rates: Records
    hot: tuple[KeyLoad, ...] = ()

    def aged(self, seconds: float, done: float) -> TokenLoad:
        """The load expected `seconds` later, with `done` records processed, of all keys alike."""
        queued = self.queued + self.rates * seconds
        left = max(0.0, 1 - done / float(queued.sum())) if queued.any() else 0.0
        hot = (replace(key, queued=(key.queued + key.rate * seconds) * left) for key in self.hot)
        return replace(self, queued=queued * left, hot=tuple(hot))


@dataclass(frozen=True, eq=False)
class Load:
    """A reducer's load.

    Attributes:
        queue: records accepted and not yet processed.
        version: number of the routing table held when that was measured.
        service_seconds: measured time to process one record; None before the first.
        evidence: the number of records that this measurement rests on, older ones counting less.
        forwarded_out, forwarded_in: records forwarded to other reducers so far, and accepted from them. The difference
            of the sums over all reducers is on its way between two of them.
        by_token: the load by token; None unless the strategy needs it.
    """

    queue: int
    version: int
    service_seconds: float | None = None
    evidence: float = 0.0
    forwarded_out: int = 0
    forwarded_in: int = 0
    by_token: TokenLoad | None = None

    def aged(self, seconds: float) -> Load:
        """The load expected `seconds` later: more has arrived, and the reducer has worked."""
        if seconds <= 0:
            return self
        arriving = float(self.by_token.rates.sum()) if self.by_token is not None else 0.0
        done = seconds / self.service_seconds if self.service_seconds else 0.0
        queue = max(0, round(self.queue + arriving * seconds - done))
        return replace(self, queue=queue, by_token=self.by_token and self.by_token.aged(seconds, done))

    @property
    def delay(self) -> float:
        """The queueing delay: the time it takes to process the queue, in seconds."""
        return self.queue * (self.service_seconds or 0.0)
