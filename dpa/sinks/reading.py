"""Reads results of files, and results that a job publishes by epoch, while it runs and afterwards; and what a format of
results is, which has a sink and such a reader."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpa.errors import TableError
from dpa.execution.publishing import CHANGE, latest
from dpa.execution.publishing import EPOCH as EPOCH_COLUMN
from dpa.sinks._layout import rows_in
from dpa.sinks._packages import EPOCH, LAST, SECONDS, TableSink
from dpa.sinks.directory import result_in
from dpa.sinks.encodings import Encoding
from dpa.sinks.objects import RESULTS, manifest_at
from dpa.sinks.sink import Sink, Target
from dpa.sources.manifest import ResultManifest
from dpa.storage import Files, Purpose, files_at

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

_LOOK_SECONDS = 0.05  # how often a reader that waits looks for the next epoch


def result_at(place: str, purpose: Purpose = RESULTS) -> tuple[Files, ResultManifest]:
    """The files of the result at a place, and what stands beside them. Raises TableError if there is none."""
    files = files_at(place, purpose)
    found = manifest_at(files)[0] or (None if "://" in place else result_in(Path(place)))
    if found is None or not found.files:
        raise TableError(f"{files.place} holds no {purpose.what}: name the place to which a job has written them")
    return files, found


def published(place: str | Path) -> pa.Table:
    """The rows of the result at a place."""
    files, found = result_at(str(place))
    return rows_in(files, found.files or (), found.columns)


@dataclass(frozen=True, eq=False)
class Results:
    """What a job has published up to its newest complete epoch.

    Attributes:
        table: the whole result so far, where that is published; of what is final, all rows; of changes, those of all
            epochs. Without columns if there is no row yet.
        epoch: number of the newest epoch, from 1.
        seconds: from the beginning of the stream to the end of that epoch. What is published is what the rows make that
            sources had read by then: each of them is in it once, and no other.
        is_last: whether the job has ended with that epoch.
    """

    table: pa.Table
    epoch: int
    seconds: float
    is_last: bool
    _epochs: Epochs = field(repr=False)
    _mark: object = field(repr=False)
    _key: tuple[str, ...] | None = field(repr=False)

    def arrow(self) -> pa.Table:
        """As an Arrow table."""
        return self.table

    def pandas(self) -> Any:
        """As a DataFrame of pandas."""
        return self.table.to_pandas()

    def polars(self) -> pl.DataFrame:
        """As a DataFrame of polars."""
        import polars

        found = polars.from_arrow(self.table)
        assert isinstance(found, polars.DataFrame)
        return found

    def spark(self, session: SparkSession) -> DataFrame:
        """As a DataFrame of Spark; its rows travel through this process."""
        return session.createDataFrame(self.table)

    def latest(self, key: str | Sequence[str] | None = None) -> pa.Table:
        """Of changes, the newest row of each key, which are the result so far; of anything else, all rows.

        Args:
            key: the column of the key, or columns; None: those that the place says.

        Raises:
            TableError: it says none.
        """
        if not {CHANGE, EPOCH_COLUMN} <= {*self.table.column_names}:
            return self.table
        names = self._key if key is None else (key,) if isinstance(key, str) else tuple(key)
        if names is None:
            raise TableError(f"{self._epochs.place} does not say which columns are the key: name them")
        return latest(self.table, names)

    def wait(self, timeout: float | None = None) -> Results:
        """What there is once another epoch is complete.

        Args:
            timeout: most seconds to wait; None: until there is one.

        Raises:
            TableError: none was complete in time.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._epochs.mark() in (None, self._mark):
            if until is not None and time.monotonic() > until:
                raise TableError(f"{self._epochs.place}: epoch {self.epoch} is the newest after {timeout:g} s")
            time.sleep(_LOOK_SECONDS)
        return self._epochs.read()


class Epochs(ABC):
    """Where epochs are read.

    Attributes:
        place: for messages.
    """

    place: str

    @abstractmethod
    def mark(self) -> object:
        """What distinguishes the newest complete epoch from all others; None: there is none."""

    @abstractmethod
    def read(self) -> Results:
        """What there is; TableError if there is no complete epoch, or it cannot be read."""

    def _nothing(self) -> TableError:
        return TableError(f"{self.place} has no complete epoch, or not yet")


class FileEpochs(Epochs):
    """Beside a manifest."""

    def __init__(self, path: str) -> None:
        self._objects = files_at(path, RESULTS)
        self.place = self._objects.place

    def mark(self) -> object:
        found = self._manifest()
        return None if found is None else (found.job, found.life, found.epoch)

    def read(self) -> Results:
        found, before = self._manifest(), None
        while found is not None and found != before:
            try:
                rows = rows_in(self._objects, found.files or (), found.columns)
            except FileNotFoundError:  # removed meanwhile, as newer epochs are complete
                found, before = self._manifest(), found
                continue
            except TableError as error:
                what = f"epoch {found.epoch} is no table, nor will the result be"
                raise TableError(f"{self.place}: {what}: {error}") from None
            mark = found.job, found.life, found.epoch
            return Results(rows, found.epoch, found.seconds, found.is_last, self, mark, found.key)
        if found is None:
            raise self._nothing()
        raise TableError(f"{self.place}: epoch {found.epoch} lacks files; they were removed")

    def _manifest(self) -> ResultManifest | None:
        found, _ = manifest_at(self._objects)
        return None if found is None or found.files is None or found.publishes is None else found


class TableEpochs(Epochs):
    """In the commits of a Delta table, or in the properties of one of Iceberg."""

    def __init__(self, sink: TableSink) -> None:
        self.place = sink.place or ""
        self._sink = sink

    def mark(self) -> object:
        with self._sink.reaching():
            return self._newest()[1]

    def read(self) -> Results:
        with self._sink.reaching():
            table, found = self._newest()
            if found is None:
                raise self._nothing()
            epoch, is_last = int(found[EPOCH]), found.get(LAST) == str(True)
            return Results(self._sink.rows_of(table), epoch, float(found[SECONDS]), is_last, self, found, None)

    def _newest(self) -> tuple[Any, Mapping[str, Any] | None]:
        table = self._sink.table()
        return table, None if table is None else self._sink.newest_epoch(table)


@dataclass(frozen=True)
class Format:
    """A format of results: `dpa.sinks.formats` lists them.

    Attributes:
        name: in a job file.
        sink: makes the sink of a target. Raises TableError if there can be none.
        modes: what `mode` may be.
        noun: what its path names, where nothing is replaced or read back.
        is_directory: whether a path is a directory or a URI, and no name.
        epochs: finds what was published by epoch there; None: it is not read back.
        is_at: whether a path that is given without a format is of this one.
        encoding: that of its files, where a result is files and nothing else. The format then has no options, and what
            was published before the end of a job is read back at its end.
    """

    name: str
    sink: Callable[[Target], Sink]
    modes: tuple[str, ...] = ("error", "overwrite", "append")
    noun: str = ""
    is_directory: bool = True
    epochs: Callable[[Target], Epochs] | None = None
    is_at: Callable[[str], bool] = lambda path: False
    encoding: Encoding | None = None
