"""The windows of a simulated stage, held against the records that its tasks were given, and what all of them were given
to judge by which are late."""

from __future__ import annotations

from datetime import datetime

from dpa.execution.states import StatePart
from dpa.protocol.wire.instructions import Instruction, ProcessBlock, Publish
from dpa.routing.keys import Key, to_python
from dpa.windows.times import since_1970
from experiments.simulation.checks.require import require


class WindowBook:
    """One stage's.

    Attributes:
        late: records of windows that had been closed.
    """

    def __init__(self, stage: str, closed: int | None) -> None:
        """`closed`: windows that end by this event time were closed before the job began."""
        self.late = 0
        self._stage = stage
        self._closed = closed

    def works(self, instruction: Instruction) -> None:
        """User code of a task carries out an instruction."""
        if isinstance(instruction, Publish) and instruction.closes is not None:
            later = self._closed is None or instruction.closes >= self._closed
            require(later, f"{self._stage} was to close windows by {instruction.closes} after {self._closed}")
            self._closed = instruction.closes
        elif isinstance(instruction, ProcessBlock):
            told = f"a task of {self._stage} judges by {instruction.closed}, and windows are closed by {self._closed}"
            require(instruction.closed == self._closed, told)
            block = instruction.block
            for key, records in zip(to_python(block.keys), block.counts().tolist(), strict=True):
                self.late += records if ended(key, self._closed) else 0

    def closes(self, part: StatePart) -> None:
        """A task has closed its windows, and has these states left, among others."""
        left = [key for key in to_python(part.keys) if ended(key, self._closed)]
        require(not left, f"a task of {self._stage} keeps {left[:1]} open, though windows are closed by {self._closed}")


def ended(key: Key, by: int | None) -> bool:
    """Whether the window that a key ends with has ended by an event time; None: none has. Some keys have none."""
    end = key[-1] if isinstance(key, tuple) else None
    return by is not None and isinstance(end, datetime) and since_1970(end) <= by
