"""Files: errors of writing, as each library reports a full disk in its own way; and paths with links. Before Python
3.13 `Path.resolve` fails on a loop of links, and `Path.exists` says that nothing is there."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dpa.errors import JobFailedError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_SAID = ("No space left on device", "Disk quota exceeded", "local disk is full", "over capacity")
"""What messages of Arrow, Spark and Ray contain. They may be many lines long."""


def is_full(error: BaseException) -> bool:
    return getattr(error, "errno", None) in _FULL or any(said in str(error) for said in _SAID)


def why(error: BaseException) -> str:
    """The error in one line. A full disk comes first."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return f"the disk is full: {said}" if is_full(error) else said


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Write to `path` in this block. An `OSError` becomes a `JobFailedError` with the cause and the path."""
    try:
        yield
    except OSError as error:
        raise JobFailedError(f"{why(error)}, writing {path}") from None


def write_file(path: Path, content: str | bytes, mode: int = 0o666) -> Path:
    """Write a file, which appears complete or not at all; returns its path. The umask restricts `mode`."""
    # Named by process, not by `tempfile`, whose files only their owner may read.
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb", opener=partial(os.open, mode=mode)) as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def sync(path: str | Path) -> None:
    """Have the content of a file, or the names in a directory, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some file systems cannot sync a directory
            raise
    finally:
        os.close(descriptor)


def is_there(path: Path) -> bool:
    """Whether a path, with links followed, leads to anything. Raises OSError if a loop of links or a missing permission
    hides it, and ValueError if the path has a null character."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def without_links(path: str | Path) -> Path:
    """The absolute path with links resolved, except for those that form a loop."""
    return Path(os.path.realpath(path))


def is_of_file_system(entry: Path) -> bool:
    """Whether a directory's entry belongs to the file system: `lost+found` at the root of a volume."""
    is_named = entry.name == "lost+found" and entry.is_dir() and not entry.is_symlink()
    return is_named and entry.parent.resolve().is_mount()
