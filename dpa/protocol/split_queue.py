"""The splits of a source that no task reads yet, and the tasks that ask for some: the coordinator's view."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from dpa.sources.splits import Split


class SplitQueue:
    """A task that asks is granted the next split, or told that there is none. Nobody is told so who could still read
    the rest of a split that a leaving task gives back.

    The rows of a split are emitted in order, whoever reads them, and where only one task reads, those of all splits:
    what a leaving task gives back is granted when all that it has emitted is processed, and who takes the place of the
    only reader waits for that too.
    """

    def __init__(self, splits: Iterable[Split]) -> None:
        self._splits = deque(splits)
        self._read: dict[int, Split] = {}  # by the task that reads it
        self._rests: dict[int, Split] = {}  # by the task that has given it back, and has not left yet
        self._asking: list[int] = []
        self._told: set[int] = set()  # that there is none
        self._left: set[int] = set()

    def asks(self, task: int) -> None:
        """A task has nothing to read."""
        self._read.pop(task, None)
        self._asking.append(task)

    def gives_back(self, task: int, read: int) -> None:
        """A task that leaves has read so many rows of the split that it was granted, and will not read the rest."""
        rest = self._read.pop(task).after(read)
        if rest.rows:
            self._rests[task] = rest

    def left(self, task: int) -> None:
        """All that a task has emitted is processed, and it emits no more: what it gave back is next."""
        self._left.add(task)
        if task in self._rests:
            self._splits.appendleft(self._rests.pop(task))

    def grants(self, members: Collection[int], leaving: Collection[int]) -> list[tuple[int, Split | None]]:
        """What tasks that ask are to be told now; the others wait.

        Args:
            members: those that stay or have come.
            leaving: those that leave.
        """
        if not self._asking:
            return []
        answers: list[tuple[int, Split | None]] = []
        others_read = not self._told.issuperset(members)
        must_wait = len(members) == 1 and not self._left.issuperset(leaving)
        for task in self._asking:
            if task in leaving:
                answers.append((task, None if others_read else self._rests.pop(task, None)))
            elif self._splits and not must_wait:
                answers.append((task, self._splits.popleft()))
            elif not (self._splits or self._rests) and self._read.keys().isdisjoint(leaving):
                answers.append((task, None))
        self._read |= {task: split for task, split in answers if split is not None}
        self._told |= {task for task, split in answers if split is None}
        answered = {task for task, _ in answers}
        self._asking = [task for task in self._asking if task not in answered]
        return answers
