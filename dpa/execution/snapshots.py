"""A task in checkpoints: full snapshots, and increments after them, pickled bit by bit while the task continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.execution.arrivals import Input
from dpa.execution.states import Gone, KeyedPart, ObjectPart, StatePart, States, Sweep
from dpa.routing.keys import Key, to_python

_KEYS = 5_000  # Python states that are pickled at a time: other threads wait meanwhile, some 10 ms


@dataclass(frozen=True, eq=False)
class TaskSnapshot:
    """A task at a cut of the stream, when nothing is queued or in flight.

    Attributes:
        part: its states; of an increment those that have changed. None if there are none.
        rows: of its share: those that it has emitted.
        arrived: the schemas of what has come to it.
        spilled: its states on disk, which come before `part` where both are merged; read once, when they are asked for,
            before the task continues.
        spilled_keys: about how many keys these have.
        gone: of an increment, what it has no more of the snapshot before; None: this is all that it has.
    """

    part: StatePart | None
    rows: tuple[pa.RecordBatch, ...]
    arrived: dict[Input, pa.Schema]
    spilled: Iterable[StatePart] = ()
    spilled_keys: int = 0
    gone: Gone | None = None

    @property
    def keys(self) -> int:
        return self.spilled_keys + (0 if self.part is None else len(self.part.keys))

    def read(self) -> TaskSnapshot:
        return replace(self, spilled=tuple(self.spilled))

    def parts(self) -> Iterator[StatePart]:
        """States in memory and on disk, which is read one part at a time."""
        yield from self.spilled
        if self.part is not None:
            yield self.part

    def slices(self, keys: int) -> Iterator[TaskSnapshot]:
        """Split into parts with at most `keys` Python states each. States in columns stay together, unless on disk."""
        yield TaskSnapshot(None, self.rows, self.arrived, gone=self.gone)
        for part in self.parts():
            if not isinstance(part, ObjectPart):
                yield TaskSnapshot(part, (), {})
                continue
            for start in range(0, len(part.keys), keys):
                yield TaskSnapshot(part.slice(start, keys), (), {})


def folded(newest_first: Iterable[Iterable[TaskSnapshot]]) -> Iterator[TaskSnapshot]:
    """A task from its last increment, those before it, and the snapshot, each in slices. The newest state of a key
    counts."""
    later: set[Key] = set()
    for turn, slices in enumerate(newest_first):
        own: set[Key] = set()
        is_increment = False
        for found in slices:
            if found.gone is not None:
                is_increment = True
                own.update(to_python(found.gone.keys))
            if is_increment and found.part is not None:
                own.update(to_python(found.part.keys))
            part = found.part if not later or found.part is None else _without(found.part, later)
            if turn == 0 or part is not None:
                yield replace(found, part=part, gone=None) if turn == 0 else TaskSnapshot(part, (), {})
        later |= own


def _without(part: StatePart, keys: set[Key]) -> StatePart | None:
    assert isinstance(part, KeyedPart)  # increments are of Python states
    rows = [row for row, key in enumerate(to_python(part.keys)) if key not in keys]
    return part.take(np.array(rows, dtype=np.intp)) if rows else None


class TaskSaving:
    """Begun at the cut, in the thread of user code. Another thread may call `pieces` while records change states:
    states are then pickled before they change.

    Attributes:
        is_increment: whether it is what has changed since the cut before.
        goes_on: whether the task may go on before all pieces are taken; otherwise states would be lost.
        keys: whose states were pickled so far; of columns about.
    """

    def __init__(
        self,
        states: States[Any],
        head: TaskSnapshot,
        snapshot: Callable[[], TaskSnapshot],
        dumps: Callable[[object], bytes],
        guard: AbstractContextManager[Any],
        *,
        increment: bool,
    ) -> None:
        """`head`: the task without its states; `snapshot`: gives all, if states cannot be swept; `guard`: a lock
        between threads."""
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
        self.goes_on = not found.spilled_keys and (found.part is None or not isinstance(found.part, ObjectPart))

    def _keep(self, part: StatePart) -> None:
        self.keys += len(part.keys)
        self._pickled.append(self._dumps(TaskSnapshot(part, (), {})))

    def pieces(self) -> Iterator[bytes]:
        """Pickled `TaskSnapshot`s. Can be called once."""
        yield from map(self._dumps, self._rest)
        is_more = True
        while is_more:
            is_more = self._states.sweep(_KEYS)
            while self._pickled:
                yield self._pickled.popleft()

    def end(self) -> None:
        self._states.end_sweep()
