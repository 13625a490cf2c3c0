"""What generators draw from: Zipf-distributed ranks, and names for them."""

from functools import lru_cache
from string import ascii_lowercase
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ranks = npt.NDArray[np.int64]


def zipf(random: np.random.Generator, size: int | tuple[int, ...], keys: int, exponent: float) -> Ranks:
    """Draw ranks 0 to `keys - 1`; rank r has a probability proportional to (r + 1) ** -exponent. (Numpy's `zipf` has no
    greatest rank, and needs an exponent above 1.)"""
    return np.searchsorted(_cumulative(keys, exponent), random.random(size), side="right").astype(np.int64)


def names(ranks: Ranks, keys: int) -> pa.Array:
    """A name for each rank below `keys`, such as `c2`: first letters take turns, `a0`, `b1` ... `z25`, `a26`."""
    return _names(keys).take(pa.array(ranks))


@lru_cache(maxsize=8)
def _cumulative(keys: int, exponent: float) -> npt.NDArray[np.float64]:
    """The probability of a rank up to each one but the last, so that every draw finds a rank."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    return cast("npt.NDArray[np.float64]", np.cumsum(weights / weights.sum())[:-1])


@lru_cache(maxsize=8)
def _names(keys: int) -> pa.Array:
    return pa.array([f"{ascii_lowercase[rank % len(ascii_lowercase)]}{rank}" for rank in range(keys)])
