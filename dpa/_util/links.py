"""Paths with links, a loop of which `Path.resolve` refuses before Python 3.13, and `Path.exists` takes for nothing."""

from __future__ import annotations

import os
from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether there is anything at a path, links followed.

    Raises:
        OSError: it cannot be found out, for a loop of links or lack of permission.
        ValueError: the path has a null character.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def without_links(path: str | Path) -> Path:
    """The absolute path without links, except for those that form a loop."""
    return Path(os.path.realpath(path))


def is_of_file_system(entry: Path) -> bool:
    """Whether an entry of a directory belongs to the file system and to no user: `lost+found` at the root of a
    volume."""
    is_named = entry.name == "lost+found" and entry.is_dir() and not entry.is_symlink()
    return is_named and entry.parent.resolve().is_mount()
