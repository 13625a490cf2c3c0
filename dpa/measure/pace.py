"""How long a record takes now, for bounding what is in flight: quick to learn, and not deceived by small quanta
or by a long one now and then."""

from __future__ import annotations

_MEMORY = 0.7
"""How much a quantum counts when another one comes, for each record."""

_OVERHEAD = 0.0005
"""Seconds that a quantum takes whatever its records: what a record takes is not learnt from these."""

_NET = 0.125
"""At least this part of a quantum is taken to be of its records."""

_LONG = 4.0
"""A quantum whose records take more than this many times the usual is long. A single one may do what many earlier
records have caused, such as the folding of states: what is above is shared by all records of a while. The next long one
counts in full."""

_HALF_LIFE = 0.5
"""Seconds of quanta after which the share of waiting counts half, and so does what was above in a long quantum."""

_PRIOR = 0.05
"""Seconds of work without waiting that are assumed at first: a quantum of a moment may wait for many."""


class ServicePace:
    """One task's. `dpa.measure.service_time` is a mean over seconds with its error; this one is for the next moment."""

    def __init__(self) -> None:
        self._records = self._net = 0.0
        self._seconds = self._work = 0.0
        self._shared = self._sharing = 0.0
        self._was_long = False

    def observe(self, records: int, seconds: float, waited: float) -> None:
        """Record that a quantum of `records` records took `seconds`, and for `waited` of them had no processor."""
        work = max(seconds - waited, 0.0)
        net = max(work - _OVERHEAD, _NET * work)
        above = max(net - _LONG * records * self._net / self._records, 0.0) if self._records else 0.0
        was_long, self._was_long = self._was_long, above > 0
        if was_long:
            above = 0.0
        self._records = _MEMORY * self._records + records
        self._net = _MEMORY * self._net + net - above
        fading = 2.0 ** (-seconds / _HALF_LIFE)
        self._seconds = fading * self._seconds + seconds
        self._work = fading * self._work + work
        self._sharing = fading * self._sharing + records
        self._shared = fading * self._shared + above

    @property
    def seconds(self) -> float | None:
        """Seconds for one record, with the waiting for a processor that is usual now; None before the first."""
        if not self._records:
            return None
        net = self._net / self._records + self._shared / self._sharing
        return net * (self._seconds + _PRIOR) / (self._work + _PRIOR)
