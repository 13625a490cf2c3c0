"""What checkpoints have of a task: snapshots, which are all that it has, and increments behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dpa.execution.arrivals import Input
from dpa.execution.states import Gone, StatePart
from dpa.routing.keys import Key, to_python


@dataclass(frozen=True, eq=False)
class TaskSnapshot:
    """What a task has at a cut of the stream, when nothing is queued or on its way.

    Attributes:
        part: its states; of an increment those that have changed. None if there are none.
        rows: of its share: those that it has emitted.
        arrived: the schemas of what has come to it.
        spilled: those of its states that are on disk, before `part` where they are to be merged; read as they are asked
            for, once, and before the task goes on.
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
        """Those on disk are read a part at a time."""
        yield from self.spilled
        if self.part is not None:
            yield self.part

    def slices(self, keys: int) -> Iterator[TaskSnapshot]:
        """In parts with the Python states of at most `keys` keys each. States in columns stay together, unless on
        disk."""
        yield TaskSnapshot(None, self.rows, self.arrived, gone=self.gone)
        for part in self.parts():
            if not isinstance(part.states, list):
                yield TaskSnapshot(part, (), {})
                continue
            for start in range(0, len(part.keys), keys):
                yield TaskSnapshot(part.slice(start, keys), (), {})


def folded(newest_first: Iterable[Iterable[TaskSnapshot]]) -> Iterator[TaskSnapshot]:
    """What a task had, in slices: of its last increment, those before it, and their snapshot, each in its slices. The
    newest state of a key counts."""
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
    rows = [row for row, key in enumerate(to_python(part.keys)) if key not in keys]
    return part.take(np.array(rows, dtype=np.intp)) if rows else None
