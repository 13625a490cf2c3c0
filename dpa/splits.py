"""Splits: the pieces of an input that mappers read, each a range of Parquet row groups or an Arrow table in memory.

A split can be read again and gives the same batches in the same order; recovery will rely on that. Nothing here knows
Spark: `dpa.tables` makes splits, the runtime and the simulator read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class ParquetSplit:
    """Some row groups of one Parquet file, read in place.

    Attributes:
        path: local path or URI of the file; every mapper's machine must be able to open it.
        row_groups: indices of the row groups, ascending.
        rows: how many rows they hold together.
        columns: the columns to read, or None for all.
        dictionary: string columns to decode as dictionaries: repeated keys are then hashed once a batch.
    """

    path: str
    row_groups: tuple[int, ...]
    rows: int
    columns: tuple[str, ...] | None = None
    dictionary: tuple[str, ...] = ()

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the split's rows in order, at most `batch_rows` of them at a time."""
        import pyarrow.parquet as pq
        from pyarrow import fs

        filesystem, path = (
            fs.FileSystem.from_uri(self.path) if "://" in self.path else (fs.LocalFileSystem(), self.path)
        )
        with filesystem.open_input_file(path) as source:
            file = pq.ParquetFile(source, read_dictionary=list(self.dictionary) or None, pre_buffer=True)
            yield from file.iter_batches(
                batch_size=batch_rows, row_groups=list(self.row_groups), columns=self.columns and list(self.columns)
            )


@dataclass(frozen=True)
class MemorySplit:
    """An Arrow table that travels to the mapper with the split itself."""

    table: pa.Table

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the table's rows in order, at most `batch_rows` of them at a time."""
        yield from self.table.to_batches(max_chunksize=batch_rows)


Split = ParquetSplit | MemorySplit


def memory_splits(table: pa.Table, split_rows: int) -> list[MemorySplit]:
    """Cut a table into splits of `split_rows` rows, in order; the last may be shorter."""
    return [MemorySplit(_own(table.slice(start, split_rows))) for start in range(0, table.num_rows, split_rows)]


def _own(table: pa.Table) -> pa.Table:
    """A copy that holds no more than its own rows: a slice would travel with the whole table it was cut from."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def total_rows(splits: Sequence[Split]) -> int:
    """The number of rows in all splits together."""
    return sum(split.rows for split in splits)
