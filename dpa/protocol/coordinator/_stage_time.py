"""The event time of one stage: what its sources say of it, what it has reached, and which windows it has closed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpa.protocol.coordinator._event_times import EventTimes, Held
from dpa.protocol.graph import Stage
from dpa.protocol.wire.cut import Reached
from dpa.protocol.wire.metrics import TaskStats


class StageTime:
    """Times of events are in microseconds, of the clock in seconds.

    Attributes:
        channels: those of a source that has event time; None: it has none, or processing time, or is no source.
        reached: what it had reached at the last cut.
        closed: its tasks have closed the windows that end by this time; None: none.
    """

    def __init__(self, stage: Stage) -> None:
        time = stage.time
        self.channels = None if time is None or time.is_added else EventTimes(time, stage.reached.channels)
        self.reached = replace(stage.reached, channels={})
        self.closed = stage.reached.closed
        self._opened_before = stage.reached.opens
        self._windows = stage.windows
        self._close_at = 0.0

    def held(self, *, is_open: bool) -> Held | None:
        """What holds the watermark of a source, whose input may be open; None: nothing does."""
        return None if self.channels is None else self.channels.held(is_open=is_open)

    def polled(self, now: float) -> None:
        if self.channels is not None:
            self.channels.polled(now)

    def opens(self, tasks: Iterable[TaskStats]) -> int | None:
        """The end of the first of the windows that are open, as far as tasks have said. What those said that are gone
        counts for those who have their states."""
        said = (self._opened_before, *(stats.opens for stats in tasks))
        return min(
            (end for end in said if end is not None and (self.closed is None or end > self.closed)), default=None
        )

    def is_due(self, now: float) -> bool:
        return self._windows is not None and now >= self._close_at

    def wait(self, now: float, held: float = 0.0) -> None:
        """The stream begins, or an epoch has ended, for which sources were held for some seconds."""
        if self._windows is not None:
            self._close_at = now + max(self._windows.every, held)

    def at_cut(self, opens: int | None, unread: Sequence[int]) -> Reached:
        """What it has reached at a cut; `unread`: the numbers of the splits that a source has not read, in order."""
        channels = {} if self.channels is None else self.channels.behind(unread)
        return replace(self.reached, opens=opens, channels=channels)
