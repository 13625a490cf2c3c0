"""Paths with links. Before Python 3.13 `Path.resolve` fails on a loop of links, and `Path.exists` says that nothing is
there."""

from __future__ import annotations

import os
from pathlib import Path


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
