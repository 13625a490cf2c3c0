"""Snapshots of tasks as files of a checkpoint store: how they are written, and how a task begins with them.

A task writes all its states once and then increments, as long as each increment is in the checkpoint of the slot before
the next. If that is in doubt, as after a failed checkpoint, it writes everything again. The coordinator need not
report what became of a file, and cannot add a checkpoint with a file that its last one lacks (`Chain.commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dpa._util.outages import HERE
from dpa.checkpoints import DataFiles, FileRef, Manifest, Part, TaskParts
from dpa.errors import CheckpointError
from dpa.execution.reduce_task import ReduceTask
from dpa.execution.snapshots import TaskSaving, TaskSnapshot, folded
from dpa.protocol.checkpoint_format import read, written
from dpa.protocol.wire.addresses import Address
from dpa.routing.hashing import ALL_HASHES
from dpa.tolerance import Failed, Letter

_MOST_INCREMENTS = 16
"""Behind one snapshot: as many more files are read to begin with it."""

_INCREMENTS = 0.5
"""Of the bytes of a snapshot: as soon as increments have more, the next one is written."""


@dataclass(frozen=True)
class WrittenSnapshot:
    """What a task has in a checkpoint: a snapshot and the increments since."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class NotWritten:
    """A snapshot that could not be written, and why."""

    reason: str


@dataclass
class Archive:
    """The snapshots of one task of one generation; `dumps` pickles Python states, and `guard` keeps the thread that
    writes from that of user code."""

    data: DataFiles
    address: Address
    dumps: Callable[[object], bytes]
    guard: AbstractContextManager[Any] = field(default_factory=nullcontext)
    _slot: int = field(default=0, init=False)
    _parts: tuple[Part, ...] = field(default=(), init=False)

    def start_saving(self, slot: int, task: ReduceTask) -> Callable[[], WrittenSnapshot | NotWritten]:
        """Mark what a task has, or what of it has changed, for a slot of the store's chain. Returns what writes it. Any
        thread may call that, once, before the next cut, while the task continues."""
        before = self._parts if slot == self._slot + 1 and not self._is_long() else ()
        self._parts = ()
        saving = task.start_saving(partial(written, dumps=self.dumps), self.guard, increment=bool(before))
        write = partial(self._write, slot, saving, before if saving.is_increment else ())
        if saving.goes_on:
            return write
        done = write()
        return lambda: done

    def _write(self, slot: int, saving: TaskSaving, before: tuple[Part, ...]) -> WrittenSnapshot | NotWritten:
        try:
            file = self.data.write(slot, str(self.address), saving.pieces())
        except CheckpointError as error:
            return NotWritten(str(error))
        finally:
            saving.end()
        self._slot, self._parts = slot, (*before, Part(file, ALL_HASHES, saving.keys, is_increment=bool(before)))
        return WrittenSnapshot(self._parts)

    def _is_long(self) -> bool:
        sizes = [part.file.size for part in self._parts]
        return len(sizes) > _MOST_INCREMENTS or sum(sizes[1:]) > _INCREMENTS * sum(sizes[:1])


def read_snapshots(data: DataFiles, tasks: Iterable[Sequence[FileRef]]) -> Iterator[TaskSnapshot]:
    """The snapshots in the files of some tasks, each with its increments, in parts.

    Raises:
        CheckpointError: one cannot be read, or is not what was written.
    """
    for files in tasks:
        own = ((partial(data.read, file), f"{data.job}/{file.path}") for file in reversed(files))
        yield from folded(read(HERE.bear(content), place) for content, place in own)


_STAGE = "dead letters"
"""By which they go in manifests: no stage has such a name."""

_SMALL = 2**20
"""A file of fewer bytes is written anew with the next letters."""


@dataclass(frozen=True)
class StoredLetters:
    """Dead letters in the order in which they were noted. Can be pickled; read a file at a time.

    Attributes:
        parts: the files that have them.
        rest: those that are in no file.
    """

    data: DataFiles
    parts: tuple[Part, ...] = ()
    rest: tuple[Letter, ...] = ()

    @classmethod
    def of(cls, data: DataFiles, checkpoint: Manifest | None) -> StoredLetters:
        tasks = () if checkpoint is None else checkpoint.tasks
        return cls(data, next((task.parts for task in tasks if task.stage == _STAGE), ()))

    def __len__(self) -> int:
        return sum(part.keys for part in self.parts) + len(self.rest)

    def __iter__(self) -> Iterator[Letter]:
        """Read all; CheckpointError if they cannot be read, or are not what was written."""
        for part in self.parts:
            yield from self._read(part)
        yield from self.rest

    @property
    def tasks(self) -> Sequence[TaskParts]:
        return [TaskParts(_STAGE, 0, self.parts)] if self.parts else []

    def with_rest(self, noted: Failed) -> StoredLetters:
        return replace(self, rest=noted.letters[len(self) - noted.earlier :])

    def written(self, slot: int) -> StoredLetters:
        """All of them in files, for a slot of the chain; CheckpointError if they cannot be written."""
        if not self.rest:
            return self
        parts, letters = self.parts, self.rest
        if parts and parts[-1].file.size < _SMALL:
            parts, letters = parts[:-1], (*self._read(parts[-1]), *letters)
        file = self.data.write(slot, "letters", written(letters))
        return replace(self, parts=(*parts, Part(file, ALL_HASHES, len(letters))), rest=())

    def _read(self, part: Part) -> tuple[Letter, ...]:
        letters: tuple[Letter, ...]
        [letters] = read(self.data.read(part.file), f"{self.data.job}/{part.file.path}")
        return letters
