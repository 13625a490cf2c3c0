"""Dead letters that lie in a checkpoint store until the job ends: a coordinator forgets those that a checkpoint has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dpa.checkpoints import DataFiles, Manifest, Part, TaskParts
from dpa.protocol.checkpoint_format import read, written
from dpa.routing.hashing import ALL_HASHES
from dpa.tolerance import Failed, Letter

_STAGE = "dead letters"
"""By which they go in manifests: no stage has such a name."""

_SMALL = 2**20
"""A file of fewer bytes is written anew with the next letters."""


@dataclass(frozen=True)
class StoredLetters:
    """Dead letters in the order in which they were noted. Can be pickled; read a file at a time.

    Attributes:
        data: the files of the job.
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
        """Read all.

        Raises:
            CheckpointError: they cannot be read, or are not what was written.
        """
        for part in self.parts:
            yield from self._read(part)
        yield from self.rest

    @property
    def tasks(self) -> Sequence[TaskParts]:
        return [TaskParts(_STAGE, 0, self.parts)] if self.parts else []

    def with_rest(self, noted: Failed) -> StoredLetters:
        return replace(self, rest=noted.letters[len(self) - noted.earlier :])

    def written(self, slot: int) -> StoredLetters:
        """All of them in files, for a slot of the chain.

        Raises:
            CheckpointError: they cannot be written.
        """
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
