"""Directories that Spark was writing to when it was interrupted.

They are removed at once, but tasks that have not noticed yet may make them again, and nobody can ask a JVM that is
shutting down whether it still runs some. So they are removed once more when the session's JVM has ended.
"""

from __future__ import annotations

from dpa.tables._paths import Location

_PLACES: list[Location] = []


def add(place: Location) -> None:
    """Note a directory whose writing has been interrupted."""
    _PLACES.append(place)


def remove() -> None:
    """Remove what is left of all that were noted; nothing may write to them any more."""
    while _PLACES:
        _PLACES.pop().remove_directory()
