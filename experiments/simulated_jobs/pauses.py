"""The times in which a simulated task does no work: its process restarts, or it is on its way to another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pauses:
    """Times without work, in order and apart.

    Attributes:
        intervals: from when until when, each in seconds of virtual time.
    """

    intervals: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, intervals: Iterable[tuple[float, float]]) -> Pauses:
        """Pauses in any order, which may overlap; those that end before they begin are none."""
        joined: list[tuple[float, float]] = []
        for since, until in sorted(interval for interval in intervals if interval[0] < interval[1]):
            if joined and since <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(until, joined[-1][1]))
            else:
                joined.append((since, until))
        return cls(tuple(joined))

    @property
    def seconds(self) -> float:
        """How long they are together."""
        return sum(until - since for since, until in self.intervals)

    def lasting(self, begin: float, seconds: float) -> float:
        """How many seconds pass until so many seconds of work are done that is taken up at `begin`."""
        passed = seconds
        for since, until in self.intervals:
            if begin + passed <= since:
                break
            passed += max(0.0, until - max(since, begin))
        return passed

    def working(self, since: float, until: float) -> list[tuple[float, float]]:
        """The parts of a time in which there is no pause."""
        parts = []
        for pause, over in self.intervals:
            if over <= since or pause >= until:
                continue
            if since < pause:
                parts.append((since, pause))
            since = over
        if since < until:
            parts.append((since, until))
        return parts
