"""Snapshots of tasks as files of a checkpoint store: how they are written, and how a task begins with them.

A task writes all that it has, and then increments behind that, as long as each is in the checkpoint of the slot before
the next. Whatever makes that doubtful, such as a checkpoint that fails, has it write all again: no coordinator need say
what became of a file, and none can add a checkpoint with a file that its last one does not have (`Chain.commit`).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dpa.checkpoints import DataFiles, FileRef, Part
from dpa.errors import CheckpointError
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.snapshots import TaskSnapshot, folded
from dpa.protocol.wire.addresses import Address
from dpa.routing.hashing import ALL_HASHES

_KEYS = 20_000
"""Python states that are pickled at a time: other threads of the process wait for that long, some 50 ms."""

_MOST_INCREMENTS = 16
"""Behind one snapshot: as many more files are read to begin with it."""

_INCREMENTS = 0.5
"""Of the bytes of a snapshot: as soon as increments have more, the next one is written."""


@dataclass(frozen=True)
class WrittenSnapshot:
    """What a task has in a checkpoint: a snapshot, and the increments behind it."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class NotWritten:
    """A snapshot that could not be written, and why."""

    reason: str


@dataclass
class Archive:
    """The snapshots of one task of one generation; `dumps` pickles them."""

    data: DataFiles
    address: Address
    dumps: Callable[[object], bytes]
    _slot: int = field(default=0, init=False)
    _parts: tuple[Part, ...] = field(default=(), init=False)

    def write(self, slot: int, task: ReduceTask) -> WrittenSnapshot | NotWritten:
        """Write what a task has, or what of it has changed, for a slot of the store's chain."""
        before = self._parts if slot == self._slot + 1 and not self._is_long() else ()
        found = task.increment() if before else None
        if found is None:
            before, found = (), task.snapshot()
        pieces = (self.dumps(part) for part in found.slices(_KEYS))
        self._parts = ()
        try:
            file = self.data.write(slot, str(self.address), pieces)
        except CheckpointError as error:
            return NotWritten(str(error))
        task.mark()
        self._slot, self._parts = slot, (*before, Part(file, ALL_HASHES, found.keys, is_increment=bool(before)))
        return WrittenSnapshot(self._parts)

    def _is_long(self) -> bool:
        """Whether the increments are as much, or as many files, as may be behind a snapshot."""
        sizes = [part.file.size for part in self._parts]
        return len(sizes) > _MOST_INCREMENTS or sum(sizes[1:]) > _INCREMENTS * sum(sizes[:1])


def read_snapshots(data: DataFiles, tasks: Iterable[Sequence[FileRef]]) -> Iterator[TaskSnapshot]:
    """The snapshots in the files of some tasks, each with the increments behind it, in parts.

    Raises:
        CheckpointError: one cannot be read, or is not what was written.
    """
    for files in tasks:
        yield from folded(_slices(data, file) for file in reversed(files))


def _slices(data: DataFiles, file: FileRef) -> Iterator[TaskSnapshot]:
    content = io.BytesIO(data.read(file))
    while content.tell() < file.size:
        yield pickle.load(content)
