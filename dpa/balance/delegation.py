"""Worker delegation: a reducer watches itself, and tells at the end of each time slot whether it wants more or less.

CG paper, section V-C. How much a reducer has to do is its utilisation; that of a slot is compared with two thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpa.routing.groupings.signal import Signal, Wish

Utilisation = Literal["queue", "busy", "demand"]

_LEAST_PART = 0.5
"""A reducer that is told of a slot only when most of it is over judges it together with the next one: what comes in a
moment says nothing of a slot."""


@dataclass(frozen=True)
class DelegationOptions:
    """How a reducer judges itself.

    Attributes:
        slot_seconds: length of a time slot.
        theta_busy: above it a reducer wants less.
        theta_idle: below it a reducer wants more.
        utilisation: `queue`: the mean queue in units of `queue_records`, as the paper's engine has it. `busy`: the part
            of the time spent in user code, at most about 1. `demand`: the work that came in the slot in units of the
            slot, which is the paper's messages by capacity, and above 1 where more comes than can be done.
        queue_records: queue length that counts as full.
    """

    slot_seconds: float
    theta_busy: float
    theta_idle: float
    utilisation: Utilisation
    queue_records: int


class Delegation:
    """One reducer's watch. `at` must be called at every change of its queue, before the change is told."""

    def __init__(self, options: DelegationOptions) -> None:
        self.signal: Signal | None = None
        self._options = options
        self._slot: int | None = None
        self._began = self._seen = 0.0
        self._service_seconds: float | None = None
        self._arrived = self._done = 0
        self._work = self._queue_area = 0.0

    def arrived(self, records: int) -> None:
        """So many records have come."""
        self._arrived += records

    def worked(self, records: int, seconds: float) -> None:
        """User code took so long for so many records."""
        self._done += records
        self._work += seconds

    def at(self, now: float, queue: int) -> None:
        """It is `now` (seconds), and so many records have been queued since the last call. Slots begin at multiples of
        their length, so those of all reducers have the same numbers."""
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
        """Whether so many seconds are enough, a whole slot at first; and demand needs a service time, which is unknown
        as long as the first records are being processed."""
        least = self._options.slot_seconds * (_LEAST_PART if self.signal else 1)
        known = self._done > 0 or self._service_seconds is not None
        return elapsed >= least and (known or self._options.utilisation != "demand")

    def _judged(self, slot: int, elapsed: float) -> Signal:
        if self._done:
            self._service_seconds = self._work / self._done
        match self._options.utilisation:
            case "queue":
                found = self._queue_area / elapsed / self._options.queue_records
            case "busy":
                found = self._work / elapsed
            case "demand":
                found = self._arrived * (self._service_seconds or 0.0) / elapsed
        if found > self._options.theta_busy:
            wish = Wish.DECREASE
        else:
            wish = Wish.INCREASE if found < self._options.theta_idle else Wish.KEEP
        return Signal(slot, found, wish, self._arrived, self._service_seconds)
