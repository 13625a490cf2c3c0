"""How far the reading of an open input is behind what has come, channel by channel: the coordinator's view. The feed is
asked aside, every few seconds."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from dpa.protocol.wire.metrics import Lag

_EVERY = 3.0  # seconds from one question to the next

_MOST_MARKS = 64


class Lags:
    """Those of a source.

    Attributes:
        found: by channel, as of the last answer.
    """

    def __init__(self) -> None:
        self.found: Mapping[str, Lag] = {}
        self._marks: dict[str, list[tuple[float, int]]] = {}
        self._asked: Counter[str] | None = None
        self._due_at = 0.0

    def asks(self, came: Counter[str], now: float) -> bool:
        """Whether the feed is to be asked now; `came`: rows by channel that polls have given so far."""
        if self._asked is not None or now < self._due_at:
            return False
        self._asked, self._due_at = came.copy(), now + _EVERY
        return True

    def measured(self, behind: Mapping[str, int] | None, came: Counter[str], unread: Counter[str], now: float) -> None:
        """`behind`: rows by channel after all that polls had given when the feed was asked; None: unknown. `unread`: of
        what polls have given by now, the rows that tasks have not read."""
        asked, self._asked, found = self._asked or came, None, {}
        for channel in () if behind is None else sorted({*behind, *unread}):
            there = max(asked[channel] + behind[channel] if behind and channel in behind else 0, came[channel])
            read = came[channel] - unread[channel]
            found[channel] = Lag(there - read, round(self._age(channel, there, read, now), 3))
        self.found = found

    def _age(self, channel: str, there: int, read: int, now: float) -> float:
        """Seconds for which the first unread row has been there."""
        marks = self._marks.setdefault(channel, [])
        marks.append((now, max(there, marks[-1][1] if marks else 0)))
        while len(marks) > 1 and marks[1][1] <= read:
            del marks[0]
        if len(marks) > _MOST_MARKS:
            del marks[1:-1:2]
        moments, rows = zip(*marks, strict=True)
        return now - float(np.interp(read, rows, moments)) if read < there else 0.0
