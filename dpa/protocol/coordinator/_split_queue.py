"""The splits of a source that no task reads yet, and the tasks that ask for some: the coordinator's view."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from operator import itemgetter
from types import MappingProxyType
from typing import TypeAlias

from dpa.protocol.coordinator._event_times import EventTimes, WatermarkHolder
from dpa.protocol.graph import StageInput
from dpa.protocol.wire.snapshots import ChannelTime
from dpa.sources.feed import Position
from dpa.sources.splits import FirstRows, Split, channel_of, joined
from dpa.windows.options import micros

_Numbered: TypeAlias = tuple[int, Split]  # a split, or the rest of one, with its place in the input


class SplitQueue:
    """A task that asks is granted the next split, or hears that there is none. A task that could still read the rest of
    a split that a leaving task gives back has to wait instead.

    Splits are granted in their order. The rows of a split are emitted in order, whoever reads them, and where only one
    task reads, those of all splits: what a leaving task gives back is granted when all that it has emitted is
    processed, and who takes the place of the only reader waits for that too.

    Attributes:
        position: where the next poll of an open input continues; None: no more splits come.
        given: what polls have given, if that is kept.
        goes_by_clock: whether rows have the time at which they are read.
        latest: the greatest event time that was read, in microseconds since 1970; None: there is none.
        came: rows of all splits so far, by channel.
    """

    def __init__(self, source: StageInput, known: Mapping[str, ChannelTime] = MappingProxyType({})) -> None:
        """`known`: the event time that channels had reached at the cut with which the job begins."""
        self._splits = list(enumerate(source.splits))  # a heap
        self._number = len(self._splits)
        self.position = source.position
        self.given = None if source.given is None else [*source.given]
        self._is_polled = self._has_heard = False
        self._read: dict[int, _Numbered] = {}  # by the task that reads it
        self._rests: dict[int, _Numbered] = {}  # by the task that has given it back, and has not left yet
        self._asking: list[int] = []
        self._readers: set[int] = set()  # that have been granted any
        self._refused: set[int] = set()  # that have heard that there is none
        self._left: set[int] = set()
        time = source.time
        self.goes_by_clock = time is not None and time.is_added
        self._times = None if time is None or time.is_added else EventTimes(time, known)
        self._noted: list[tuple[int, Split]] | None = [] if source.is_logged else None
        self.latest: int | None = None
        self.came: Counter[str] = Counter()
        self._read_by: dict[int, int] = {}  # rows that a task had read in all when it asked last
        for number, split in self._splits:
            self._comes(number, split)

    @property
    def is_read(self) -> bool:
        return self.position is None and self.is_caught_up

    @property
    def is_caught_up(self) -> bool:
        """Whether all that has come is read. Not before the first poll is answered: until then nothing is known."""
        return not (self._splits or self._rests or self._read) and (self._has_heard or self.position is None)

    def poll(self, tasks: int) -> Position | None:
        """The position to poll at now, because fewer splits wait than there are tasks; None: do not poll."""
        if self.position is None or self._is_polled or len(self._splits) >= tasks:
            return None
        self._is_polled = True
        return self.position

    def polled(self, splits: Iterable[Split], position: Position | None, now: float) -> None:
        self._is_polled, self._has_heard = False, True
        if self.position is not None:  # else the input was closed meanwhile, and more is not wanted
            for split in splits:
                heappush(self._splits, (self._number, split))
                self._comes(self._number, split)
                self._number += 1
                self._give(split)
            self.position = position
        if self._times is not None:
            self._times.polled(now)

    def held(self, now: float) -> WatermarkHolder | None:
        if self.goes_by_clock:
            return None if self.is_read else WatermarkHolder(micros(now), "", None)
        return None if self._times is None else self._times.held(is_open=self.position is not None)

    @property
    def channels(self) -> Mapping[str, ChannelTime]:
        return {} if self._times is None else self._times.behind(self._waiting)

    def _give(self, split: Split) -> None:
        if self.given is not None:
            _add(self.given, split)

    def close(self) -> None:
        self.position = None

    def asks(self, task: int, read: int = 0) -> None:
        """`read`: rows that the task has read in all."""
        self._read_by[task] = read
        if task in self._read:
            number, split = self._read.pop(task)
            self._note(number, split, split.rows)
            self._ends(number)
        self._asking.append(task)

    def keep(self, members: Collection[int]) -> None:
        for tasks in (self._readers, self._refused, self._left):
            tasks.intersection_update(members)

    def gives_back(self, task: int, read: int) -> None:
        """A task that leaves has read `read` rows of its split. Others get the rest once the task has `left`."""
        number, split = self._read.pop(task)
        self._note(number, split, read)
        rest = split.after(read)
        if rest.rows:
            self._rests[task] = number, rest
        else:
            self._ends(number)

    def pauses(self, task: int, read: int) -> None:
        """A task that stays has read `read` rows of its split. The task that asks next gets the rest."""
        self.gives_back(task, read)
        if task in self._rests:
            heappush(self._splits, self._rests.pop(task))

    @property
    def _waiting(self) -> list[int]:
        return sorted(number for number, _ in self._splits)

    @property
    def rest(self) -> tuple[Split, ...]:
        return tuple(split for _, split in sorted(self._splits, key=itemgetter(0)))

    def unread(self, read: Mapping[int, int]) -> Counter[str]:
        """Rows by channel that have come, and that tasks have not read; `read`: rows that each has read in all."""
        found: Counter[str] = Counter()
        for _, split in (*self._splits, *self._rests.values()):
            found[channel_of(split)] += split.rows
        for task, (_, split) in self._read.items():
            found[channel_of(split)] += max(0, split.rows - max(0, read.get(task, 0) - self._read_by[task]))
        return found

    def reaches(self, task: int, time: int | None) -> None:
        """The greatest event time that a task has read in its split; None: it has read none."""
        if self._times is not None and task in self._read:
            self._times.reaches(self._read[task][0], time)
        if time is not None:
            self.latest = time if self.latest is None else max(time, self.latest)

    def reader(self, number: int) -> int | None:
        return next((task for task, (read, _) in self._read.items() if read == number), None)

    def _comes(self, number: int, split: Split) -> None:
        self.came[channel_of(split)] += split.rows
        if self._times is not None:
            self._times.comes(number, split)

    def _ends(self, number: int) -> None:
        if self._times is not None:
            self._times.is_read(number)

    def left(self, task: int) -> None:
        """All that a task has emitted is processed: what it gave back may be granted without rows changing order."""
        self._left.add(task)
        if task in self._rests:
            heappush(self._splits, self._rests.pop(task))

    def grants(self, members: Collection[int], leaving: Collection[int]) -> list[tuple[int, Split | None]]:
        """The answers to tasks that ask; None: there are no more splits. Tasks without an answer wait."""
        if not self._asking or not (self._splits or self.position is None or leaving):
            return []
        answers: list[tuple[int, _Numbered | None]] = []
        others_read = not self._refused.issuperset(members)
        in_order = len(members) == 1 and not self._left.issuperset(leaving)
        for task in self._asking:
            # A task that leaves stops here, and others read what it gave back. Once all others have heard that there is
            # no more, they are done and ask no more: then it reads the rest itself.
            if task in leaving:
                answers.append((task, None if others_read else self._rests.pop(task, None) or self._next()))
            # Rows that one task reads alone keep their order. So a task that takes its place waits until all rows that
            # the other has emitted are processed.
            elif self._splits and not (in_order and task not in self._readers):
                answers.append((task, self._next()))
            # "No more" is final. It is not said while a task that leaves may give back the rest of its split.
            elif self.position is None and not (self._splits or self._rests) and self._read.keys().isdisjoint(leaving):
                answers.append((task, None))
        self._read |= {task: split for task, split in answers if split is not None}
        self._readers |= self._read.keys()
        self._refused |= {task for task, split in answers if split is None}
        answered = {task for task, _ in answers}
        self._asking = [task for task in self._asking if task not in answered]
        return [(task, None if split is None else split[1]) for task, split in answers]

    def _note(self, number: int, split: Split, read: int) -> None:
        if self._noted is not None and read:
            self._noted.append((number, split if read == split.rows else FirstRows(split, read)))

    def take_read(self) -> tuple[Split, ...]:
        """The splits that were read since the last call, in the input's order; empty unless they are logged. Called
        only while no task reads."""
        if self._noted is None:
            return ()
        found: list[Split] = []
        for _, split in sorted(self._noted, key=itemgetter(0)):
            _add(found, split)
        self._noted = []
        return tuple(found)

    def _next(self) -> _Numbered | None:
        return heappop(self._splits) if self._splits else None


def _add(splits: list[Split], split: Split) -> None:
    """Add a split; join it with the last one if it continues that."""
    both = joined(splits[-1], split) if splits else None
    if both is not None:
        splits.pop()
    splits.append(split if both is None else both)
