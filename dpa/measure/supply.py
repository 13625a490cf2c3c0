"""How many records a second a task makes of what it reads while nothing holds it back: what it offers to those that it
feeds (the true output rate of a source, DS2, OSDI 2018, section 3)."""

from __future__ import annotations

import math

_PIECE = 0.25
"""Seconds after which what has been made without a break is a measurement, even if it is nothing."""

_WHOLE = 0.05
"""Seconds from which on a stretch counts in full: the newest of these is believed."""

_AFTER_HOLD = 0.25
"""A stretch that follows a hold counts for so much of one without; by the square of its length, where it is short."""

_HALF_LIFE = 10.0
"""Seconds after which a measurement counts for half as long a stretch."""


class Supply:
    """One task's.

    A task that was held back makes up for that first, if its input comes at a pace: it reads faster than rows come,
    until it has caught up or is held back again. So a stretch without a hold before it counts by its length, up to
    `_WHOLE`, one after a hold for less: a short one is nothing but making up.

    Attributes:
        rate: records a second; None before the first measurement.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._began: float | None = None
        self._made_at = 0.0
        self._is_held = False
        self._records = 0
        self._weight = 0.0
        self._at = -math.inf

    def begin(self, now: float) -> None:
        """Nothing holds the task back from now on."""
        if self._began is None:
            self._began, self._records, self._made_at = now, 0, now

    def made(self, records: int, now: float) -> None:
        """Records have been made."""
        self._records += records
        self._made_at = now
        if self._began is not None and now - self._began >= _PIECE:
            self.end(now)
            self.begin(now)

    def hold(self, now: float) -> None:
        """Something holds it back from now on. It may be at a step then, whose records are not known."""
        self.end(self._made_at)
        self._began = None
        self._is_held = True

    def end(self, now: float) -> None:
        """It has nothing to read from now on, or another stretch begins."""
        if self._began is None:
            return
        seconds, self._began = now - self._began, None
        if seconds <= 0 or (not self._records and seconds < _PIECE):
            return
        length = min(seconds / _WHOLE, 1.0)
        weight = _AFTER_HOLD * length**2 if self._is_held else length
        self._is_held = False
        if weight >= self._weight * 2.0 ** ((self._at - now) / _HALF_LIFE):
            self.rate, self._weight, self._at = self._records / seconds, weight, now
