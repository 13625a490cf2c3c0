"""W-Choices for reducers of unequal speed, ours: the least (load + 1) / capacity, and tail keys placed by capacity.

Three things differ from W-Choices. Capacities are estimated from the service times that reducers report. A tail key has
two equal slots, and reducers hold slots in proportion to their capacity: else most tail keys of a cluster with few fast
machines would have two slow ones to choose from. And a reducer that is ahead gives up no more tail keys to their second
slot than it must, always the same ones: most tail keys have one reducer, not two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._head_tail import HeadTailGrouping
from dpa.routing.groupings._reported_slots import ReportedSlots
from dpa.routing.groupings._shares import apportion, reassign
from dpa.routing.groupings.signal import Signal

SLOTS = 64
"""Slots for each reducer."""

SLACK = 4e-5
"""How far a reducer may be ahead of the least loaded before tail keys leave it, as a share of all records sent."""

_CHANGED = 0.1
"""A measured capacity replaces the assumed one when it differs by this share."""

_MIN_CAPACITY = 0.01
"""Of the mean, so that one record weighs no more than a hundred: the effect of a wrong measurement soon passes."""


class WeightedWChoicesGrouping(HeadTailGrouping):
    """Capacities have mean 1; all are 1 until reducers report service times."""

    def __init__(
        self,
        reducers: int,
        capacities: npt.NDArray[np.float64] | None = None,
        *,
        slots: int = SLOTS,
        slack: float = SLACK,
    ) -> None:
        """Start with the capacities given, in any unit, shape (reducers,)."""
        self._moved = 0
        super().__init__(reducers, reducers * slots)
        self._slack = slack
        self._seconds = np.zeros(reducers)
        self._reported = ReportedSlots(reducers)
        if capacities is not None:
            self._rely_on(capacities / capacities.mean())

    @property
    def moved(self) -> int:
        """The number of times that a slot changed its reducer."""
        return self._moved

    def observe(self, reducer: int, signal: Signal) -> None:
        """Receive a reducer's service time. Capacities are updated once all reducers have reported a new slot: new
        service times among old ones would give shares that no reducer has."""
        if not signal.service_seconds or not self._reported.is_news(reducer, signal.slot):
            return
        self._seconds[reducer] = signal.service_seconds
        if self._reported.is_complete():
            speeds = self._seconds.min() / self._seconds
            found = np.maximum(speeds / speeds.mean(), _MIN_CAPACITY)
            if np.any(np.abs(found * self._work - 1) > _CHANGED):
                self._rely_on(found)

    def _rely_on(self, capacities: npt.NDArray[np.float64]) -> None:
        super()._rely_on(capacities)
        self._moved += len(reassign(self._slot_owners, apportion(capacities, len(self._slot_owners))))
