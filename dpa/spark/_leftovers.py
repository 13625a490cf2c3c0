"""Directories with staged input: each is removed when its job has ended, and again later if that failed.

Where Spark was interrupted, tasks that have not noticed yet may make a directory again, and a JVM that is shutting down
does not report whether it still runs any. So such a directory is removed once more when the session's JVM has ended, or
at the latest when this process does.
"""

from __future__ import annotations

import atexit
import os
import warnings
from typing import TypeAlias

from dpa._util.owned import OwnedDirectory
from dpa.sources.paths import Location

Place: TypeAlias = Location | OwnedDirectory

_PLACES: list[Place] = []


def add(place: Place) -> None:
    """Note a directory before anything is written to it."""
    _PLACES.append(place)


def remove(place: Place, *, for_good: bool) -> None:
    """Remove a directory. It stays noted if that fails, or if it is not `for_good` as tasks may still write there."""
    if _removed(place) and for_good:
        _PLACES.remove(place)


def keep(place: Place) -> None:
    """Forget a directory, which stays."""
    _PLACES.remove(place)


def remove_all() -> None:
    """Remove what is left of all directories that are noted. What cannot be removed stays noted."""
    _PLACES[:] = [place for place in _PLACES if not _removed(place)]


def _removed(place: Place) -> bool:
    try:
        place.remove_directory()
    except OSError:
        return False
    return True


def _forget() -> None:
    """In a forked process, which may end as any other: the places are its parent's."""
    _PLACES.clear()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _at_exit() -> None:
    remove_all()
    for place in _PLACES:
        warnings.warn(f"{place.name}, where input was staged, could not be removed", RuntimeWarning, stacklevel=2)
