"""The log of a job by epoch, as Parquet: a row for each epoch, in files that are merged like those of results.

Rows are only added. When a job starts again, maybe from a checkpoint, it adds a row that says so. The epochs after that
are made again, and readers see the new ones."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpa._util.owned import UntrustedError, require_own
from dpa.errors import PlaceTakenError, TableError
from dpa.sinks.objects import ResultFiles
from dpa.sinks.reading import FileEpochs, result_at
from dpa.sinks.sink import EpochLogOptions, SinkContext, Target
from dpa.sources.manifest import MANIFEST
from dpa.sources.paths import without_file_scheme

_TIME = pa.timestamp("us", tz="UTC")

_STAGE = pa.struct(
    [
        ("stage", pa.string()),
        ("watermark", _TIME),
        ("closed", _TIME),
        ("processed", pa.int64()),
        ("published", pa.int64()),
    ]
)

SCHEMA = pa.schema(
    [
        ("epoch", pa.int64()),
        ("ended", _TIME),
        ("at", pa.float64()),
        ("seconds", pa.float64()),
        ("waited", pa.float64()),
        ("read", pa.int64()),
        ("unread", pa.int64()),
        ("latest", _TIME),
        ("late", pa.int64()),
        ("left_out", pa.int64()),
        ("checkpoint", pa.int64()),
        ("is_last", pa.bool_()),
        ("stages", pa.list_(_STAGE)),
        ("splits", pa.binary()),
    ]
)
"""The columns. A row whose `ended` is null says that a generation begins after the epoch."""

_LOCK_SECONDS = 5.0  # how long the process of a dead generation may take to end


class EpochLog:
    """The log of one generation. Whatever fails is a `TableError`."""

    def __init__(self, options: EpochLogOptions, behind: int) -> None:
        """Begin after an epoch. An older generation cannot add to the log any more."""
        self._sink = ResultFiles(Target(options.place, "overwrite", mark=lambda: options.config))
        self._sink.know(SinkContext(options.job, publishes="final", with_checkpoints=True))
        if "://" not in options.place:
            try:
                path = Path(options.place)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.mkdir(mode=0o700, exist_ok=True)  # splits are unpickled from it
            except OSError as error:
                raise TableError(f"{options.place}: {error.strerror}") from None
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                self._sink.begin()
                break
            except PlaceTakenError:  # the dead generation's process may still be on its way out
                if time.monotonic() > until:
                    raise TableError(f"another process writes to {options.place}") from None
                time.sleep(0.1)
        newest = self._sink.newest()
        self._number = 0 if newest is None else newest.epoch
        self.add([{"epoch": behind}])

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        # After a failure the number stays: if the rows are there all the same, they are not added again.
        number = self._number + 1
        table = pa.Table.from_pylist([*rows], SCHEMA)
        self._sink.commit([self._sink.stage(table, 0, number)], number, 0.0)
        self._number = number

    def close(self) -> None:
        self._sink.abort()


def epochs(path: str | Path, *, splits: bool = False) -> pa.Table:
    """Read the log of a job by epoch, while it runs or afterwards.

    Args:
        path: of the log, or of `epoch_log` in the job file: then of the run in it that has written last.
        splits: whether to read which parts of the input each epoch has read, pickled, which the log of another user has
            not for you.

    Returns:
        A row for each epoch, in order. Of epochs that were made again, those that count.

    Raises:
        TableError: there is no log, or not one to be trusted.
    """
    place = log_at(path)
    if splits and "://" not in place:
        try:
            require_own(place)
        except (UntrustedError, OSError) as error:
            raise TableError(f"{place}: {error}; its splits are unpickled if only their owner can write them") from None
    found = FileEpochs(place).read()
    if found.table.column_names and {*SCHEMA.names} != {*found.table.column_names}:
        raise TableError(f"{place} is no log of epochs: name the directory of `epoch_log`")
    table = found.table.select(SCHEMA.names if splits else SCHEMA.names[:-1])
    numbers, begins = table["epoch"].to_pylist(), pc.is_null(table["ended"]).to_pylist()
    kept: list[int] = []
    for place_of, (number, is_begin) in enumerate(zip(numbers, begins, strict=True)):
        if is_begin:
            while kept and numbers[kept[-1]] > number:
                kept.pop()
        else:
            kept.append(place_of)
    return table.take(pa.array(kept, pa.int64())).combine_chunks()


def config_of(path: str | Path) -> str:
    """The configuration of the job whose log this is, as text."""
    return result_at(log_at(path))[1].config


def log_at(path: str | Path) -> str:
    """The log at a path, or the newest one in it."""
    place = without_file_scheme(str(path))
    if "://" in place or (Path(place) / MANIFEST).exists():
        return place
    runs = [*Path(place).glob(f"*/{MANIFEST}")] if Path(place).is_dir() else []
    if not runs:
        raise TableError(
            f"{place} has no log of epochs: name the directory of `epoch_log`, or the directory of a run in it"
        )
    return str(max(runs, key=lambda manifest: manifest.stat().st_mtime).parent)
