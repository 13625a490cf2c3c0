"""Files in a directory of this machine, or one that machines share."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpa._util.disk import is_of_file_system, sync
from dpa._util.owned import UntrustedError, held, read_trusted
from dpa.storage._files import Files, Purpose, tag_of

_JOB_LOCK, _PUT_LOCK, _DRAFT = ".lock", ".put.lock", ".put.new"
"""Files of the place's own: locked by a job, locked by whoever replaces a file, and how names of drafts begin."""

_NEW = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class DirectoryFiles(Files):
    """Files below a directory that need not exist.

    A new file is put by a hard link, which fails where there is one, on NFS too. Nothing like it replaces a file on a
    condition: that needs a lock, and where the file system has none, more than one of several puts may be made."""

    place: str
    purpose: Purpose

    @classmethod
    def at_path(cls, path: str, purpose: Purpose) -> DirectoryFiles:
        return cls(str(Path(path).absolute()), purpose)

    def check(self) -> None:
        if os.path.lexists(self.place) and not os.path.isdir(self.place):
            wrong = f"{self.purpose.what} cannot be at {self.place}, which is no directory"
            raise self.purpose.refused(f"{wrong}: name a directory")

    def make(self, *directories: str) -> None:
        with self.reaching(directories[0]):
            os.makedirs(self.place, mode=0o700, exist_ok=True)
            for directory in directories:
                os.mkdir(self.at(directory), 0o700)
            for directory in directories:
                sync(self.at(os.path.dirname(directory)))

    def remove(self, directory: str) -> None:
        with self.reaching(directory):
            shutil.rmtree(self.at(directory))

    @contextmanager
    def held(self) -> Iterator[None]:
        with ExitStack() as stack:
            with self.reaching(""):
                os.makedirs(self.place, exist_ok=True)
                stack.enter_context(held(Path(self.place, _JOB_LOCK)))
                # A put that is still on its way is one of an earlier job. Without its draft it fails.
                self.delete(name for name in os.listdir(self.place) if name.startswith(_DRAFT))
            yield

    @contextmanager
    def within(self, directory: str) -> Iterator[None]:
        parts = directory.split("/") if directory else []
        places = [self.at("/".join(parts[: end + 1])) for end in range(len(parts))]
        with self.reaching(directory):
            for place in places:  # if the root was removed, it must not come again
                with suppress(FileExistsError):
                    os.mkdir(place)
            yield
            for place in reversed(places):
                sync(place)

    def prune(self) -> None:
        for directory, _, _ in os.walk(self.place, topdown=False):
            if directory != self.place:
                with suppress(OSError):  # which it is for one that has content
                    os.rmdir(directory)

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        with self.reaching(path):
            file = os.open(self.at(path), _NEW, 0o600 if self.purpose.is_private else 0o666)
            with self._removed_if_it_fails(path), os.fdopen(file, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(file)

    @contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        """Of Arrow's own files: what is read of one of Python's is freed by Arrow's threads, and a process that ends
        just then is aborted."""
        with self.reaching(path):
            try:
                file = pa.OSFile(self.at(path))
            except (FileNotFoundError, NotADirectoryError):
                yield None
            else:
                with file:
                    yield file

    def put(self, path: str, data: bytes, tag: str | None = None, draft: str | None = None) -> str | None:
        draft = draft or f"{_DRAFT}-{uuid.uuid4().hex}"
        with self.reaching(path), nullcontext() if tag is None else self._alone():
            if tag is not None and not self._is_at(path, tag):
                return None
            with self.writing(draft) as stream:
                stream.write(data)
            with self._removed_if_it_fails(draft):
                # What names other files must not be durable before their names are.
                sync(self.at(os.path.dirname(draft)))
                try:
                    if tag is None:
                        os.link(self.at(draft), self.at(path))
                    else:
                        os.replace(self.at(draft), self.at(path))
                    is_put = True
                except (FileExistsError, FileNotFoundError):
                    is_put = False
                except OSError as error:
                    if tag is not None or error.errno not in _NO_LINKS:
                        raise
                    is_put = self._put_without_links(path, draft)
                sync(self.at(os.path.dirname(path)))
            self.delete([draft])
        return tag_of(data) if is_put else None

    def _put_without_links(self, path: str, draft: str) -> bool:
        if self.purpose.is_private:
            another = "name a directory on another one, or s3://BUCKET/PREFIX"
            raise self.purpose.refused(f"the file system of {self.place} has no hard links: {another}")
        with self._alone():
            if os.path.lexists(self.at(path)):
                return False
            os.replace(self.at(draft), self.at(path))
            return True

    @contextmanager
    def _removed_if_it_fails(self, path: str) -> Iterator[None]:
        # Whoever tries again writes another one: on a full disk, what is left of each would take what others free.
        try:
            yield
        except Exception:
            with suppress(OSError):
                os.unlink(self.at(path))
            raise

    def _is_at(self, path: str, tag: str) -> bool:
        there = self.get(path)
        return there is not None and there[1] == tag

    def _alone(self) -> AbstractContextManager[None]:
        return held(Path(self.place, _PUT_LOCK))

    def read(self, path: str) -> bytes | None:
        if not self.purpose.is_private:
            return super().read(path)
        with self.reaching(path):
            try:
                return read_trusted(self.at(path))
            except FileNotFoundError:
                return None
            except UntrustedError as error:
                right = f"{self.purpose.what} are read if only their owner, who reads them, can write them"
                raise self.purpose.refused(f"{self.at(path)} {error}; {right}") from None

    def names(self, directory: str) -> list[str]:
        with self.reaching(directory):
            try:
                found = os.listdir(self.at(directory))
            except (FileNotFoundError, NotADirectoryError):
                return []
        others = (name for name in found if name not in (_JOB_LOCK, _PUT_LOCK) and not name.startswith(_DRAFT))
        return sorted(name for name in others if not is_of_file_system(Path(self.at(directory), name)))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self.reaching(path):
                try:
                    os.unlink(self.at(path))
                except FileNotFoundError:
                    continue
