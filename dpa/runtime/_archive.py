"""Snapshots of tasks as files of a checkpoint store: how they are written, and how a task begins with them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dpa.checkpoints import DataFiles, FileRef
from dpa.errors import CheckpointError
from dpa.execution.reduce_task import TaskSnapshot
from dpa.protocol.wire.addresses import Address

_KEYS = 20_000
"""Python states that are pickled at a time: other threads of the process wait for that long, some 50 ms."""


@dataclass(frozen=True)
class WrittenSnapshot:
    """A snapshot that is written: its file, and how many keys it has."""

    file: FileRef
    keys: int


@dataclass(frozen=True)
class NotWritten:
    """One that could not be, and why."""

    reason: str


@dataclass(frozen=True)
class Archive:
    """The snapshots of one task."""

    data: DataFiles
    address: Address

    def write(self, slot: int, snapshot: TaskSnapshot) -> WrittenSnapshot | NotWritten:
        """Write a snapshot for a slot of the store's chain."""
        from ray import cloudpickle  # states may be of classes that only travel by value

        keys = 0 if snapshot.part is None else len(snapshot.part.keys)
        pieces = [cloudpickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL) for part in snapshot.slices(_KEYS)]
        try:
            return WrittenSnapshot(self.data.write(slot, str(self.address), pieces), keys)
        except CheckpointError as error:
            return NotWritten(str(error))


def read_snapshots(data: DataFiles, files: Iterable[FileRef]) -> Iterator[TaskSnapshot]:
    """The snapshots in these files, in parts.

    Raises:
        CheckpointError: one cannot be read, or is not what was written.
    """
    for file in files:
        content = io.BytesIO(data.read(file))
        while content.tell() < file.size:
            yield pickle.load(content)
