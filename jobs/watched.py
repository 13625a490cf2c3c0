"""A paced stream, and a count by key that notes when each record was processed (`experiments.redeploy`,
`experiments.elastic`).

A record is due at a moment. If it is processed later than that, it was held up, by whatever: a queue, a hand-over, or a
job that was stopped meanwhile.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpa.executors import Mapper, Reducer
from jobs.paced import Work

_FLUSH_SECONDS, _AHEAD_SECONDS = 0.25, 1.0
_BEGAN = "began"


def began_at(directory: str | Path) -> float | None:
    """When the stream whose reducers note in a directory began, in seconds since the epoch; None: it has not begun."""
    file = Path(directory) / _BEGAN
    return float(file.read_text()) if file.exists() else None


class Scheduled(Mapper):
    """Makes a record of each row of `key`, `due` and `count`, and waits until it is due: so many seconds after the
    stream began, which is a moment after its first record was read. The file `began` in a directory says when that was.
    A row without a moment is due at once."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._began: float | None = None

    def map(self, record: dict[str, Any]) -> Iterable[tuple[int, dict[str, Any]]]:
        """The record, when it is due."""
        key, due = record["key"], record["due"]
        if due is None:
            return [(key, {"due": 0.0, "count": record["count"], "number": key})]
        if self._began is None:
            self._began = began_at(self.directory) or self._begin()
        at = self._began + due
        wait = at - time.time()
        if wait > 0:
            time.sleep(wait)
        return [(key, {"due": at, "count": record["count"], "number": key})]

    def _begin(self) -> float:
        began, file = time.time() + _AHEAD_SECONDS, Path(self.directory) / _BEGAN
        made = file.with_suffix(".new")
        made.write_text(repr(began))
        made.rename(file)
        return began


class WatchedCount(Reducer[int, dict[str, Any]]):
    """Counts, and notes of each record that was due at a moment when it was processed, when it was due, and its key: in
    a file of its own in a directory, three numbers each.

    They are written every `flush_seconds`: what a task has not written when it is stopped is missing.
    """

    def __init__(self, directory: str, flush_seconds: float = _FLUSH_SECONDS) -> None:
        self.directory = directory
        self._flush_seconds = flush_seconds
        self._noted: array[float] = array("d")
        self._flushed_at = 0.0

    def zero(self) -> int:
        """Nothing."""
        return 0

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        """Count, and note."""
        if value["due"]:
            now = time.time()
            self._noted.extend((now, value["due"], value["number"]))
            if now - self._flushed_at >= self._flush_seconds:
                self._flushed_at = now
                self._flush()
        return state + value["count"]

    def merge(self, left: int, right: int) -> int:
        """Both."""
        return left + right

    def finish(self, state: int) -> dict[str, int]:
        """The count; what has been noted is written first."""
        self._flush()
        return {"count": state}

    def _flush(self) -> None:
        if self._noted:
            with (Path(self.directory) / f"{os.getpid()}.times").open("ab") as file:
                self._noted.tofile(file)
            del self._noted[:]


class SleepingCount(WatchedCount):
    """The same, and takes `seconds` for each record that was due at a moment. What it notes is written at once."""

    def __init__(self, directory: str, seconds: float) -> None:
        super().__init__(directory, flush_seconds=0.0)
        self._seconds = seconds
        self._work = Work()

    def reduce(self, state: int, value: dict[str, Any]) -> int:
        """Sleep, count, and note."""
        if value["due"]:
            self._work.spend(self._seconds)
        return super().reduce(state, value)
