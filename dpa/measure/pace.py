"""How long a record takes now, for bounding what is in flight: quick to learn, and not deceived by small quanta."""

from __future__ import annotations

_MEMORY = 0.7
"""How much a quantum counts when another one comes, for each record."""

_OVERHEAD = 0.0005
"""Seconds that a quantum takes whatever its records: what a record takes is not learnt from these."""

_NET = 0.125
"""At least this part of a quantum is taken to be of its records."""

_HALF_LIFE = 0.5
"""Seconds of work after which the share of waiting counts half."""

_PRIOR = 0.05
"""Seconds of work without waiting that are assumed at first: a quantum of a moment may wait for many."""


class Pace:
    """One task's. `dpa.measure.service_time` is a mean over seconds with its error; this one is for the next moment."""

    def __init__(self) -> None:
        self._records = self._net = 0.0
        self._seconds = self._work = 0.0

    def observe(self, records: int, seconds: float, waited: float) -> None:
        """Record that a quantum of `records` records took `seconds`, and for `waited` of them had no processor."""
        work = max(seconds - waited, 0.0)
        self._records = _MEMORY * self._records + records
        self._net = _MEMORY * self._net + max(work - _OVERHEAD, _NET * work)
        fading = 2.0 ** (-seconds / _HALF_LIFE)
        self._seconds = fading * self._seconds + seconds
        self._work = fading * self._work + work

    @property
    def seconds(self) -> float | None:
        """Seconds for one record, with the waiting for a processor that is usual now; None before the first."""
        if not self._records:
            return None
        return self._net / self._records * (self._seconds + _PRIOR) / (self._work + _PRIOR)
