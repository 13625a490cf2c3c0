"""The splits of a source that no task reads yet, and the tasks that ask for some: the coordinator's view."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from operator import itemgetter
from typing import TypeAlias

from dpa.sources.splits import Split

_Numbered: TypeAlias = tuple[int, Split]
"""A split, or the rest of one, with its place in the input."""


class SplitQueue:
    """A task that asks is granted the next split, or hears that there is none. A task that could still read the rest of
    a split that a leaving task gives back has to wait instead.

    Splits are granted in their order. The rows of a split are emitted in order, whoever reads them, and where only one
    task reads, those of all splits: what a leaving task gives back is granted when all that it has emitted is
    processed, and who takes the place of the only reader waits for that too.
    """

    def __init__(self, splits: Iterable[Split]) -> None:
        self._splits = list(enumerate(splits))  # a heap
        self._read: dict[int, _Numbered] = {}  # by the task that reads it
        self._rests: dict[int, _Numbered] = {}  # by the task that has given it back, and has not left yet
        self._asking: list[int] = []
        self._readers: set[int] = set()  # that have been granted any
        self._refused: set[int] = set()  # that have heard that there is none
        self._left: set[int] = set()

    @property
    def is_read(self) -> bool:
        """Whether nothing is left to read, and nobody reads."""
        return not (self._splits or self._rests or self._read)

    def asks(self, task: int) -> None:
        """A task has nothing to read."""
        self._read.pop(task, None)
        self._asking.append(task)

    def keep(self, members: Collection[int]) -> None:
        """Others than these tasks have ended."""
        for tasks in (self._readers, self._refused, self._left):
            tasks.intersection_update(members)

    def gives_back(self, task: int, read: int) -> None:
        """A task that leaves has read `read` rows of the split that it was granted, and will not read the rest."""
        number, split = self._read.pop(task)
        rest = split.after(read)
        if rest.rows:
            self._rests[task] = number, rest

    def pauses(self, task: int, read: int) -> None:
        """A task that stays has read `read` rows of the split that it was granted; whoever asks next reads the rest."""
        self.gives_back(task, read)
        if task in self._rests:
            heappush(self._splits, self._rests.pop(task))

    @property
    def rest(self) -> tuple[Split, ...]:
        """What is to be read, while nobody reads."""
        return tuple(split for _, split in sorted(self._splits, key=itemgetter(0)))

    def left(self, task: int) -> None:
        """All that a task has emitted is processed, and it emits no more: what it gave back is next."""
        self._left.add(task)
        if task in self._rests:
            heappush(self._splits, self._rests.pop(task))

    def grants(self, members: Collection[int], leaving: Collection[int]) -> list[tuple[int, Split | None]]:
        """The answers to tasks that ask, None where there is no split; those that are left out wait.

        Args:
            members: those that stay or have come.
            leaving: those that leave.
        """
        if not self._asking:
            return []
        answers: list[tuple[int, _Numbered | None]] = []
        others_read = not self._refused.issuperset(members)
        in_order = len(members) == 1 and not self._left.issuperset(leaving)
        for task in self._asking:
            if task in leaving:
                answers.append((task, None if others_read else self._rests.pop(task, None) or self._next()))
            elif self._splits and not (in_order and task not in self._readers):
                answers.append((task, self._next()))
            elif not (self._splits or self._rests) and self._read.keys().isdisjoint(leaving):
                answers.append((task, None))
        self._read |= {task: split for task, split in answers if split is not None}
        self._readers |= self._read.keys()
        self._refused |= {task for task, split in answers if split is None}
        answered = {task for task, _ in answers}
        self._asking = [task for task in self._asking if task not in answered]
        return [(task, None if split is None else split[1]) for task, split in answers]

    def _next(self) -> _Numbered | None:
        return heappop(self._splits) if self._splits else None
