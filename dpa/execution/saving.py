"""What a task has at a cut of the stream, pickled bit by bit while the task goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from dpa.execution.snapshots import TaskSnapshot
from dpa.execution.states import StatePart, States, Sweep

_KEYS = 5_000
"""Python states that are pickled at a time: other threads of the process wait for that long, some 10 ms."""


class TaskSaving:
    """It is begun at the cut, in the thread of user code. `pieces` may be asked for on another thread, while records
    change the states: then those of their keys are pickled first.

    Attributes:
        is_increment: whether it is what has changed since the cut before.
        goes_on: whether the task may go on before all pieces are taken; otherwise states would be lost.
        keys: whose states were pickled so far; of columns about.
    """

    def __init__(
        self,
        states: States,
        head: TaskSnapshot,
        snapshot: Callable[[], TaskSnapshot],
        dumps: Callable[[object], bytes],
        guard: AbstractContextManager[Any],
        *,
        increment: bool,
    ) -> None:
        """`head`: what the task has besides its states; `snapshot` gives all, of states that cannot be swept; `guard`
        keeps threads from each other."""
        gone = states.gone() if increment else None
        self.is_increment = gone is not None
        self.keys = 0
        self._dumps = dumps
        self._states = states
        self._pickled: deque[bytes] = deque()
        self._rest: Iterator[TaskSnapshot] = iter(())
        self.goes_on = states.begin_sweep(Sweep(self._keep, guard), only_changed=self.is_increment)
        if self.goes_on:
            self._rest = iter([replace(head, gone=gone)])
            return
        found = snapshot()
        self.keys, self._rest = found.keys, found.slices(_KEYS)
        self.goes_on = not found.spilled_keys and (found.part is None or not isinstance(found.part.states, list))

    def _keep(self, part: StatePart) -> None:
        self.keys += len(part.keys)
        self._pickled.append(self._dumps(TaskSnapshot(part, (), {})))

    def pieces(self) -> Iterator[bytes]:
        """Each a pickled `TaskSnapshot`; to be taken once."""
        yield from map(self._dumps, self._rest)
        is_more = True
        while is_more:
            is_more = self._states.sweep(_KEYS)
            while self._pickled:
                yield self._pickled.popleft()

    def end(self) -> None:
        self._states.end_sweep()
