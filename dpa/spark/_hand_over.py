"""Hands staged files to a job as Spark commits them, while it stages the rest.

A job waits a moment for the whole table, which can be counted and sampled fully. If that takes longer, the files that
are there are listed beside them, batch by batch, for `dpa.sources.micro_batches` to read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

from pyarrow import fs

from dpa.errors import TableError
from dpa.sources.feed import PAGE_SPLITS
from dpa.sources.micro_batches import COMPLETE, ENDED, MicroBatches, place_of_batch, put, put_list, read_list
from dpa.sources.parquet import parquet_table
from dpa.sources.paths import Location, is_hidden
from dpa.spark._errors import as_table_error

_log = logging.getLogger(__name__)

WHOLE_SECONDS = 5.0
"""How long a job waits for the whole table before it starts with some files."""

_LOOK_SECONDS = 0.2
"""How often to look for Ctrl-C and for new files."""

_LISTS = "_batches"
"""The lists' directory, beside the files."""


def is_complete(place: Location) -> bool:
    return bool(place.at(f"{place.path}/{COMPLETE}").kind != fs.FileType.NotFound)


def is_whole(writing: Future[None], place: Location, *, wait_for_all: bool) -> bool:
    """Wait until Spark has staged everything, or for `WHOLE_SECONDS` and a first file; returns whether it is
    everything."""
    until = time.monotonic() + WHOLE_SECONDS
    while not wait([writing], timeout=_LOOK_SECONDS).done:  # not one long wait: some libraries resume it after a signal
        if not wait_for_all and time.monotonic() >= until and _committed(place):
            return False
    writing.result()
    return True


@contextmanager
def handed_over(writing: Future[None], place: Location, what: str) -> Iterator[MicroBatches]:
    """Yield a feed of the files that Spark stages at a place during this block; some are there. `writing` is done when
    Spark is; `what` starts the message if it fails."""
    lists = _Lists(place)
    lists.extend()
    left = threading.Event()
    listing = threading.Thread(target=_list_all, args=(writing, lists, what, left), name="dpa-staged", daemon=True)
    listing.start()
    _log.info("%s goes on while the job runs", what)
    try:
        yield lists.feed()
    finally:
        left.set()
        listing.join()


def again(place: Location) -> MicroBatches | None:
    """The feed of what was staged for another process; None if it was handed over as a whole. Raises TableError if
    Spark had not staged everything."""
    lists = _Lists(place)
    if not lists.were_there:
        return None
    if not is_complete(place):
        raise TableError(f"{place.name} is not complete, as the job's driver has ended; run it without --resume")
    lists.extend()
    lists.end()
    return lists.feed()


def _list_all(writing: Future[None], lists: _Lists, what: str, left: threading.Event) -> None:
    """List files as they come, and Spark's failure: an exception in this thread would be lost."""
    why = ""
    try:
        with as_table_error(what):
            while not writing.done():
                lists.extend()
                if left.wait(_LOOK_SECONDS):
                    return
            writing.result()
            lists.extend()
    except Exception as error:
        why = str(error) or type(error).__name__
    while not left.is_set():
        try:
            lists.end(why)
            return
        except OSError as error:  # such as a full disk, which the end of the job mends
            _log.warning("%s: its end cannot be said: %s", what, error)
            left.wait(1.0)


class _Lists:
    """The lists of the files at a place. `were_there`: whether another process has made some."""

    def __init__(self, files: Location) -> None:
        self._files = files
        self._place = files.at(f"{files.path}/{_LISTS}")
        self._listed: list[str] = []
        self._number = 0
        while (batch := self._next).kind != fs.FileType.NotFound:
            self._listed += read_list(batch)
            self._number += 1
        self.were_there = bool(self._listed)

    @property
    def _next(self) -> Location:
        return self._place.at(place_of_batch(self._place.path, self._number))

    def extend(self) -> None:
        """List new files."""
        found = [name for name in _committed(self._files) if name not in self._listed]
        if found:
            self._place.filesystem.create_dir(self._place.path)
        for start in range(0, len(found), PAGE_SPLITS):  # their footers are read whenever a page begins among them
            some = found[start : start + PAGE_SPLITS]
            put_list(self._next, some)
            self._listed += some
            self._number += 1

    def end(self, why: str = "") -> None:
        """Note that no file follows; `why`: Spark's failure, if any."""
        put(self._place.at(f"{self._place.path}/{ENDED}"), why)

    def feed(self) -> MicroBatches:
        return MicroBatches(self._place.name, parquet_table(self._listed[:1]).schema)


def _committed(place: Location) -> list[str]:
    """The names of complete files."""
    infos = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
    return sorted(place.at(info.path).name for info in infos if info.is_file and not is_hidden(info.base_name))
