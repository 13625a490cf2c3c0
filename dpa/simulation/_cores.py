"""The cores of a simulated machine, which pieces of user code share: the more of them run, the longer each takes."""

from __future__ import annotations


class Cores:
    """How many pieces of user code are running, and what that does to the next one.

    A piece that begins while others run gets its share of the cores as it is then, until it ends: shares do not change
    while it runs. Where all tasks always have work, that is what an even scheduler gives them on average.
    """

    def __init__(self, cores: int | None) -> None:
        """So many cores for all tasks; None: one for each."""
        self._cores = cores
        self._running = 0

    def begin(self, seconds: float) -> float:
        """A piece begins that needs a core for `seconds`; returns the seconds that it waits for one besides."""
        self._running += 1
        if self._cores is None:
            return 0.0
        return seconds * max(0.0, self._running / self._cores - 1)

    def end(self) -> None:
        """A piece has ended."""
        self._running -= 1
