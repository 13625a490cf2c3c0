"""Parquet files as splits, read in place without Spark. Making splits only reads the footers.

Partition columns in directory names (`year=2024/...`) are Spark's to read (`dpa.spark._stage`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.errors import TableError
from dpa.sources.columns import only
from dpa.sources.files import FileTable
from dpa.sources.paths import Location, data_files, resolved
from dpa.sources.splits import ParquetSplit, Split

_FOOTERS_AT_A_TIME = 16
"""Footers to read at once; on object storage each costs a round trip or two."""


@dataclass(frozen=True)
class ParquetFile:
    """A file's path or URI, columns, rows of each row group, and size in bytes."""

    path: str
    schema: pa.Schema
    groups: tuple[int, ...]
    size: int

    def split(
        self, groups: tuple[int, ...], rows: int, columns: tuple[str, ...] | None, dictionary: tuple[str, ...]
    ) -> ParquetSplit:
        return ParquetSplit(self.path, groups, rows, columns, dictionary, only(self.schema, columns), self.size)

    def splits(
        self, split_rows: int, start: int, columns: tuple[str, ...] | None, dictionary: tuple[str, ...]
    ) -> Iterator[tuple[Split, int]]:
        """The splits from number `start` on, each with the next one's number."""
        made = FileTable((self,), columns, dictionary).splits(split_rows)
        yield from islice(((split, number) for number, split in enumerate(made, start=1)), start, None)


def parquet_table(
    paths: Sequence[str],
    *,
    glob: str | None = None,
    recursive: bool = False,
    exclude: Sequence[str] = (),
    allow_missing: bool = False,
) -> FileTable:
    """Find Parquet files and read their footers.

    Args:
        paths: files, directories and globs; relative ones start here. A file named twice counts once.
        glob, recursive, exclude: as in `dpa.sources.paths.data_files`.
        allow_missing: as in `FileTable`.

    Raises:
        TableError: there is nothing at a path, or a file is not Parquet.
    """
    if not paths:
        raise TableError("no path of Parquet files was given")
    found = [file for path in paths for file in data_files(resolved(path, "."), glob, recursive, exclude)]
    locations = list({file.name: file for file in found}.values())
    with ThreadPoolExecutor(_FOOTERS_AT_A_TIME) as pool:
        return FileTable(tuple(pool.map(parquet_file, locations)), allow_missing=allow_missing)


def parquet_file(location: Location) -> ParquetFile:
    """Read the footer of a file. Raises TableError if it has none that can be read."""
    try:
        with location.filesystem.open_input_file(location.path) as source, pq.ParquetFile(source) as file:
            groups = tuple(file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups))
            return ParquetFile(location.name, file.schema_arrow, groups, source.size())
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise TableError(f"{location.name}: not a Parquet file that can be read: {reason}") from None
