"""Lists of the files that Spark has committed, batch by batch, for `dpa.sources.micro_batches` to read while Spark
stages more; and the mark of their end."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import fs

from dpa.sources.feed import PAGE_SPLITS
from dpa.sources.micro_batches import ENDED, MicroBatches, place_of_batch, put
from dpa.sources.parquet import parquet_table
from dpa.sources.paths import Location, is_hidden

_log = logging.getLogger(__name__)

_LISTS = "_batches"
"""The lists' directory, beside the files."""


class StagedLists:
    """The lists of the files at a place: first those of another process, if it has made some."""

    def __init__(self, files: Location) -> None:
        self._files, self._place = files, files.below(_LISTS)
        self.ended = self._place.below(ENDED)
        self.listed: list[str] = []
        self._number = 0
        while batch := MicroBatches(self._place.name, pa.schema([])).batch(self._number):
            self.listed += batch
            self._number += 1

    def extend(self) -> None:
        found = [name for name in committed(self._files) if name not in self.listed]
        if found:
            self._place.filesystem.create_dir(self._place.path)
        for start in range(0, len(found), PAGE_SPLITS):  # their footers are read whenever a page begins among them
            some = found[start : start + PAGE_SPLITS]
            put(self._place.at(place_of_batch(self._place.path, self._number)), json.dumps(some))
            self.listed += some
            self._number += 1

    def feed(self) -> MicroBatches:
        return MicroBatches(self._place.name, parquet_table(self.listed[:1]).schema)


def committed(place: Location) -> list[str]:
    infos = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
    return sorted(place.at(info.path).name for info in infos if info.is_file and not is_hidden(info.base_name))


@contextmanager
def marking(work: Callable[[threading.Event], None], mark: Location) -> Iterator[None]:
    """Have a thread work beside this block, and write a mark when the work has ended, with its failure: an exception in
    a thread would be lost. The work gets an event that is set when the block is left, and then no mark is written."""
    left = threading.Event()

    def run() -> None:
        why = ""
        try:
            work(left)
        except Exception as error:
            why = str(error) or type(error).__name__
        while not left.is_set():
            try:
                return put(mark, why)
            except OSError as error:  # such as a full disk, which the end of the job mends
                _log.warning("the end of what is staged cannot be said at %s: %s", mark.name, error)
                left.wait(1.0)

    thread = threading.Thread(target=run, name="dpa-staged", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
