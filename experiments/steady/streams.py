"""Keys over time, from a seed: those that stay as they are, and those that drift, alternate or surprise.

A stream is told for each of its records when the record would be processed if all reducers were always busy, so that a
change every two seconds comes every two seconds of work, whatever the rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa.sources.distributions import Ranks, zipf

KEYS = 10_000
"""Keys besides the hot ones."""

SORTED_KEYS = 200
LAST = 0.1
"""The last part of a stream, in which a late hot key comes."""

Floats: TypeAlias = npt.NDArray[np.float64]

Stream: TypeAlias = Callable[[np.random.Generator, Floats], Ranks]
"""Draws the rank of each record's key; shape (records,). It is given the records' moments, ascending, in seconds: ranks
from `KEYS` on are those of hot keys."""


def even(random: np.random.Generator, at: Floats) -> Ranks:
    """All keys alike."""
    return random.integers(0, KEYS, len(at))


def zipf_keys(exponent: float) -> Stream:
    """Zipf-distributed keys."""
    return lambda random, at: zipf(random, len(at), KEYS, exponent)


def hot(share: float, turn: Callable[[Floats], Floats] = np.zeros_like) -> Stream:
    """A hot key with this share of the records among even ones; `turn` gives its number at each moment."""

    def drawn(random: np.random.Generator, at: Floats) -> Ranks:
        is_hot = random.random(len(at)) < share
        return np.where(is_hot, KEYS + turn(at).astype(np.int64), even(random, at))

    return drawn


def drifting(share: float, seconds: float) -> Stream:
    """A hot key, after so many seconds another one, and so on."""
    return hot(share, lambda at: at // seconds)


def alternating(share: float, seconds: float) -> Stream:
    """Two hot keys in turn."""
    return hot(share, lambda at: at // seconds % 2)


def late(share: float) -> Stream:
    """Even keys, and a hot one in the last part of the stream."""

    def drawn(random: np.random.Generator, at: Floats) -> Ranks:
        surprised = hot(share)(random, at)
        return np.where(_part(at) < 1 - LAST, even(random, at), surprised)

    return drawn


def tenths(share: float) -> Stream:
    """Another hot key in every tenth of the stream."""
    return hot(share, lambda at: _part(at) * 10 // 1)


def in_order(random: np.random.Generator, at: Floats) -> Ranks:
    """Keys of equal frequency, sorted."""
    return (_part(at) * SORTED_KEYS).astype(np.int64)


def names(ranks: Ranks) -> pa.Array:
    """The keys of ranks: `k7`, or `hot 0` for the first rank from `KEYS` on."""
    used, codes = np.unique(ranks, return_inverse=True)
    made = [f"k{rank}" if rank < KEYS else f"hot {rank - KEYS}" for rank in used.tolist()]
    return pa.array(made, pa.string()).take(pa.array(codes))


def _part(at: Floats) -> Floats:
    """How much of the stream lies before each record, 0 to below 1."""
    return np.arange(len(at)) / max(len(at), 1)
