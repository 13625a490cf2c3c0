"""What a block changes of a running Spark session and puts back: settings, names of views, and directories with staged
input.

A job's directory is removed when the job ends, and again later if that fails. After an interruption, tasks that have
not noticed may make it again, and a JVM that shuts down does not say whether it still runs any. So the directory is
removed once more when the session's JVM has ended, or at the latest when this process ends.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dpa._util.owned import OwnedDirectory
from dpa._util.sharing import Shared
from dpa.sources.paths import Location
from dpa.spark._errors import as_table_error, quoted, tidying_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TURN = threading.RLock()

Place: TypeAlias = Location | OwnedDirectory

_PLACES: list[Place] = []


@dataclass(eq=False)
class SharedSetting:
    """A setting that has its value while any block in any thread needs it: concurrent jobs share a session. `default`
    is its value in a session that does not set it."""

    name: str
    value: str
    default: str
    _shared: Shared[None] = field(default_factory=Shared, init=False)

    def of(self, spark: SparkSession) -> AbstractContextManager[None]:
        return self._shared.use(lambda: self._changed(spark))

    @contextmanager
    def _changed(self, spark: SparkSession) -> Iterator[None]:
        before = spark.conf.get(self.name, self.default) or self.default
        spark.conf.set(self.name, self.value)
        try:
            yield
        finally:
            with tidying_up():
                spark.conf.set(self.name, before)


@contextmanager
def temporary_view(frame: DataFrame, name: str) -> Iterator[None]:
    """Name a DataFrame for queries in this block; what they resolve to stays valid afterwards. Threads take turns,
    because jobs that share a session may give one name different meanings.

    The name may be any text: queries put one that is no identifier into backticks. Raises TableError if the session has
    a temporary view of that name, which is left alone.
    """
    with _TURN:
        with as_table_error(f"the view {name!r}"):
            frame.createTempView(quoted(name))
        try:
            yield
        finally:
            with tidying_up():
                frame.sparkSession.catalog.dropTempView(name)


def add_place(place: Place) -> None:
    """Note a directory before anything is written to it."""
    _PLACES.append(place)


def remove_place(place: Place, *, for_good: bool) -> None:
    """Remove a directory. It stays noted if that fails, or if it is not `for_good` because tasks may still write
    there."""
    if _removed(place) and for_good:
        _PLACES.remove(place)


def keep_place(place: Place) -> None:
    _PLACES.remove(place)


def remove_places() -> None:
    """Remove what is left of the noted directories. What cannot be removed stays noted."""
    _PLACES[:] = [place for place in _PLACES if not _removed(place)]


def _removed(place: Place) -> bool:
    try:
        place.remove_directory()
    except OSError:
        return False
    return True


def _forget() -> None:
    """Forget the parent's directories in a forked process, which may end at any time."""
    _PLACES.clear()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _at_exit() -> None:
    remove_places()
    for place in _PLACES:
        warnings.warn(f"{place.name}, where input was staged, could not be removed", RuntimeWarning, stacklevel=2)
