"""The files of a directory, as `dpa._util.s3.Objects` has those below a prefix: with puts that are conditional."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa._util import owned
from dpa._util.disk import sync, why, writing
from dpa._util.links import is_of_file_system
from dpa.errors import TableError

_JOB_LOCK, _PUT_LOCK, _NEW = ".lock", ".put.lock", ".put.new"
"""Files that are no objects: locked by the job, and by whoever replaces an object; and what it is to be."""

_PUT_SECONDS = 30.0
"""How long others may take to replace an object: each reads one file and writes one."""


class DirectoryFiles:
    """The files of a directory that need not exist. Where the file system has no locks, of several puts at once more
    than one may be made.

    Whatever fails is a `TableError`, or a `JobFailedError` of `writing`.

    Attributes:
        place: the directory.
    """

    def __init__(self, path: str) -> None:
        self._root = Path(path).absolute()
        self.place = str(self._root)
        self._given = path

    def require_bucket(self) -> None:
        """Check that it is no file."""
        if os.path.lexists(self._root) and not self._root.is_dir():
            raise TableError(f"{self._given} is a file; name a directory")

    def held(self) -> AbstractContextManager[None]:
        """Hold the directory, which is made if need be, for one job.

        Raises:
            BlockingIOError: another has it.
        """
        with self._reaching():
            self._root.mkdir(parents=True, exist_ok=True)
        return owned.held(self._root / _JOB_LOCK)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """A stream into a new file, which is durable when the block has ended well."""
        with writing(path := self._root / name):
            with path.open("wb") as stream:
                yield stream
            sync(path)

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """A file; None if it is not there. It is one of Arrow's own: what is read of one of Python's is freed by
        Arrow's threads, and a process that ends just then is aborted."""
        try:
            stream = pa.OSFile(str(self._root / name))
        except FileNotFoundError:
            yield None
        else:
            with stream:
                yield stream

    def get(self, name: str) -> tuple[bytes, str] | None:
        """The content of a file and its tag; None if it is not there."""
        with self._reaching():
            try:
                found = (self._root / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return found, hashlib.sha256(found).hexdigest()

    def put(self, name: str, data: bytes, etag: str | None = None) -> str | None:
        """Replace the file that has this tag, or make it if there is none; returns its new tag, or None if it was not
        so. It is replaced by renaming, and durable when this returns."""
        with self._reaching(), self._alone():
            there = self.get(name)
            if (None if there is None else there[1]) != etag:
                return None
            beside = self._root / _NEW
            beside.write_bytes(data)
            sync(beside)
            beside.replace(self._root / name)
            sync(self._root)
        return hashlib.sha256(data).hexdigest()

    def names(self, directory: str) -> list[str]:
        """All names but those of locks and of what belongs to the file system, sorted."""
        root = self._root / directory
        with self._reaching():
            found = [path for path in root.iterdir() if not is_of_file_system(path)] if root.is_dir() else []
        return sorted(path.name for path in found if path.name not in (_JOB_LOCK, _PUT_LOCK, _NEW))

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, as far as they are there."""
        with self._reaching():
            for name in names:
                (self._root / name).unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A block in which nobody else replaces a file here."""
        until = time.monotonic() + _PUT_SECONDS
        while True:
            try:
                with owned.held(self._root / _PUT_LOCK):
                    yield
                    return
            except BlockingIOError:
                if time.monotonic() > until:
                    why_not = f"another process has held {self._root / _PUT_LOCK} for {_PUT_SECONDS:g} s"
                    raise TableError(f"{why_not}; end it, if it hangs") from None
                time.sleep(0.01)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            raise TableError(f"cannot write there: {why(error)}") from None
