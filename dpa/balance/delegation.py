"""Worker delegation: a reducer judges itself, and requests at the end of each time slot more work or less.

CG paper, section V-C. The reducer compares its utilisation in the slot with two thresholds."""

from dpa.routing.groupings.base import CapacityRequest, Signal
from dpa.routing.groupings.options import SignalOptions

_MIN_PART = 0.5
"""The share of a slot that must have passed before it is judged. A slot that is noticed later than that is judged
together with the next one: what comes in a moment says nothing of a slot."""


class Delegation:
    """One reducer's judgement of itself. `advance` must be called at every change of its queue, before the change is
    reported."""

    def __init__(self, options: SignalOptions, queue_records: int = 1, queue_seconds: float | None = None) -> None:
        """`queue_records`: queue length that counts as full; `queue_seconds`: queueing delay from which a shorter queue
        is full, too, since senders hold it there, None: none."""
        self.signal: Signal | None = None
        self._options = options
        self._queue_records, self._queue_seconds = max(1, queue_records), queue_seconds
        self._slot: int | None = None
        self._began = self._seen = 0.0
        self._service_seconds: float | None = None
        self._arrived = self._done = 0
        self._work = self._queue_area = 0.0

    def arrived(self, records: int) -> None:
        self._arrived += records

    def worked(self, records: int, seconds: float) -> None:
        self._done += records
        self._work += seconds

    def advance(self, now: float, queue: int) -> None:
        """Advance to time `now` (seconds); `queue` is the number of records queued since the last call. Slots begin at
        multiples of their length, so those of all reducers have the same numbers."""
        slot = int(now // self._options.slot_seconds)
        if self._slot is not None:
            self._queue_area += queue * (now - self._seen)
        self._seen = now
        if self._slot is None:
            self._slot, self._began = slot, now
        elif slot > self._slot and self._can_judge(now - self._began):
            self.signal = self._judged(self._slot, now - self._began)
            self._slot, self._began = slot, now
            self._arrived = self._done = 0
            self._work = self._queue_area = 0.0

    def _can_judge(self, elapsed: float) -> bool:
        # A whole slot at first. Demand needs a service time too, which is unknown while the first records are
        # processed.
        least = self._options.slot_seconds * (_MIN_PART if self.signal else 1)
        known = self._done > 0 or self._service_seconds is not None
        return elapsed >= least and (known or self._options.utilisation != "demand")

    def _judged(self, slot: int, elapsed: float) -> Signal:
        if self._done:
            self._service_seconds = self._work / self._done
        match self._options.utilisation:
            case "queue":
                found = self._queue_area / elapsed / self._full_queue
            case "busy":
                found = self._work / elapsed
            case "demand":
                found = self._arrived * (self._service_seconds or 0.0) / elapsed
        if found > self._options.theta_busy:
            request = CapacityRequest.DECREASE
        else:
            request = CapacityRequest.INCREASE if found < self._options.theta_idle else CapacityRequest.KEEP
        return Signal(slot, found, request, self._arrived, self._service_seconds)

    @property
    def _full_queue(self) -> float:
        if self._queue_seconds is None or not self._service_seconds:
            return self._queue_records
        return max(1.0, min(self._queue_records, self._queue_seconds / self._service_seconds))
