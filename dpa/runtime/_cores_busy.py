"""How busy the processors of this task's node are, with whatever runs there."""

from __future__ import annotations

from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = slice(3, 5)
"""Of the times of a line: idle, and waiting for a disk."""
_OWN = 8
"""The times that add up: what follows is part of the others."""


class CoresBusy:
    """The used part of all processor time, from one question to the next. Linux says it, other systems do not: there it
    is always 0."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._before = self._times()

    def since_last(self) -> float:
        """0 to 1; 0 where it is not known."""
        before, self._before = self._before, self._times()
        spent = [now - was for now, was in zip(self._before, before, strict=False)]
        total = sum(spent)
        return min(1.0, max(0.0, 1 - sum(spent[_IDLE]) / total)) if total > 0 else 0.0

    def _times(self) -> list[int]:
        try:
            with self._stat.open(encoding="ascii") as file:
                return [int(ticks) for ticks in file.readline().split()[1 : 1 + _OWN]]
        except (OSError, ValueError):
            return []
