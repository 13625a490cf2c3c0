"""Which reducers have told of which time slot: many acknowledgements bring the same signal, and some plans need all."""

from __future__ import annotations

import numpy as np

_NEVER = -2


class Heard:
    """The newest slot that each reducer has told of."""

    def __init__(self, reducers: int) -> None:
        self._slots = np.full(reducers, _NEVER)
        self._complete = _NEVER

    def is_news(self, reducer: int, slot: int) -> bool:
        """Note that a reducer told of a slot; whether that is newer than all it has told of."""
        if slot <= self._slots[reducer]:
            return False
        self._slots[reducer] = slot
        return True

    def is_complete(self) -> bool:
        """Whether all have told of a newer slot than when this was last so."""
        least = int(self._slots.min())
        if least <= self._complete:
            return False
        self._complete = least
        return True
