"""The wall time of each phase of a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from dpa.result import Seconds


class Stopwatch:
    """Wall time by phase, in seconds. A phase ends where the next one begins.

    Attributes:
        began: the moment of creation, in seconds since the epoch.
        phase: the phase that is being timed, or None.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.began = self._since = clock()
        self.phase: str | None = None
        self._spent = dict.fromkeys(("startup", "load", "stream", "merge", "reference"), 0.0)

    def enter(self, phase: str | None, ago: float = 0.0) -> None:
        """Record that a phase began `ago` seconds before now, but not before the last one; with None, that the last
        one ended."""
        moment = max(self._since, self._clock() - ago)
        if self.phase is not None:
            self._spent[self.phase] += moment - self._since
        self.phase, self._since = phase, moment

    def correct(self, **seconds: float) -> None:
        """Replace what was measured from afar by what is known exactly."""
        self._spent.update(seconds)

    @property
    def since_began(self) -> float:
        """Seconds since the creation."""
        return self._clock() - self.began

    def seconds(self, first_record: float | None = None) -> Seconds:
        """The times so far; `first_record` is a moment, in seconds since the epoch."""
        self.enter(self.phase)
        first = None if first_record is None else first_record - self.began
        return Seconds(**self._spent, total=self.since_began, first_record=first)
