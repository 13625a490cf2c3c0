"""What the manifests of a chain hold, and the form in which they are written: JSON, with a checksum of itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from dpa.errors import CheckpointDamagedError, CheckpointError

_SCHEMA = 2
"""The version of the form. A version that adds a field with a default reads the one before."""

_READ = frozenset({2})

_DOCUMENT = re.compile(rb'\{"schema": (\d{1,9}), "sha256": "([0-9a-f]{64})", "slot": (.*)\}\n', re.DOTALL)

Natural = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class FileRef:
    """A data file: its path below the job's directory, bytes, and SHA-256 as hexadecimal digits."""

    path: Annotated[str, Field(pattern=r"^files/\d{10}-[A-Za-z0-9_.-]+$")]
    size: Natural
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def number(self) -> int:
        """The slot for which it was written."""
        return int(self.path[6:16])


@dataclass(frozen=True, slots=True)
class Part:
    """A file with states of keys whose hashes lie in a closed interval.

    Attributes:
        is_increment: whether it has only what has changed since the part before was written.
    """

    file: FileRef
    interval: tuple[Natural, Natural]
    keys: Natural
    is_increment: bool = False


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What a task of a stage has in a checkpoint. An increment follows the parts that it changes."""

    stage: str
    task: Natural
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint.

    Attributes:
        number: its slot in the chain.
        generation: of the coordinator that wrote it.
        epoch: the one that it completes.
        created_at: seconds since 1970.
        seconds: how long the sources waited for it.
        records: how many the job had read at the cut.
        coordinator: what the coordinator knew, such as tables and positions of splits.
        tasks: the states, task by task; a file may be one of an earlier checkpoint.
        line: which coordinators made which epochs up to this one (`dpa._util.lines`).
    """

    number: Natural
    generation: Natural
    epoch: Natural
    created_at: float
    seconds: float
    records: Natural
    coordinator: FileRef
    tasks: tuple[TaskParts, ...]
    line: tuple[tuple[int, str], ...] = ()

    def files(self) -> dict[str, FileRef]:
        """The files that it needs, by path."""
        parts = (part for of_task in self.tasks for part in of_task.parts)
        return {file.path: file for file in (self.coordinator, *(part.file for part in parts))}

    @property
    def written(self) -> int:
        """Bytes of the files that no earlier checkpoint had."""
        return sum(file.size for file in self.files().values() if file.number == self.number)


@dataclass(frozen=True, slots=True)
class Slot:
    """A link of the chain: a new checkpoint, or a coordinator's claim, which names the checkpoint that it starts from.

    Attributes:
        job: the directory of the job.
        name: of the job.
        number: of the slot, from 0, without a gap.
        generation: of the coordinator that put it.
        claimant: the unique name of that coordinator.
        checkpoint: None as long as the job has none.
    """

    job: str
    name: str
    number: Natural
    generation: Natural
    claimant: str
    checkpoint: Manifest | None

    @property
    def is_claim(self) -> bool:
        return self.checkpoint is None or self.checkpoint.number != self.number

    def files(self) -> dict[str, FileRef]:
        return {} if self.checkpoint is None else self.checkpoint.files()

    def encode(self) -> bytes:
        body = _slots().dump_json(self)
        return b'{"schema": %d, "sha256": "%s", "slot": %s}\n' % (_SCHEMA, _digest(body), body)

    @staticmethod
    def decode(content: bytes, job: str, number: int, place: str) -> Slot:
        """The slot of a job that a file at `place` holds. Raises CheckpointDamagedError if it is not what was written
        there; CheckpointError if another version of dpa wrote it."""
        document = _DOCUMENT.fullmatch(content)
        if document is None:
            raise CheckpointDamagedError(f"{place} is damaged: it is no manifest of a checkpoint")
        schema, digest, body = document.groups()
        if int(schema) not in _READ:
            of = f"{place} is of schema {int(schema)}, and this version of dpa reads schema {_SCHEMA}"
            raise CheckpointError(f"{of}: use the version that wrote it")
        if digest != _digest(body):
            raise CheckpointDamagedError(f"{place} is damaged: its checksum does not fit")
        try:
            slot = _slots().validate_json(body, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"]))
            raise CheckpointDamagedError(f"{place} is damaged: {at or 'it'}: {first['msg']}") from None
        for wrong in slot._contradictions(job, number):
            raise CheckpointDamagedError(f"{place} is damaged: {wrong}")
        return slot

    def _contradictions(self, job: str, number: int) -> Iterator[str]:
        if (self.job, self.number) != (job, number):
            yield f"it is slot {self.number} of {self.job}"
        if self.checkpoint is None:
            return
        if self.checkpoint.number > self.number or self.checkpoint.generation > self.generation:
            yield "its checkpoint is newer than itself"
        for task in self.checkpoint.tasks:
            if task.parts and task.parts[0].is_increment:
                yield f"task {task.task} of {task.stage} has an increment without the states that it continues"
        for file in self.files().values():
            if file.number > self.checkpoint.number:
                yield f"{file.path} is newer than its checkpoint"


@cache
def _slots() -> TypeAdapter[Slot]:
    return TypeAdapter(Slot)  # a tenth of a second, which only a job with checkpoints is to take


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
