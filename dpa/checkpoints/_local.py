"""Checkpoints in a directory of this machine, or one that machines share."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dpa._util.owned import UntrustedError, read_trusted
from dpa.checkpoints._files import Files, reaching
from dpa.errors import CheckpointError

STAGED = "input"
"""The directory, in that of a job, for its input as it is staged."""

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class LocalFiles(Files):
    """Files below a directory."""

    place: str

    @classmethod
    def of(cls, path: str) -> LocalFiles:
        """Those below a path, which need not exist.

        Raises:
            CheckpointError: it is a file.
        """
        place = os.path.abspath(os.path.expanduser(path))
        if os.path.lexists(place) and not os.path.isdir(place):
            raise CheckpointError(f"checkpoints cannot be at {place}, which is no directory: name a directory")
        return cls(place)

    def make(self, job: str) -> None:
        """Directories of mode 0700; one that is there already stays as it is."""
        with reaching(self._at(job)):
            os.makedirs(self.place, mode=0o700, exist_ok=True)
            for directory in (job, f"{job}/chain", f"{job}/files"):
                os.mkdir(self._at(directory), 0o700)
        for directory in ("", job):
            self._sync(directory)

    def unmake(self, job: str) -> None:
        """With those in it."""
        with reaching(self._at(job)):
            if os.path.isdir(staged := self._at(f"{job}/{STAGED}")):
                shutil.rmtree(staged)
            for directory in (f"{job}/files", f"{job}/chain", job):
                os.rmdir(self._at(directory))

    def write(self, path: str, data: Iterable[memoryview]) -> None:
        """Of mode 0600; its name is durable once `put_if_absent` returns."""
        with reaching(self._at(path)), self._open(path, _NEW) as file:
            for view in data:
                written = 0
                while written < len(view):
                    written += os.write(file, view[written:])
            os.fsync(file)

    def put_if_absent(self, path: str, data: bytes, draft: str) -> bool:
        """By a hard link, which fails where there is something, on NFS too."""
        self.write(draft, [memoryview(data)])
        self._sync(os.path.dirname(draft))
        with reaching(self._at(path)):
            try:
                os.link(self._at(draft), self._at(path))
                is_put = True
            except (FileExistsError, FileNotFoundError):
                is_put = False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                another = "name a directory on another one, or s3://BUCKET/PREFIX"
                raise CheckpointError(f"the file system of {self.place} has no hard links: {another}") from None
        self._sync(os.path.dirname(path))
        self.delete([draft])
        return is_put

    def read(self, path: str) -> bytes | None:
        """Refused where another user owns the file or can write it."""
        with reaching(self._at(path)):
            try:
                return read_trusted(self._at(path))
            except FileNotFoundError:
                return None
            except UntrustedError as error:
                right = "a checkpoint is read if only its owner, who reads it, can write it"
                raise CheckpointError(f"{self._at(path)} {error}; {right}") from None

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        with reaching(self._at(path)):
            try:
                os.lstat(self._at(path))
            except FileNotFoundError:
                return False
            return True

    def names(self, directory: str) -> list[str]:
        """In any order."""
        with reaching(self._at(directory)):
            try:
                return os.listdir(self._at(directory))
            except FileNotFoundError:
                return []

    def delete(self, paths: Iterable[str]) -> None:
        """Durable, and each in its turn."""
        for path in paths:
            with reaching(self._at(path)):
                try:
                    os.unlink(self._at(path))
                except FileNotFoundError:
                    continue

    def _at(self, path: str) -> str:
        return os.path.join(self.place, path)

    @contextmanager
    def _open(self, path: str, flags: int) -> Iterator[int]:
        file = os.open(self._at(path), flags, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def _sync(self, directory: str) -> None:
        """Have the names in a directory survive a loss of power."""
        with reaching(self._at(directory)), self._open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as file:
            os.fsync(file)
