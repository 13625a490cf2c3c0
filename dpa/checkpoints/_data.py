"""Data files of a job's checkpoints, which its tasks write and read, in any process."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pickle import PickleBuffer

from dpa.checkpoints._manifest import FileRef
from dpa.errors import CheckpointDamagedError
from dpa.storage import Files

Piece = bytes | bytearray | memoryview | PickleBuffer
"""What is written. Any other object with a buffer will do, too."""


@dataclass(frozen=True)
class DataFiles:
    """The data files of a job. Can be pickled, and used by several threads."""

    _files: Files
    job: str

    def write(self, number: int, hint: str, data: Piece | Iterable[Piece]) -> FileRef:
        """Write a file, which is durable when this returns.

        Args:
            number: the slot (`Chain.next`) for whose checkpoint it is. Once that slot is taken, the file is removed
                unless the checkpoint there names it.
            hint: part of its name, for people.
            data: its bytes, or pieces of them. A piece is no longer held when the next one is taken.
        """
        several = isinstance(data, (list, tuple, Iterator))
        pieces: Iterable[Piece] = data if several else [data]  # type: ignore[assignment, list-item]
        path, digest, size = data_path(number, hint), hashlib.sha256(), 0
        with self._files.writing(f"{self.job}/{path}") as stream:
            for piece in pieces:
                view = memoryview(piece)
                if view.nbytes:
                    digest.update(view := view.cast("B"))
                    stream.write(view)
                    size += len(view)
        return FileRef(path, size, digest.hexdigest())

    def read(self, file: FileRef) -> bytes:
        """The bytes of a file, as this user has written them.

        Raises:
            CheckpointDamagedError: it is missing, or not what was written.
            CheckpointError: it cannot be read, or another user can write it.
        """
        place = f"{self._files.place}/{self.job}/{file.path}"
        data = self._files.read(f"{self.job}/{file.path}")
        if data is None:
            raise CheckpointDamagedError(f"{place} is missing, and a checkpoint needs it")
        if len(data) != file.size:
            raise CheckpointDamagedError(f"{place} is damaged: {len(data):,} bytes, not {file.size:,}")
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise CheckpointDamagedError(f"{place} is damaged: its checksum does not fit")
        return data


def data_path(number: int, hint: str) -> str:
    """A unique path of a file that is written for a slot."""
    return f"files/{number:010d}-{re.sub('[^A-Za-z0-9_.]+', '_', hint)[:80]}-{uuid.uuid4().hex}"
