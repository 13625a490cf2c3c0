"""W-Choices for reducers of unequal speed, ours: the least (load + 1) / capacity, and tail keys placed by capacity.

Three things differ from W-Choices. Capacities are estimated from the service times that reducers report. A tail key has
its two places among equal slots, and reducers hold slots in proportion to their capacity: else most tail keys of a
cluster with few fast machines would have two slow ones to choose from. And of a reducer that is ahead, only as many
tail keys go to their second place as it takes, always the same ones: most tail keys have one reducer, not two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpa.routing.groupings._head_tail import HeadTailGrouping
from dpa.routing.groupings._heard import Heard
from dpa.routing.groupings._shares import apportion, reassign
from dpa.routing.groupings.signal import Signal

SLOTS = 64
"""Slots for each reducer."""

SLACK = 4e-5
"""How far a reducer may be ahead of the least loaded before tail keys leave it, as a share of all records sent."""

_CHANGED = 0.1
"""A capacity is taken over when it differs by such a share from what is assumed."""

_LEAST_CAPACITY = 0.01
"""Of the mean, so one record weighs no more than a hundred: what a wrong measurement has done is made good soon."""


class WeightedWChoicesGrouping(HeadTailGrouping):
    """Its capacities have mean 1; all are 1 until reducers report service times."""

    def __init__(
        self,
        bins: int,
        capacities: npt.NDArray[np.float64] | None = None,
        *,
        slots: int = SLOTS,
        slack: float = SLACK,
    ) -> None:
        """Start with the capacities given, in any unit, shape (bins,)."""
        self._moved = 0
        super().__init__(bins, bins * slots)
        self._slack = slack
        self._seconds = np.zeros(bins)
        self._heard = Heard(bins)
        if capacities is not None:
            self._rely_on(capacities / capacities.mean())

    @property
    def moved(self) -> int:
        """How many slots have changed their reducer."""
        return self._moved

    def observe(self, reducer: int, signal: Signal) -> None:
        """Learn a reducer's service time. Capacities are judged once all have told of a new slot: some new ones among
        old ones would be taken for shares that nobody has."""
        if not signal.service_seconds or not self._heard.is_news(reducer, signal.slot):
            return
        self._seconds[reducer] = signal.service_seconds
        if self._heard.is_complete():
            speeds = self._seconds.min() / self._seconds
            found = np.maximum(speeds / speeds.mean(), _LEAST_CAPACITY)
            if np.any(np.abs(found * self._work - 1) > _CHANGED):
                self._rely_on(found)

    def _rely_on(self, capacities: npt.NDArray[np.float64]) -> None:
        super()._rely_on(capacities)
        self._moved += len(reassign(self._slot_owners, apportion(capacities, len(self._slot_owners))))
