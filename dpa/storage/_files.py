"""What checkpoints and results need of a place for files."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from dpa._secrets import without_secrets
from dpa._util.disk import why
from dpa.errors import DpaError


@dataclass(frozen=True)
class Purpose:
    """What some files are for.

    Attributes:
        what: in the plural, for messages.
        error: the class of errors that may pass.
        refused: the class of those that do not: files cannot be there, or may not be trusted.
        is_private: whether only this user may read them; then what others can have written is not read.
    """

    what: str
    error: type[DpaError]
    refused: type[DpaError]
    is_private: bool = False


class Files(ABC):
    """Files below a root, by their paths relative to it, with `/` between names. Can be pickled.

    Whatever fails is the error of their purpose that names the place.

    Attributes:
        place: the root, for messages: without user, password or options.
        purpose: what the files are for.
    """

    place: str
    purpose: Purpose

    def check(self) -> None:  # noqa: B027 - need not be overridden
        """Check that files can be there. Nothing is written."""

    def make(self, *directories: str) -> None:  # noqa: B027
        """Make directories for this user alone, the outer ones first, where there are directories."""

    def remove(self, directory: str) -> None:  # noqa: B027
        """Remove a directory that `make` has made, with what is left in it."""

    def held(self) -> AbstractContextManager[None]:
        """Hold the root for one job. Object storage has no locks: there, conditional puts alone decide. Raises
        BlockingIOError if another job has it."""
        return nullcontext()

    def within(self, directory: str) -> AbstractContextManager[None]:
        """A block that writes files in a directory, which is made if there is none. When it has ended well, their names
        are durable."""
        return nullcontext()

    def prune(self) -> None:  # noqa: B027
        """Remove directories in which nothing is left, where there are directories."""

    @abstractmethod
    def writing(self, path: str) -> AbstractContextManager[Any]:
        """A stream into a file that no other process writes. When the block has ended well the content is durable; the
        name of the file is once another one was `put`."""

    @abstractmethod
    def reading(self, path: str) -> AbstractContextManager[Any]:
        """A file of Arrow's with the content; None if it is not there."""

    @abstractmethod
    def put(self, path: str, data: bytes, tag: str | None = None, draft: str | None = None) -> str | None:
        """Replace the file that has this tag, or make it if there is none: of several that try only one has done it. It
        is there as a whole or not at all, and durable, as are the names of files that were written before. Raises
        BlockingIOError if another process replaces a file there now.

        Args:
            path: of the file.
            data: its content.
            tag: of the file that is replaced; None: there must be none.
            draft: another path that no other put is given, and which may vanish meanwhile if `path` is there. Without
                it the place has its own drafts, and removes what is left of them.

        Returns:
            Its new tag; None if there was another file, or none.
        """

    def get(self, path: str) -> tuple[bytes, str] | None:
        """The content of a file and its tag; None if it is not there."""
        content = self.read(path)
        return None if content is None else (content, tag_of(content))

    def read(self, path: str) -> bytes | None:
        with self.reading(path) as file:
            content: bytes | None = None if file is None else file.read()
            return content

    @abstractmethod
    def names(self, directory: str) -> list[str]:
        """The names in a directory, also of directories; none if it is not there. An empty path is the root. Locks and
        drafts of the place's own are left out, and what belongs to the file system."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete files that may be there."""

    def at(self, path: str) -> str:
        return f"{self.place}/{path}" if path else self.place

    @contextmanager
    def reaching(self, path: str) -> Iterator[None]:
        """Use a file in this block. Raises DpaError if it cannot be used."""
        try:
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            raise self.purpose.error(f"{without_secrets(why(error))}, at {self.at(path)}") from None


def tag_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
