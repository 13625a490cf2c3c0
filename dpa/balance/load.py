"""What a reducer measures of its load, where it arises: by token, and by key for the keys that come most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.routing.hashing import Hashes, Key

Records = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KeySample:
    """Keys and about how many records each has.

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
        key, hash: which.
        queued: about how many of its records are queued.
        rate: how many arrive a second, recently, from mappers.
        lower, upper: bounds of `rate`, as far as the sketch can tell.
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
        hot: the keys that come most, each part of its token's load.
    """

    tokens: Hashes
    queued: Records
    rates: Records
    hot: tuple[KeyLoad, ...] = ()


@dataclass(frozen=True, eq=False)
class Load:
    """A reducer's load.

    Attributes:
        queue: records accepted and not yet processed.
        epoch: number of the routing table held when that was measured.
        service_seconds: measured time to process one record; None before the first.
        evidence: how many records that measurement rests on, older ones counting less.
        sent_on, taken_over: records forwarded to other reducers so far, and accepted from them: what all have sent on
            and nobody has taken over is between two reducers.
        by_token: where the load lies; None where the strategy does not ask for it.
    """

    queue: int
    epoch: int
    service_seconds: float | None = None
    evidence: float = 0.0
    sent_on: int = 0
    taken_over: int = 0
    by_token: TokenLoad | None = None

    @property
    def delay(self) -> float:
        """The queueing delay: how long it takes to work off the queue, in seconds."""
        return self.queue * (self.service_seconds or 0.0)
