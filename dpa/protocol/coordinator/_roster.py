"""The tasks of a stage: who there is, who comes and goes, and what each reported last."""

from __future__ import annotations

from typing import TypeAlias

from dpa.protocol.coordinator._task_history import TaskHistory
from dpa.protocol.wire.events import MoveTasks, TaskRequest
from dpa.protocol.wire.metrics import TaskStats
from dpa.routing.members import MemberChange

_Moment: TypeAlias = tuple[float, int]
"""Seconds since the stream began, and records that the stage had processed by then."""


class Roster:
    """Tasks by their numbers.

    Attributes:
        members: those that there are, ascending, without those that leave.
        leaving: those that leave: they know it, and are there still.
        ended: members that have nothing to read or to process any more.
        change: who comes and goes now; None: nobody.
    """

    def __init__(self, stage: str, tasks: int) -> None:
        self.members = list(range(tasks))
        self.leaving: frozenset[int] = frozenset()
        self.ended: set[int] = set()
        self.change: MemberChange | None = None
        self._heard_at: dict[int, float] = {}
        self._long, self._short = TaskHistory(stage, tasks), TaskHistory(stage, tasks)

    def history(self, *, long: bool) -> TaskHistory:
        """The tasks of all changes that the coordinator keeps, or of the last of them."""
        return self._long if long else self._short

    @property
    def tasks(self) -> dict[int, TaskStats]:
        return self._long.tasks

    @property
    def every_task(self) -> list[TaskStats]:
        return self._long.every_task

    @property
    def next(self) -> int:
        return self._long.next

    @property
    def up(self) -> list[int]:
        """The tasks that are up, ascending, those that leave too."""
        return sorted([*self.members, *self.leaving])

    @property
    def all_ended(self) -> bool:
        return self.ended.issuperset(self.members)

    @property
    def heard_at(self) -> float:
        """When the task that has been silent for longest reported last; 0 if one never did."""
        return min(self._heard_at.get(index, 0.0) for index in self.up)

    def note(self, stats: TaskStats, now: float) -> None:
        self._long.tasks[stats.index] = self._short.tasks[stats.index] = stats
        self._heard_at[stats.index] = now

    def change_for(self, request: TaskRequest) -> MemberChange:
        """Who comes and goes. Where tasks are fewer, those that have nothing to do any more go first, then the
        newest."""
        if isinstance(request, MoveTasks):
            return MemberChange(replaces=tuple((old, self.next + turn) for turn, old in enumerate(request.tasks)))
        more = request.tasks - len(self.members)
        if more > 0:
            return MemberChange(joins=tuple(range(self.next, self.next + more)))
        by_use = sorted(self.members, key=lambda index: (index in self.ended, index))
        return MemberChange(leaves=tuple(sorted(by_use[more:])))

    def begin(self, change: MemberChange, moment: _Moment) -> None:
        self.change = change
        for history in (self._long, self._short):
            history.expect(change.coming, *moment)

    def all_up(self, moment: _Moment) -> MemberChange:
        change = self._current
        for history in (self._long, self._short):
            history.change(change.coming, change.going, *moment)
        self.members = sorted({*self.members, *change.coming} - change.going)
        self.leaving = change.going
        return change

    def abandon(self) -> None:
        for history in (self._long, self._short):
            history.abandon(self._current.coming)
        self.end()

    def end(self) -> None:
        self.change, self.leaving = None, frozenset()
        self.ended.intersection_update(self.members)
        self._heard_at = {index: at for index, at in self._heard_at.items() if index in self.members}

    @property
    def _current(self) -> MemberChange:
        assert self.change is not None
        return self.change
