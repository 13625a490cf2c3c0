"""The splits of a source that no task reads yet, and the tasks that ask for some: the coordinator's view."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from dpa.sources.splits import Split


class SplitQueue:
    """A task that asks is granted the next split, or told that there is none. Nobody is told so who could still read
    the rest of a split that a leaving task gives back."""

    def __init__(self, splits: Iterable[Split]) -> None:
        self._splits = deque(splits)
        self._read: dict[int, Split] = {}  # by the task that reads it
        self._asking: list[int] = []
        self._told: set[int] = set()  # that there is none

    def asks(self, task: int) -> None:
        """A task has nothing to read."""
        self._read.pop(task, None)
        self._asking.append(task)

    def gives_back(self, task: int, read: int) -> None:
        """A task has read so many rows of the split that it was granted, and will not read the rest, which is next."""
        rest = self._read.pop(task).after(read)
        if rest.rows:
            self._splits.appendleft(rest)

    def grants(self, members: Iterable[int], leaving: Collection[int]) -> list[tuple[int, Split | None]]:
        """What tasks that ask are to be told now; the others wait.

        Args:
            members: those that stay or come.
            leaving: those that leave. They are granted a split only where no member is left to read it.
        """
        if not self._asking:
            return []
        answers: list[tuple[int, Split | None]] = []
        others_read = not self._told.issuperset(members)
        for task in self._asking:
            if self._splits and not (task in leaving and others_read):
                self._read[task] = self._splits.popleft()
                answers.append((task, self._read[task]))
            elif task in leaving or self._read.keys().isdisjoint(leaving):
                self._told.add(task)
                answers.append((task, None))
        told = {task for task, _ in answers}
        self._asking = [task for task in self._asking if task not in told]
        return answers
