"""Which part of its time a task is busy, and which part of that it waits for a processor."""

from __future__ import annotations


class BusyTime:
    """Since the last report. Work that has begun counts as far as it has come: one record may take many reports."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._working_since: float | None = None
        self._busy = self._waited = 0.0

    def arrived(self, now: float) -> None:
        """There is something to do; the time before the first time counts for nothing."""
        if self._since is None:
            self._since = now

    def began(self, now: float) -> None:
        """Work begins."""
        self.arrived(now)
        self._working_since = now

    def ended(self, now: float, waited: float) -> None:
        """Work ends; for `waited` seconds of it there was no processor."""
        if self._working_since is not None:
            self._busy += now - self._working_since
            self._working_since = None
        self._waited += waited

    def report(self, now: float) -> tuple[float, float]:
        """The part of the time in which the task was busy, and the part of that in which it waited, both 0 to 1."""
        if self._working_since is not None:
            self._busy += now - self._working_since
            self._working_since = now
        elapsed = 0.0 if self._since is None else now - self._since
        busy, waited = self._busy, self._waited
        self._since = None if self._since is None else now
        self._busy = self._waited = 0.0
        return min(1.0, busy / elapsed) if elapsed > 0 else 0.0, min(1.0, waited / busy) if busy > 0 else 0.0
