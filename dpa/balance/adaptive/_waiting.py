"""How much of their busy time reducers wait for a processor, of late: by their reports, and as far as chance allows.

A wait is the machine's more than the reducer's. Where tasks share processors, who waits for whom changes from moment to
moment, and a reducer that is seldom busy finds one at once; where a machine is crowded, its reducers wait for long.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from dpa.measure.load import Load

_NOISE = 3.0
"""Standard errors from that of all at which a share is half believed."""

_MOST = 0.95
"""No reducer waits for more than this share of its busy time for long."""


@dataclass
class _Waits:
    """Busy seconds, older ones counting less; and over these, the sum of the shares waited, and of their squares."""

    seconds: float = 0.0
    shares: float = 0.0
    squares: float = 0.0

    def add(self, seconds: float, share: float, fading: float) -> None:
        self.seconds = self.seconds * fading + seconds
        self.shares = self.shares * fading + seconds * share
        self.squares = self.squares * fading + seconds * share**2

    @property
    def mean(self) -> float:
        return self.shares / self.seconds

    def error(self, report_seconds: float) -> float:
        """The standard error of the mean; each report is a measurement."""
        reports = self.seconds / report_seconds
        if reports <= 1.5:
            return math.inf
        return math.sqrt(max(self.squares / self.seconds - self.mean**2, 0.0) / (reports - 1))


class Waiting:
    """The waits of one stage's reducers."""

    def __init__(self, half_life: float, report_seconds: float) -> None:
        """`half_life`: busy seconds after which a wait counts half; `report_seconds` lie between two reports."""
        self._half_life = half_life
        self._report_seconds = report_seconds
        self._waits: dict[int, _Waits] = {}
        self._reported_at: dict[int, float] = {}

    def add(self, reducer: int, load: Load, now: float) -> None:
        """Take in a report."""
        elapsed = now - self._reported_at.get(reducer, now - self._report_seconds)
        self._reported_at[reducer] = now
        busy = load.busy * elapsed
        if busy > 0:
            fading = 2.0 ** (-busy / self._half_life)
            self._waits.setdefault(reducer, _Waits()).add(busy, load.waited, fading)

    def follow(self, members: Collection[int]) -> None:
        """Others than these reducers are gone."""
        self._waits = {reducer: waits for reducer, waits in self._waits.items() if reducer in members}
        self._reported_at = {reducer: at for reducer, at in self._reported_at.items() if reducer in members}

    def measured(self, reducer: int) -> float:
        """The share of its busy time in which a reducer waited, 0 to 1; 0 of one that was never busy."""
        waits = self._waits.get(reducer)
        return min(waits.mean, _MOST) if waits else 0.0

    def believed(self) -> dict[int, float]:
        """The same of each reducer that has reported, shrunk to that of all as far as chance explains the
        difference."""
        seconds = sum(waits.seconds for waits in self._waits.values())
        if not seconds:
            return {}
        of_all = min(sum(waits.shares for waits in self._waits.values()) / seconds, _MOST)
        return {reducer: of_all + self._apart(reducer, of_all) for reducer in self._reported_at}

    def _apart(self, reducer: int, of_all: float) -> float:
        """How much of the difference between a reducer's waits and those of all is believed."""
        waits = self._waits.get(reducer)
        if waits is None:
            return 0.0
        apart, error = min(waits.mean, _MOST) - of_all, _NOISE * waits.error(self._report_seconds)
        return apart**3 / (apart**2 + error**2) if apart and math.isfinite(error) else 0.0
