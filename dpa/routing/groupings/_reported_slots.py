"""Which reducers have reported which time slot: many acknowledgements carry the same signal, and some decisions need
that of every reducer."""

from __future__ import annotations

import numpy as np

_NEVER = -2


class ReportedSlots:
    """The newest slot that each reducer has reported."""

    def __init__(self, reducers: int) -> None:
        self._slots = np.full(reducers, _NEVER)
        self._complete = _NEVER

    def is_news(self, reducer: int, slot: int) -> bool:
        """Record that a reducer reported a slot. Returns whether that is its newest."""
        if slot <= self._slots[reducer]:
            return False
        self._slots[reducer] = slot
        return True

    def is_complete(self) -> bool:
        """Whether all have reported a newer slot than when this last returned true."""
        least = int(self._slots.min())
        if least <= self._complete:
            return False
        self._complete = least
        return True
