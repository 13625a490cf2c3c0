"""Visits to a web site, and the sessions of its users: a gap of more than half an hour ends one. For
`configs/sessions.yaml`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpa import Generator, Process
from dpa.executors import Record
from dpa.sources.distributions import zipf

_FIRST_TIME = 893_980_800
"""The time of the first visit, in seconds since 1970: 1 May 1998, the days of the World Cup log."""


class Visits(Generator):
    """Visits, in the order of their time: `time` in seconds since 1970, `user` (0, 1, 2 ...).

    Users are Zipf-distributed and take turns: every `period` visits each rank is another user's, `step` further on. So
    a user visits often for a while, and then rarely: sessions have ends.

    Attributes:
        interval: seconds from one visit to the next.
    """

    def __init__(
        self, users: int = 50_000, exponent: float = 0.9, period: int = 1_000, step: int = 50, interval: float = 0.1
    ) -> None:
        self.users = users
        self.exponent = exponent
        self.period = period
        self.step = step
        self.interval = interval

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        positions = np.arange(start, start + rows)
        shift = positions // self.period * self.step
        user = (zipf(random, rows, self.users, self.exponent) + shift) % self.users
        time = _FIRST_TIME + (positions * self.interval).astype(np.int64)
        return pa.record_batch({"time": time, "user": user})


@dataclass
class Session:
    """A session that has not ended yet; times are in seconds since 1970."""

    began: int
    ended: int
    visits: int


class Sessions(Process[Session | None, int]):
    """The sessions of each key, whose values are the times of visits in seconds, in ascending order.

    Emits a row for each session: `user` (the key), `began`, `ended`, `visits`. Fails on a time that is less than the
    one before: the order of a key's values is that of its one source task.
    """

    def __init__(self, gap: int = 1_800) -> None:
        """`gap` is in seconds: visits further apart are of two sessions."""
        self.gap = gap

    def zero(self) -> Session | None:
        return None

    def process(self, key: int, state: Session | None, value: int) -> tuple[Session, list[Record]]:
        if state is None:
            return Session(value, value, 1), []
        if value < state.ended:
            raise ValueError(f"the visit at {value} comes after one at {state.ended}: visits must be sorted by time")
        if value - state.ended > self.gap:
            return Session(value, value, 1), self.finish(key, state)
        state.ended = value
        state.visits += 1
        return state, []

    def finish(self, key: int, state: Session | None) -> list[Record]:
        if state is None:
            return []
        return [{"user": key, "began": state.began, "ended": state.ended, "visits": state.visits}]
