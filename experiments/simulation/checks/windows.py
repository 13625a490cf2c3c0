"""The windows of a simulated stage, held against the records that its tasks were given, and what all of them were given
to judge by which are late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from dpa.execution.states import StatePart
from dpa.protocol.wire.instructions import Instruction, ProcessBlocks, Publish
from dpa.routing.keys import Key, to_python
from dpa.windows.times import since_1970
from experiments.simulation.checks.require import require


class WindowBook:
    """One stage's.

    Attributes:
        late: records of windows that had been closed.
    """

    def __init__(self, stage: str, closed: int | None, *, are_sessions: bool) -> None:
        """`closed`: windows were closed by this event time before the job began."""
        self.late = 0
        self._stage = stage
        self._closed = closed
        self._are_sessions = are_sessions

    def works(self, instruction: Instruction) -> None:
        """User code of a task carries out an instruction."""
        if isinstance(instruction, Publish) and instruction.closes is not None:
            later = self._closed is None or instruction.closes >= self._closed
            require(later, f"{self._stage} was to close windows by {instruction.closes} after {self._closed}")
            self._closed = instruction.closes
        elif isinstance(instruction, ProcessBlocks):
            told = f"a task of {self._stage} judges by {instruction.closed}, and windows are closed by {self._closed}"
            require(instruction.closed == self._closed, told)
            for key, records in records_by_key(instruction):
                self.late += records if self._is_closed(key) else 0

    def closes(self, part: StatePart) -> None:
        """A task has closed its windows, and has these states left, among others."""
        left = [key for key in to_python(part.keys) if self._is_closed(key)]
        require(not left, f"a task of {self._stage} keeps {left[:1]} open, though windows are closed by {self._closed}")

    def _is_closed(self, key: Key) -> bool:
        return ended(key, self._closed, is_session=self._are_sessions)


def records_by_key(given: ProcessBlocks) -> Iterator[tuple[Key, int]]:
    """The keys of what is to be processed, each with its records in one of the blocks."""
    for block in given.blocks:
        yield from zip(to_python(block.keys), block.counts().tolist(), strict=True)


def ended(key: Key, by: int | None, *, is_session: bool = False) -> bool:
    """Whether no record of an event time or a later one belongs to the window that a key ends with; None: of any time
    may. A session holds its end. Some keys have no window."""
    end = key[-1] if isinstance(key, tuple) else None
    return by is not None and isinstance(end, datetime) and since_1970(end) + is_session <= by


def joined(sessions: Iterable[Key]) -> set[Key]:
    """Keys with sessions, where those of a key that overlap or touch are one."""
    found: list[Any] = []
    whole = [session for session in sessions if isinstance(session, tuple)]
    for *key, start, end in sorted(whole, key=lambda session: (repr(session[:-2]), session[-2])):
        if found and found[-1][0] == key and start <= found[-1][2]:
            found[-1][2] = max(end, found[-1][2])
        else:
            found.append([key, start, end])
    return {(*key, start, end) for key, start, end in found}
