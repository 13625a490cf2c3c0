"""Parquet files as splits, read in place without Spark. Making splits only reads the footers.

Partition columns in directory names (`year=2024/...`) are Spark's to read (`dpa.spark._stage`)."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.errors import TableError
from dpa.sources.files import DataFile, FileTable, Reading, file_table
from dpa.sources.paths import Location
from dpa.sources.splits import ParquetSplit, Split


class ParquetFile(DataFile):
    """Its groups are row groups."""

    def split(self, groups: tuple[int, ...], rows: int, reading: Reading) -> ParquetSplit:
        return ParquetSplit(self.path, groups, rows, reading.columns, reading.dictionary, reading.schema, self.size)

    def splits(
        self, split_rows: int, start: int, columns: tuple[str, ...] | None, dictionary: tuple[str, ...]
    ) -> Iterator[tuple[Split, int]]:
        """The splits from number `start` on, each with the next one's number."""
        made = FileTable((self,), columns, dictionary).splits(split_rows)
        yield from islice(((split, number) for number, split in enumerate(made, start=1)), start, None)


def parquet_table(paths: Sequence[str], **options: Any) -> FileTable:
    """Find Parquet files and read their footers. Arguments and errors are those of `file_table`."""
    return file_table(parquet_file, paths, **options)


def parquet_file(location: Location) -> ParquetFile:
    """Read the footer of a file. Raises TableError if it has none that can be read."""
    try:
        with location.filesystem.open_input_file(location.path) as source, pq.ParquetFile(source) as file:
            groups = tuple(file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups))
            return ParquetFile(location.name, file.schema_arrow, groups, source.size())
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise TableError(f"{location.name}: not a Parquet file that can be read: {reason}") from None
