"""Locks that end with their owner, temporary directories that a later run knows to be abandoned, and what no other user
can have written.

A lock is an advisory `flock` of a small file. The kernel releases it when the process that holds it ends, however it
ends: nothing depends on process numbers, so it holds between containers and, on NFS, between machines. A file system
without such locks has no guard, and nothing on it is taken for abandoned.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir

LOCK = ".lock"
"""The file in an owned directory whose lock the owner holds."""

DIGITS = 32
"""Of a directory's name after its prefix, unless its path must be short."""

_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""What `flock` says where the file system has no locks."""


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold the lock of a file, which is there for no longer than the block.

    Raises:
        BlockingIOError: another owner holds it.
        OSError: the file cannot be made.
    """
    descriptor = _locked(file, os.O_CREAT)
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()  # before the lock is released: afterwards it may be another owner's
        if descriptor is not None:
            os.close(descriptor)


class OwnedDirectory:
    """A directory of this process's own, with a unique name. Its lock shows others whether the process is alive."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def make(cls, parent: Path, prefix: str, mode: int = 0o777, digits: int = DIGITS) -> OwnedDirectory:
        """Make a directory, and `parent` if need be.

        Args:
            parent: where it is made.
            prefix: what its name begins with.
            mode: who may read and write it.
            digits: of its name after the prefix; those of other lengths are not found by `found` either.

        Raises:
            OSError: it cannot be made.
        """
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            path = parent / f"{prefix}{uuid.uuid4().hex[:digits]}"
            try:
                path.mkdir(mode)
            except FileExistsError:
                continue
            with suppress(BlockingIOError, FileNotFoundError):  # swept by another process, as it is not yet locked
                return cls(path, _locked(path / LOCK, os.O_CREAT))

    @property
    def name(self) -> str:
        """The directory's path, for messages."""
        return str(self.path)

    def remove_directory(self) -> None:
        """Remove the directory with all that it holds, if it is there. It stays ours if that fails.

        Raises:
            OSError: something in it cannot be removed.
        """
        for entry in self.path.iterdir() if self.path.exists() else ():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != LOCK:
                entry.unlink()
        with suppress(FileNotFoundError):
            (self.path / LOCK).unlink(missing_ok=True)  # before the lock is released, lest another process take it over
            self.release()  # NFS keeps a file that is open in the directory, under another name
            self.path.rmdir()

    def release(self) -> None:
        """Give the directory up, whether it is still there or not."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def users_directory(parent: str | None = None) -> Path:
    """This user's directory in the machine's temporary one, or in `parent`, which no other user can enter.

    Raises:
        OSError: it cannot be made, or is another user's.
    """
    path = Path(parent or gettempdir()) / f"dpa-{os.getuid()}"
    with suppress(FileExistsError):
        path.mkdir(0o700)
    there = path.lstat()
    if not stat.S_ISDIR(there.st_mode) or _others_can_write(there):
        raise PermissionError(f"{path} {_WRONG.format(there.st_uid, there.st_mode)}; remove it, or set TMPDIR")
    if there.st_mode & 0o077:
        path.chmod(0o700)
    return path


def read_trusted(path: str | Path) -> bytes:
    """The content of a file that nobody but this user, or the machine's administrator, can have written.

    Raises:
        UntrustedError: another user owns the file, or can write it.
        OSError: it cannot be read.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        there = os.fstat(file.fileno())
        if not stat.S_ISREG(there.st_mode) or _others_can_write(there):
            raise UntrustedError(_WRONG.format(there.st_uid, there.st_mode))
        return file.read()


def require_own(directory: str | Path) -> None:
    """Check that nobody but this user, or the machine's administrator, can have written what is in a directory.

    Raises:
        UntrustedError: another user owns it, or can write there.
        OSError: it cannot be looked at.
    """
    there = Path(directory).stat()
    if _others_can_write(there):
        raise UntrustedError(_WRONG.format(there.st_uid, there.st_mode))


class UntrustedError(Exception):
    """A file is not trusted, and why."""


_WRONG = "is not trusted: it belongs to user {}, mode {:o}"


def _others_can_write(there: os.stat_result) -> bool:
    return there.st_uid not in (0, os.geteuid()) or bool(there.st_mode & 0o022)


@contextmanager
def temporary_directory(prefix: str) -> Iterator[Path]:
    """A directory for this user alone in the machine's temporary one, for as long as the block; those of the same
    `prefix` that were abandoned are removed."""
    parent = Path(gettempdir())
    sweep(parent, prefix)
    directory = OwnedDirectory.make(parent, prefix, mode=0o700)
    try:
        yield directory.path
    finally:
        with suppress(OSError):
            directory.remove_directory()
        directory.release()


def sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of such a name that were abandoned; what cannot be removed stays."""
    for directory in found(parent, prefix)[0]:
        with suppress(OSError):
            directory.remove_directory()
        directory.release()


def found(parent: Path, prefix: str, digits: int = DIGITS) -> tuple[list[OwnedDirectory], list[Path]]:
    """The directories that `make` made of these arguments: those that were abandoned, which are this process's
    from now on, and those whose owner lives.

    What another user made, or what has no lock, is neither. An empty one was being made or removed, and is removed.
    """
    abandoned, alive = [], []
    for path in named(parent, prefix, digits):
        try:
            descriptor = _locked(path / LOCK)
        except BlockingIOError:
            alive.append(path)
        except OSError:
            with suppress(OSError):
                path.rmdir()
        else:
            if descriptor is not None:
                abandoned.append(OwnedDirectory(path, descriptor))
    return abandoned, alive


def named(parent: Path, prefix: str, digits: int = DIGITS) -> list[Path]:
    """The directories of this user that have such a name, and a lock or nothing in them."""
    pattern = re.compile(re.escape(prefix) + f"[0-9a-f]{{{digits}}}")
    try:
        paths = sorted(path for path in parent.iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return []
    return [path for path in paths if _is_owned(path)]


def _is_owned(path: Path) -> bool:
    """Whether a path is a directory with a lock or nothing in it, and this user's: in `/tmp`, no other user can
    put something else in its place. It may vanish meanwhile, if its owner ends or it is swept."""
    try:
        there = path.lstat()
        is_own = stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid()
        return is_own and ((path / LOCK).exists() or not any(path.iterdir()))
    except OSError:
        return False


def _locked(file: Path, flags: int = 0) -> int | None:
    """A descriptor of a file, which holds its lock until it is closed; None if the file system has no locks.

    Raises:
        BlockingIOError: another owner holds it.
        OSError: the file cannot be opened.
    """
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, file):
                return descriptor
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and error.errno in _UNSUPPORTED:
                return None
            raise
        os.close(descriptor)  # its last owner removed it in between


def _is_at(descriptor: int, file: Path) -> bool:
    """Whether an open file is the one that a path leads to."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False
