"""What a sender offers a stage: its records by key, sampled as blocks are made.

Senders see the load as it is. What reaches a receiver has been held back by credit: while one receiver is overloaded,
the records of the others come in the proportion in which that one is served.
"""

from __future__ import annotations

import numpy as np

from dpa.execution.block import Block
from dpa.measure.load import KeySample, Offered
from dpa.routing.keys import Key, to_python

_ROWS = 2_048
"""Rows that all senders together look at between two reports, unless there are many senders: a thousandth of their time
is spent on that."""

_LEAST_ROWS = 16
"""Rows of a block that a sender looks at in any case."""

_PARTS = 4
"""A block is at most this part of them (a quarter), so that some of them are of later blocks."""

_SECONDS = 0.05
"""Once all are used up, time from one sampled block to the next. The records of the blocks between two are taken to
have the same keys."""

_NAMED = 0.01
"""A key with this part of a block's records is named."""


class OfferedMeter:
    """One sender's measurement on one edge."""

    def __init__(self, sender: int, senders: int) -> None:
        """Of the sender numbered `sender` of `senders`: each looks at its part of the rows that are needed."""
        self._random = np.random.default_rng(sender)
        self._rows = max(1, _ROWS // senders)  # the first block after a report is always looked at
        self._reported_at: float | None = None
        self._sampled_at = -np.inf
        self._looked_at = 0.0
        self._unsampled = 0
        self._samples: list[KeySample] = []
        self._names: dict[int, Key] = {}

    def add(self, block: Block, now: float) -> None:
        if self._reported_at is None:
            self._reported_at = now
        self._unsampled += block.rows
        if self._looked_at >= self._rows and now - self._sampled_at < _SECONDS:
            return
        self._sampled_at = now
        found, positions = block.sample(max(_LEAST_ROWS, self._rows // _PARTS), self._random)
        self._looked_at += found.rows
        frequent = np.flatnonzero(found.records >= _NAMED * block.rows)
        keys = to_python(block.keys.take(positions[frequent]))
        self._names |= zip(found.hashes[frequent].tolist(), keys, strict=True)
        self._samples.append(found.scaled(self._unsampled))
        self._unsampled = 0

    def report(self, now: float, *, ended: bool = False) -> Offered | None:
        """What was offered since the last report; None if nothing ever was."""
        if self._reported_at is None:
            return None
        seconds, sample = now - self._reported_at, KeySample.union(self._samples)
        if self._unsampled:
            sample = sample.scaled(sample.total + self._unsampled)
        names = self._names
        self._reported_at, self._looked_at, self._unsampled, self._samples, self._names = now, 0.0, 0, [], {}
        return Offered(seconds, sample, names, ended)
