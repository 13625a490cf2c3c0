"""Files of Arrow IPC, which Feather of version 2 is too, as splits: record batches, read in place without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dpa.errors import TableError
from dpa.sources.columns import only
from dpa.sources.files import DataFile, Reading
from dpa.sources.paths import Location
from dpa.sources.splits import RestOfFile, opened_again


@dataclass(frozen=True)
class IpcSplit(RestOfFile):
    """Record batches of one file.

    Attributes:
        path: local path or URI; every mapper's machine must be able to open it.
        groups: their numbers, ascending.
        rows, skipped: how many rows of them to read, and how many come before those.
        columns: those to read; None: all.
        size: the file's bytes when the split was made.
    """

    path: str
    groups: tuple[int, ...]
    rows: int
    columns: tuple[str, ...] | None
    size: int
    skipped: int = 0

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        skipped = self.skipped
        with opened_again(self.path, self.size, f"record batches {self.groups[0]} to {self.groups[-1]}") as file:
            schema = pa.ipc.open_file(file).schema
            wanted = only(schema, self.columns).names
            fields = [place for place, name in enumerate(schema.names) if name in wanted] or [0]
            reader = pa.ipc.open_file(file, options=_fields(fields))
            for group in self.groups:
                batch = reader.get_batch(group).select(wanted)
                for start in range(min(skipped, batch.num_rows), batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)
                skipped = max(0, skipped - batch.num_rows)


class IpcFile(DataFile):
    """Its groups are record batches."""

    def split(self, groups: tuple[int, ...], rows: int, reading: Reading) -> IpcSplit:
        return IpcSplit(self.path, groups, rows, reading.columns, self.size)


def ipc_file(location: Location) -> IpcFile:
    """Read the footer of a file, and one column for its rows. Raises TableError if it cannot be read."""
    try:
        with location.filesystem.open_input_file(location.path) as file:
            schema = pa.ipc.open_file(file).schema
            reader = pa.ipc.open_file(file, options=_fields([_smallest(schema)] if len(schema) else []))
            groups = tuple(reader.get_batch(batch).num_rows for batch in range(reader.num_record_batches))
            return IpcFile(location.name, schema, groups, file.size())
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise TableError(f"{location.name}: not a file of Arrow IPC that can be read: {reason}") from None


def _fields(places: list[int]) -> pa.ipc.IpcReadOptions:
    return pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)


def _smallest(schema: pa.Schema) -> int:
    """The place of a column that is fast to read."""
    is_flat = (place for place, kind in enumerate(schema.types) if pa.types.is_primitive(kind))
    return min(is_flat, key=lambda place: schema.types[place].bit_width, default=0)
