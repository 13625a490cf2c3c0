"""A count whose records take a fixed time each: work that is nothing but waiting, for experiments with load."""

from __future__ import annotations

import time

from dpa import Reducer

_IDLE_SECONDS = 0.01
"""A reducer that is so far behind was idle, and does not make up for it."""


class PacedCount(Reducer[int, int]):
    """Counts, and takes `seconds` for each record, exactly so on average: a sleep that lasts too long shortens the
    next."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.seconds = seconds
        self._until = 0.0

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        now = time.monotonic()
        if now - self._until > _IDLE_SECONDS:
            self._until = now
        self._until += self.seconds
        time.sleep(max(self._until - now, 0.0))
        return state + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> dict[str, int]:
        return {"count": state}
