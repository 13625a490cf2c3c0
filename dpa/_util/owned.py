"""Locks that end with their owner, temporary directories that a later run recognises as abandoned, and files that no
other user can have written.

A lock is an advisory `flock` of a small file. The kernel releases it when the process that holds it ends in any way.
Nothing depends on process numbers, so locks work between containers and, on NFS, between machines. On a file system
without locks nothing is guarded, and nothing is taken for abandoned."""

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

_LONGEST_PARENT = 20  # characters of a directory for Ray's sockets, whose paths have at most 107, or 103 on a Mac

DIGITS = 32  # in a directory's name after its prefix, unless the path must be short

_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # what `flock` says where the file system has no locks


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold the lock of a file, which exists for as long as the block. Raises BlockingIOError if another has it."""
    descriptor = _locked(file, os.O_CREAT)
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()  # before the lock is released: afterwards it may be another owner's
        _release(descriptor)


class OwnedDirectory:
    """A directory of this process, with a unique name. Its lock shows others whether the process is alive."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def make(cls, parent: Path, prefix: str, mode: int = 0o777, digits: int = DIGITS) -> OwnedDirectory:
        """Make a directory whose name is `prefix` and that many hexadecimal digits, and `parent` if it is missing."""
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            path = parent / f"{prefix}{uuid.uuid4().hex[:digits]}"
            try:
                path.mkdir(mode)
            except FileExistsError:
                continue
            with suppress(BlockingIOError, FileNotFoundError):  # another process has swept it before it was locked
                return cls(path, _locked(path / LOCK, os.O_CREAT))

    @property
    def name(self) -> str:
        return str(self.path)

    def remove_directory(self) -> None:
        """Remove the directory with its content, if it is there. It stays ours if that fails."""
        for entry in self.path.iterdir() if self.path.exists() else ():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != LOCK:
                entry.unlink()
        with suppress(FileNotFoundError):
            (self.path / LOCK).unlink(missing_ok=True)  # before it is released, lest another process take it over
            self.release()  # NFS would keep a file that is open, under another name
            self.path.rmdir()

    def release(self) -> None:
        _release(self._descriptor)
        self._descriptor = None


def users_directory(parent: str | None = None) -> Path:
    """This user's directory in the machine's temporary one, or in `parent`, which no other user can enter. Raises
    OSError if it cannot be made, or another user owns it."""
    path = Path(parent or gettempdir()) / f"dpa-{os.getuid()}"
    with suppress(FileExistsError):
        path.mkdir(0o700)
    there = path.lstat()
    if not stat.S_ISDIR(there.st_mode) or _others_can_write(there):
        raise PermissionError(f"{path} {_WRONG.format(there.st_uid, there.st_mode)}; remove it, or set TMPDIR")
    if there.st_mode & 0o077:
        path.chmod(0o700)
    return path


def directory_for_sockets(parent: str) -> Path:
    """As `users_directory`, or the one in `/tmp` where paths of sockets would be too long."""
    return users_directory(parent if len(parent) <= _LONGEST_PARENT else "/tmp")


def read_trusted(path: str | Path) -> bytes:
    """The content of a file that only this user or the machine's administrator can have written. Raises UntrustedError
    if another user owns the file, or can write it."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        there = os.fstat(file.fileno())
        if not stat.S_ISREG(there.st_mode) or _others_can_write(there):
            raise UntrustedError(_WRONG.format(there.st_uid, there.st_mode))
        return file.read()


def require_own(directory: str | Path) -> None:
    """Check that only this user or the machine's administrator can have written what is in a directory. Raises
    UntrustedError if another user owns it, or can write there."""
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
    """A directory for this user alone in the machine's temporary one, for as long as the block. Abandoned ones of the
    same `prefix` are removed."""
    parent = Path(gettempdir())
    sweep(parent, prefix)
    directory = OwnedDirectory.make(parent, prefix, mode=0o700)
    try:
        yield directory.path
    finally:
        with suppress(OSError):
            directory.remove_directory()
        directory.release()


def sweep(parent: Path, prefix: str) -> list[Path]:
    """Remove abandoned directories whose names begin so. What cannot be removed stays. Returns those whose owner
    lives."""
    abandoned, alive = found(parent, prefix)
    for directory in abandoned:
        with suppress(OSError):
            directory.remove_directory()
        directory.release()
    return alive


def found(parent: Path, prefix: str, digits: int = DIGITS) -> tuple[list[OwnedDirectory], list[Path]]:
    """The directories that `make` made with these arguments: first the abandoned ones, which this process owns from now
    on, then those whose owner lives. Directories of other users, and those without a lock, are neither."""
    abandoned, alive = [], []
    for path in named(parent, prefix, digits):
        try:
            descriptor = _locked(path / LOCK)
        except BlockingIOError:
            alive.append(path)
        except OSError:
            with suppress(OSError):
                path.rmdir()  # it is empty: it was being made or removed
        else:
            if descriptor is not None:
                abandoned.append(OwnedDirectory(path, descriptor))
    return abandoned, alive


def named(parent: Path, prefix: str, digits: int = DIGITS) -> list[Path]:
    """This user's directories of such a name with a lock, or nothing, in them."""
    pattern = re.compile(re.escape(prefix) + f"[0-9a-f]{{{digits}}}")
    try:
        paths = sorted(path for path in parent.iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return []
    return [path for path in paths if _is_owned(path)]


def _is_owned(path: Path) -> bool:
    """Whether a path is this user's directory, with a lock or nothing in it. In `/tmp` no other user can replace it."""
    try:
        there = path.lstat()
        is_own = stat.S_ISDIR(there.st_mode) and there.st_uid == os.geteuid()
        return is_own and ((path / LOCK).exists() or not any(path.iterdir()))
    except OSError:  # its owner has ended, or it was swept
        return False


def _locked(file: Path, flags: int = 0) -> int | None:
    """A descriptor of a file, which holds its lock until it is closed; None if the file system has no locks."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | flags, 0o666)
        _descriptors.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, file):
                return descriptor
        except BaseException as error:
            _release(descriptor)
            if isinstance(error, OSError) and error.errno in _UNSUPPORTED:
                return None
            raise
        _release(descriptor)  # its last owner removed it in between


_descriptors: set[int] = set()  # of files that are locked by this process


def _release(descriptor: int | None) -> None:
    if descriptor in _descriptors:
        _descriptors.remove(descriptor)
        os.close(descriptor)


def _forget_all() -> None:
    while _descriptors:
        _release(next(iter(_descriptors)))


os.register_at_fork(after_in_child=_forget_all)  # else the lock of a process would outlast it in its children


def _is_at(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False
