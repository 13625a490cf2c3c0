"""What a store of checkpoints needs of a file system, local or an object storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dpa._secrets import without_secrets
from dpa._util.disk import why
from dpa.errors import CheckpointStoreError


class Files(ABC):
    """Files below a root, by their paths relative to it, with `/` between names. Can be pickled.

    Whatever fails is a `CheckpointError` that names the place.

    Attributes:
        place: the root, for messages: without user, password or options.
    """

    place: str

    @abstractmethod
    def make(self, job: str) -> None:
        """Make the directory of a new job, and what it lies in, for this user alone."""

    @abstractmethod
    def unmake(self, job: str) -> None:
        """Remove the directory of a job, in which no file is left."""

    @abstractmethod
    def write(self, path: str, data: Iterable[memoryview]) -> None:
        """Write a new file, whose path nobody else uses; it is complete and durable when this returns."""

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes, draft: str) -> bool:
        """Write a file if there is none: of several that try only one has True. It is there as a whole or not at all.

        Args:
            path: of the file.
            data: its content.
            draft: another path, that nobody else writes, where something may be left of an attempt that was killed; it
                may vanish meanwhile if `path` is there.
        """

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """The content of a file, which nobody but this user can have written; None if it is not there."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file is there."""

    @abstractmethod
    def names(self, directory: str) -> list[str]:
        """The names in a directory; none if it is not there. An empty path is the root."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, as far as they are there, in any order."""


@contextmanager
def reaching(place: str) -> Iterator[None]:
    """Use a file in this block.

    Raises:
        CheckpointStoreError: it cannot be used.
    """
    try:
        yield
    except OSError as error:
        raise CheckpointStoreError(f"{without_secrets(why(error))}, at {place}") from None
