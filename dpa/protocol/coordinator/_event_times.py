"""How far the event time of a source's input has come, channel by channel: the coordinator's view.

The rows of a channel are out of the order of their times by no more than was promised (`SourceTime.out_of_order`). So
what is read of it from its first row on, without a gap, says how early the others may be. Who reads later splits
meanwhile says nothing."""

import bisect
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpa.protocol.graph import Stage
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.snapshots import ChannelTime
from dpa.sources.event_time import SourceTime
from dpa.sources.splits import Split, channel_of


@dataclass(frozen=True)
class WatermarkHolder:
    """The channel with the least watermark of a source.

    Attributes:
        watermark: event time, in microseconds; None: the channel has none yet.
        split: the number of the first split of the channel that is not read; None: all are.
    """

    watermark: int | None
    channel: str
    split: int | None


class _Channel:
    """One channel. `ahead`: the greatest event times read after a gap, by the numbers of splits."""

    def __init__(self, known: ChannelTime) -> None:
        self.quiet_since = math.inf
        self.ahead = dict(known.ahead)
        self._greatest = known.greatest
        self._unread: deque[int] = deque()
        self._read: set[int] = set()

    def comes(self, number: int) -> None:
        self._unread.append(number)
        self.quiet_since = math.inf

    def is_read(self, number: int) -> None:
        self._read.add(number)

    def reaches(self, number: int, time: int) -> None:
        self.ahead[number] = max(time, self.ahead.get(number, time))

    @property
    def first(self) -> int | None:
        """The first split that is not read; None: all are."""
        while self._unread and self._unread[0] in self._read:
            self._read.discard(self._unread.popleft())
        return self._unread[0] if self._unread else None

    @property
    def greatest(self) -> int | None:
        """The greatest event time of what is read without a gap."""
        first = self.first
        for number in [number for number in self.ahead if first is None or number <= first]:
            time = self.ahead.pop(number)
            self._greatest = time if self._greatest is None else max(time, self._greatest)
        return self._greatest


class EventTimes:
    """Those of a source that has event time."""

    def __init__(self, options: SourceTime, known: Mapping[str, ChannelTime]) -> None:
        self._options = options
        self._channels = {name: _Channel(time) for name, time in known.items()}
        self._nothing = _Channel(ChannelTime())
        self._of: dict[int, _Channel] = {}
        self._polled_at = -math.inf

    def comes(self, number: int, split: Split) -> None:
        """A split waits to be read; each has a greater number than those before it."""
        channel = self._channels.setdefault(channel_of(split), _Channel(ChannelTime()))
        self._of[number] = channel
        channel.comes(number)

    def reaches(self, number: int, time: int | None) -> None:
        """Rows of a split are read, the latest of this time; None: none of them has one."""
        if time is not None:
            self._of[number].reaches(number, time)

    def is_read(self, number: int) -> None:
        self._of.pop(number).is_read(number)

    def polled(self, now: float) -> None:
        """A poll has given all there is, so a channel that was read to its end before the poll is quiet."""
        self._polled_at = now
        for channel in (self._nothing, *self._channels.values()):
            if channel.first is None:
                channel.quiet_since = min(now, channel.quiet_since)

    def held(self, *, is_open: bool) -> WatermarkHolder | None:
        """What holds the watermark; None: all channels are idle, or at their end. `is_open`: more rows may come."""
        out_of_order: int | None = self._options.out_of_order
        if out_of_order is None and is_open:
            out_of_order = 0
        found = []
        for name, channel in (self._channels or {"": self._nothing}).items():
            if channel.first is not None or (is_open and not self._is_idle(channel)):
                time = channel.greatest
                watermark = None if time is None or out_of_order is None else time - out_of_order
                found.append(WatermarkHolder(watermark, name, channel.first))
        return min(found, key=lambda held: -math.inf if held.watermark is None else held.watermark, default=None)

    def _is_idle(self, channel: _Channel) -> bool:
        idle = self._options.idle
        return idle is not None and self._polled_at - channel.quiet_since >= idle

    def behind(self, unread: Sequence[int]) -> Mapping[str, ChannelTime]:
        """What the channels have reached at a cut. A job that resumes numbers the splits that are not read, which have
        these numbers in order, from 0 on."""
        found = {}
        for name, channel in self._channels.items():
            greatest, ahead = channel.greatest, {}
            for number, time in sorted(channel.ahead.items(), key=lambda item: item[1]):
                ahead[bisect.bisect_left(unread, number)] = time
            found[name] = ChannelTime(greatest, ahead)
        return found


class StageTime:
    """Times of events are in microseconds, of the clock in seconds.

    Attributes:
        reached: what it had reached at the last cut.
        closed: its tasks have closed the windows that end by this time; None: none.
    """

    def __init__(self, stage: Stage) -> None:
        self.reached = replace(stage.reached, channels={})
        self.closed = stage.reached.closed
        self._opened_before = stage.reached.opens
        self._windows = stage.windows
        self._close_at = 0.0

    def opens(self, tasks: Iterable[TaskStats]) -> int | None:
        """The end of the first open window that tasks have named. What those named that are gone counts for those
        who have their states."""
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
