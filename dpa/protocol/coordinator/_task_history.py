"""The tasks that a stage has and has had: what they reported last, and when they took part. Of those that went longest
ago, sums are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpa.measure.lives import Life, settled
from dpa.protocol.wire.metrics import Forgotten, TaskStats


class TaskHistory:
    """By number, ascending. No number is used twice.

    Attributes:
        tasks: the newest statistics of each task that is not forgotten.
        next: the number of the next task to come.
        forgotten: the sums over those that are; None: there are none.
    """

    def __init__(self, stage: str, tasks: int) -> None:
        self.tasks = {index: TaskStats(stage, index) for index in range(tasks)}
        self.next = tasks
        self.forgotten: Forgotten | None = None
        self._stage = stage
        self._lives = dict.fromkeys(self.tasks, Life())

    @property
    def every_task(self) -> list[TaskStats]:
        """Statistics that add up to those of all tasks that there have been."""
        return [*self.tasks.values(), *([] if self.forgotten is None else [self.forgotten.stats])]

    @property
    def lives(self) -> tuple[Life, ...]:
        return tuple(self._lives.values())

    def expect(self, numbers: Iterable[int], at: float, processed: int) -> None:
        """Tasks are to come. Here and below `at` is in seconds since the stream began, and `processed` is the number of
        records that the stage had processed by then."""
        for index in numbers:
            self.tasks[index] = TaskStats(self._stage, index)
            self._lives[index] = Life(at, at, processed, processed)  # not yet
            self.next = index + 1

    def abandon(self, numbers: Iterable[int]) -> None:
        """Tasks that were to come could not be started; others get their numbers."""
        for index in numbers:
            del self.tasks[index], self._lives[index]
            self.next = min(self.next, index)

    def change(self, coming: Iterable[int], going: Iterable[int], at: float, processed: int) -> None:
        for index in coming:
            self._lives[index] = Life(at, processed_before=processed)
        for index in going:
            self._lives[index] = replace(self._lives[index], went=at, processed_until=processed)

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
