"""The input that both engines read: Parquet files of rows in the order of their times, which lie there or appear.

Both watch a directory, so neither has a source that the other lacks, and both decode the same bytes. Rows are made from
the seed alone; what each window must hold is counted meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

HOT_SHARE = 0.6

MICROS = 1_000_000

SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "time": pa.timestamp("us", "UTC")})

COUNTED = ("key", "window_end", "count")
"""The columns of a result."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventFiles:
    """Files of a stream.

    Attributes:
        files: how many there are, all of one length.
        file_rows: rows of a file.
        file_seconds: event time from the first row of a file to that of the next.
        window_seconds: the length of windows; a window has whole files.
        is_hot: whether one key has `HOT_SHARE` of the rows; else all are as frequent.
        keys: how many there are.
        start: of the event time, in seconds since 1970: the beginning of a window, and not ahead of the clock.
    """

    files: int
    file_rows: int
    file_seconds: float
    window_seconds: float
    is_hot: bool = False
    keys: int = 10_000
    start: float = 1_700_000_000.0

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return self.files * self.file_rows

    def written(self, directory: Path, seed: int) -> Expected:
        """Write all files; returns what windows must hold."""
        random = np.random.default_rng(seed)
        names = pa.array([f"k{number}" for number in range(self.keys)])
        expected = Expected()
        for number in range(self.files):
            drawn = random.integers(0, self.keys, self.file_rows)
            if self.is_hot:
                drawn[random.random(self.file_rows) < HOT_SHARE] = 0
            begins = round((self.start + number * self.file_seconds) * MICROS)
            times = begins + np.arange(self.file_rows) * round(self.file_seconds * MICROS) // self.file_rows
            columns = [
                names.take(pa.array(drawn)),
                pa.array(drawn % 100),
                pa.array(times).cast(SCHEMA.field("time").type),
            ]
            path = directory / f"{number:06d}.parquet"
            pq.write_table(pa.table(columns, schema=SCHEMA), path)
            os.utime(path, ns=(number * MICROS, number * MICROS))  # the order in which both read
            end = self.window_end(number)
            expected.counts[end] = expected.counts.get(end, 0) + np.bincount(drawn, minlength=self.keys)
        return expected

    def window_end(self, number: int) -> int:
        """The end of the window of a file's rows, in microseconds since 1970."""
        size = round(self.window_seconds * MICROS)
        begins = round((self.start + number * self.file_seconds) * MICROS)
        return begins - begins % size + size


@dataclass
class Expected:
    """How many rows of each key each window has, shape (keys,), by the window's end in microseconds since 1970."""

    counts: dict[int, Integers] = field(default_factory=dict)

    def check(self, system: str, found: pa.Table, *, all_of: bool) -> None:
        """Check a result, the columns `COUNTED`; `all_of`: whether it must have all windows, and not some as a whole.

        Raises:
            AssertionError: a count is wrong.
        """
        ends = found["window_end"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        keys = pc.utf8_slice_codeunits(found["key"].cast(pa.string()), 1).cast(pa.int64()).to_numpy()
        counts = found["count"].to_numpy()
        for end in np.unique(ends):
            own = ends == end
            wanted = self.counts[int(end)]
            sums = np.bincount(keys[own], counts[own], len(wanted)).astype(np.int64)
            if own.sum() != np.count_nonzero(sums) or not np.array_equal(sums, wanted):
                raise AssertionError(f"{system}: wrong counts in the window that ends at {end}")
        if all_of and len(np.unique(ends)) < len(self.counts):
            raise AssertionError(f"{system}: {len(np.unique(ends))} windows of {len(self.counts)}")


@dataclass
class Arrivals:
    """What a callback was given, and when.

    Attributes:
        tables: the columns `COUNTED`, each with seconds since 1970.
    """

    tables: list[tuple[float, pa.Table]] = field(default_factory=list)

    def note(self, rows: pa.Table) -> None:
        """Rows are there."""
        self.tables.append((time.time(), rows.select(COUNTED)))

    @property
    def rows(self) -> pa.Table:
        """All of them."""
        return pa.concat_tables([table for _, table in self.tables], promote_options="permissive")

    def by_window(self) -> dict[int, float]:
        """When the last rows of each window came, in seconds since 1970, by its end."""
        found: dict[int, float] = {}
        for at, table in self.tables:
            ends = pc.unique(table["window_end"]).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            found |= dict.fromkeys(ends.to_pylist(), at)
        return found


@dataclass(frozen=True)
class Counted:
    """What a run gave: the rows that it read a second, its results, and figures of its epochs or micro-batches."""

    rate: float
    arrivals: Arrivals
    more: dict[str, Any]


class Appearance:
    """Moves written files to where they are watched, one every `file_seconds` once an engine is ready. A context."""

    def __init__(self, files: EventFiles, source: Path, target: Path) -> None:
        self._files, self._source, self._target = files, source, target
        self._is_ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="appearance", daemon=True)
        self._began = 0.0
        self.latest = 0.0

    def __enter__(self) -> Appearance:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._is_ready.set()
        self._thread.join()

    def begin(self) -> None:
        """An engine is ready, and waits for the first file."""
        if not self._is_ready.is_set():
            self._began = time.time()
            self._is_ready.set()

    def due(self, number: int) -> float:
        """When a file comes, which is when its last row has happened, in seconds since 1970."""
        return self._began + (number + 1) * self._files.file_seconds

    def _run(self) -> None:
        self._is_ready.wait()
        for number in range(self._files.files):
            if self._over.wait(max(0.0, self.due(number) - time.time())):
                return
            name = f"{number:06d}.parquet"
            (self._source / name).rename(self._target / name)
            self.latest = max(self.latest, time.time() - self.due(number))
