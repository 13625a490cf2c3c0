"""The tasks that a stage has and has had: who there is, who comes and goes, and what each reported last."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from dpa.measure.skew import Life, settled
from dpa.protocol.wire.events import MoveTasks, TaskRequest
from dpa.protocol.wire.metrics import Forgotten, TaskStats
from dpa.routing.members import MemberChange

_Moment: TypeAlias = tuple[float, int]
"""Seconds since the stream began, and records that the stage had processed by then."""


class Roster:
    """Tasks by their numbers. No number is used twice.

    Attributes:
        members: those that there are, ascending, without those that leave.
        leaving: those that leave: they know it, and are there still.
        ended: members that have nothing to read or to process any more.
        tasks: the newest statistics of each task that is not forgotten, by ascending number.
        forgotten: the sums over those that are; None: there are none.
        next: the number of the next task.
    """

    def __init__(self, stage: str, tasks: int) -> None:
        self.members = list(range(tasks))
        self.leaving: frozenset[int] = frozenset()
        self.ended: set[int] = set()
        self.change: MemberChange | None = None
        self.tasks = {index: TaskStats(stage, index) for index in range(tasks)}
        self.next = tasks
        self.forgotten: Forgotten | None = None
        self._stage = stage
        self._lives = dict.fromkeys(self.tasks, Life())
        self._heard_at: dict[int, float] = {}

    @property
    def every_task(self) -> list[TaskStats]:
        """Statistics that add up to those of all tasks that there have been."""
        return [*self.tasks.values(), *([] if self.forgotten is None else [self.forgotten.stats])]

    @property
    def lives(self) -> tuple[Life, ...]:
        return tuple(self._lives.values())

    @property
    def up(self) -> list[int]:
        return sorted([*self.members, *self.leaving])

    @property
    def all_ended(self) -> bool:
        return self.ended.issuperset(self.members)

    @property
    def heard_at(self) -> float:
        """When the task that has been silent for longest reported last; 0 if one never did."""
        return min(self._heard_at.get(index, 0.0) for index in self.up)

    def note(self, stats: TaskStats, now: float) -> None:
        self.tasks[stats.index] = stats
        self._heard_at[stats.index] = now

    def change_for(self, request: TaskRequest) -> MemberChange:
        """Who comes and goes. Tasks that have nothing to do any more go first, then the newest."""
        if isinstance(request, MoveTasks):
            return MemberChange(replaces=tuple((old, self.next + turn) for turn, old in enumerate(request.tasks)))
        more = request.tasks - len(self.members)
        if more > 0:
            return MemberChange(joins=tuple(range(self.next, self.next + more)))
        by_use = sorted(self.members, key=lambda index: (index in self.ended, index))
        return MemberChange(leaves=tuple(sorted(by_use[more:])))

    def begin(self, change: MemberChange, moment: _Moment) -> None:
        self.change = change
        at, processed = moment
        for index in change.coming:
            self.tasks[index] = TaskStats(self._stage, index)
            self._lives[index] = Life(at, at, processed, processed)  # not yet
            self.next = index + 1

    def all_up(self, moment: _Moment) -> MemberChange:
        change, (at, processed) = self._current, moment
        for index in change.coming:
            self._lives[index] = Life(at, processed_before=processed)
        for index in change.going:
            self._lives[index] = replace(self._lives[index], went=at, processed_until=processed)
        self.members = sorted({*self.members, *change.coming} - change.going)
        self.leaving = change.going
        return change

    def abandon(self) -> None:
        """Tasks that were to come could not be started; others get their numbers."""
        for index in self._current.coming:
            del self.tasks[index], self._lives[index]
            self.next = min(self.next, index)
        self.end()

    def end(self) -> None:
        self.change, self.leaving = None, frozenset()
        self.ended.intersection_update(self.members)
        self._heard_at = {index: at for index, at in self._heard_at.items() if index in self.members}

    def forget(self, numbers: Iterable[int]) -> None:
        """Keep no more than the sums of tasks that went before all others that are kept."""
        found = self.forgotten or Forgotten(0, TaskStats(self._stage, 0))
        for index in numbers:
            life = self._lives[index]
            self._lives = dict(zip(self._lives, settled(self.lives, life.processed_until or 0), strict=True))
            del self._lives[index]
            seconds = found.seconds + life.seconds(life.went or 0.0)
            found = Forgotten(found.tasks + 1, found.stats.plus(self.tasks.pop(index)), seconds)
        self.forgotten = found

    @property
    def _current(self) -> MemberChange:
        assert self.change is not None
        return self.change
