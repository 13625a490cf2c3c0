"""How the rows of a result lie in files: in which format, in which directories, in how many."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.sinks._hive import check_partitions, partitions
from dpa.sinks._part_files import table_in
from dpa.sinks.encodings import PARQUET, Encoding
from dpa.sinks.sink import together
from dpa.storage import Files

_BATCH_ROWS = 65_536
"""Rows that are in memory together while one file is made of many."""


Parts: TypeAlias = tuple[tuple[str, ...], bytes]
"""What a task has staged, where the names of its files are not all that a reader needs: these names, and the columns of
its rows, serialized. Checkpoints hold no classes of sinks."""


@dataclass(frozen=True)
class FileLayout:
    """How a result lies in files.

    Attributes:
        encoding: the format of the files.
        compression: one of its `compressions`; empty: its default.
        partition_by: the columns whose values are names of directories.
        single_file: whether one file has all rows. Then tasks stage their rows as Parquet.
    """

    encoding: Encoding = PARQUET
    compression: str = ""
    partition_by: tuple[str, ...] = ()
    single_file: bool = False

    @property
    def ending(self) -> str:
        """Of the names of files."""
        return self.encoding.ending_of(self.compression)

    @property
    def knows_columns(self) -> bool:
        """Whether files say all the columns of the result."""
        return not (self.encoding.is_text or self.partition_by)

    def check(self, columns: pa.Schema) -> None:
        """TableError if rows with these columns cannot lie so; null stands for an unknown type."""
        check_partitions(columns, self.partition_by)
        self.encoding.check(pa.schema([field for field in columns if field.name not in self.partition_by]))

    def stage(self, files: Files, rows: pa.Table, name: str) -> str | Parts:
        """Write a task's rows, of each directory to one file with a name to which the ending is added. One file is open
        at a time."""
        self.check(rows.schema)
        if self.single_file:
            return PLAIN.stage(files, rows, name)
        written = []
        for folder, some in partitions(rows, self.partition_by):
            written.append(f"{folder}/{name}{self.ending}".lstrip("/"))
            with files.within(folder), files.writing(written[-1]) as stream, self._writing(stream, some.schema) as add:
                add(some)
        return written[0] if self.knows_columns else ((*written,), rows.schema.serialize().to_pybytes())

    def join(self, shares: Files, staged: Sequence[str], files: Files, name: str) -> list[str | Parts]:
        """Write the rows that tasks have staged to one file; returns what a task would that had staged it."""
        if not staged:
            return []
        columns = unified(pq.read_schema(file) for share in staged for file in _opened(shares, share))
        whole = f"{name}{self.ending}"
        with files.writing(whole) as stream, self._writing(stream, columns) as add:
            for share in staged:
                for file in _opened(shares, share):
                    for batch in pq.ParquetFile(file).iter_batches(_BATCH_ROWS):
                        add(together([columns.empty_table(), pa.Table.from_batches([batch])]))
        return [whole if self.knows_columns else ((whole,), columns.serialize().to_pybytes())]

    def _writing(self, stream: Any, columns: pa.Schema) -> Any:
        return self.encoding.writing(stream, columns, self.compression or self.encoding.compressions[0])


PLAIN = FileLayout()
"""Parquet, a file a task."""


def _opened(files: Files, name: str) -> Iterator[Any]:
    with files.reading(name) as file:
        if file is None:
            raise FileNotFoundError(files.at(name))
        yield file


def names_in(staged: Iterable[str | Parts]) -> list[str]:
    """The names of all files."""
    return [name for each in staged for name in ([each] if isinstance(each, str) else each[0])]


def columns_in(staged: Iterable[str | Parts], before: str | None = None) -> str | None:
    """The columns of a result as text, where its files do not say all of them, and of what was there `before`."""
    packed = {each[1] for each in staged if not isinstance(each, str)}
    if not packed:
        return before
    known = [] if before is None else [_unpacked(before)]
    found = unified([*known, *(pa.ipc.read_schema(pa.py_buffer(each)) for each in sorted(packed))])
    return base64.b64encode(found.serialize().to_pybytes()).decode()


def rows_in(files: Files, names: Iterable[str], columns: str | None) -> pa.Table:
    """The rows of some files, each of which must be there, with the columns that `columns_in` gave."""
    known = None if columns is None else _unpacked(columns)
    return together(table_in(files, name, known) for name in names)


def unified(columns: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of several tables. TableError if the types of one have no common type."""
    return together(each.empty_table() for each in columns).schema


def _unpacked(columns: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(columns)))
