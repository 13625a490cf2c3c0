"""A file system in memory for a store of checkpoints, of which writes fail, are torn, or are listed late."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from dpa.errors import CheckpointError
from dpa.storage import Files

_LATE = 4
"""The most names, of those that were created last, that a list may lack."""


class KilledError(BaseException):
    """The process that uses the files is killed at this moment."""


class SimulatedFiles(Files):
    """Reads and conditional puts are up to date, as the store needs them.

    Attributes:
        content: of each file, by its path.
        failures: how often an operation that changes something fails, 0 to 1; half of those that fail have been done.
        late: how often a list lacks the names that were created last, 0 to 1.
        left: operations that change something until whoever uses the files is killed, amid the last; None: nobody is.
    """

    def __init__(self, draw: random.Random) -> None:
        self.place = "memory"
        self.content: dict[str, bytes] = {}
        self.failures = self.late = 0.0
        self.left: int | None = None
        self._random = draw
        self._directories: set[str] = set()

    def make(self, *directories: str) -> None:
        """At once."""
        self._directories.add(directories[0])

    def remove(self, directory: str) -> None:
        """At once."""
        assert not any(path.startswith(f"{directory}/") for path in self.content)
        self._directories.discard(directory)

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        """Of one that is torn, half is there."""
        stream = BytesIO()
        yield stream
        whole = stream.getvalue()
        is_done = self._comes_to_pass()
        self.content[path] = whole if is_done else whole[: len(whole) // 2]
        self._end(is_done, path)

    def put(self, path: str, data: bytes, tag: str | None = None, draft: str | None = None) -> str | None:
        """As a whole or not at all."""
        assert tag is None and draft is not None, "no file of checkpoints is replaced"
        is_done, is_absent = self._comes_to_pass(), path not in self.content
        if is_done and is_absent:
            self.content[path] = data
        elif not is_done:
            self.content[draft] = data[: len(data) // 2]
        self._end(is_done, path)
        return "new" if is_absent else None

    @contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        """As it is now."""
        yield BytesIO(self.content[path]) if path in self.content else None

    def names(self, directory: str) -> list[str]:
        """In the order in which they were created."""
        if not directory:
            return [*self._directories]
        found = [path.rpartition("/")[2] for path in self.content if path.rpartition("/")[0] == directory]
        is_late = self._random.random() < self.late
        return found[: -self._random.randint(1, _LATE)] if is_late else found

    def delete(self, paths: Iterable[str]) -> None:
        """One after the other."""
        for path in paths:
            is_done = self._comes_to_pass()
            if is_done:
                self.content.pop(path, None)
            self._end(is_done, path)

    def _comes_to_pass(self) -> bool:
        """Whether an operation is done, though it may seem to fail, or its process is killed."""
        if self.left == 0:
            raise KilledError
        is_last = self.left == 1
        self._fails = not is_last and self._random.random() < self.failures
        return not (is_last or self._fails) or self._random.random() < 0.5

    def _end(self, is_done: bool, path: str) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise KilledError
        if self._fails:
            raise CheckpointError(f"Input/output error, at {self.place}/{path}")
