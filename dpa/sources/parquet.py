"""Parquet files as splits, read in place without Spark. Making splits only reads the footers.

Partition columns in directory names (`year=2024/...`) are Spark's to read (`dpa.spark._stage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpa.errors import TableError
from dpa.sources.columns import first_difference, only, require_columns
from dpa.sources.feed import Feed, Page, drawn_from, never, table_of
from dpa.sources.paths import Location, data_files, resolved
from dpa.sources.splits import ParquetSplit

_FOOTERS_AT_A_TIME = 16
"""Footers to read at once; on object storage each costs a round trip or two."""

_SAMPLED_GROUPS = 64
"""Most row groups that a sample is drawn from."""


_ROWS_AT_A_TIME = 1_000_000


@dataclass(frozen=True)
class ParquetFile:
    """A file's path or URI, columns, rows of each row group, and size in bytes."""

    path: str
    schema: pa.Schema
    row_groups: tuple[int, ...]
    size: int

    def splits(
        self, split_rows: int, start: int, columns: tuple[str, ...] | None, dictionary: tuple[str, ...]
    ) -> Iterator[tuple[ParquetSplit, int]]:
        """The splits from number `start` on, each with the next one's number."""
        made = ParquetTable((self,), columns, dictionary).splits(split_rows)
        yield from islice(((split, number) for number, split in enumerate(made, start=1)), start, None)


@dataclass(frozen=True)
class ParquetTable(Feed):
    """Parquet files that hold one table; splits read the files themselves.

    Attributes:
        files: at least one, which may be empty.
        columns: those to read; None: all.
        dictionary: columns to decode as dictionaries, if they are strings or bytes.
    """

    files: tuple[ParquetFile, ...]
    columns: tuple[str, ...] | None = None
    dictionary: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """All columns, as the first file has them."""
        return self.files[0].schema

    @property
    def paths(self) -> list[str]:
        """The files' paths or URIs, in the order of their rows, for Spark to see the same table."""
        return [file.path for file in self.files]

    @property
    def rows(self) -> int:
        return sum(sum(file.row_groups) for file in self.files)

    def read(self) -> pa.Table:
        return table_of(self.splits(_ROWS_AT_A_TIME), self.schema)

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page(self.splits(split_rows))

    def splits(self, split_rows: int) -> list[ParquetSplit]:
        """Pack the row groups into splits, in order. A split never spans two files, and a row group is never divided: a
        single large one gives a split more than `split_rows` rows.

        Raises TableError if a column is missing, or the files differ in a column that is read.
        """
        require_columns(self.schema.names, [*(self.columns or ()), *self.dictionary], f"the input {self.files[0].path}")
        read = self._agreed()
        encoded = tuple(name for name in self.dictionary if name in read.names and _is_bytes(read.field(name).type))
        return [
            ParquetSplit(file.path, groups, rows, self.columns, encoded, read, file.size)
            for file in self.files
            for groups, rows in _packed(file.row_groups, split_rows)
        ]

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        """Draw rows from `_SAMPLED_GROUPS` row groups at most: if equal rows lie side by side, such a sample of a large
        table says less than one of all its row groups."""
        read = self._agreed()
        random = np.random.default_rng(seed)
        groups = [(file, index) for file in self.files for index, rows in enumerate(file.row_groups) if rows]
        if len(groups) > _SAMPLED_GROUPS:
            groups = [groups[place] for place in np.sort(random.permutation(len(groups))[:_SAMPLED_GROUPS])]
        splits = [
            ParquetSplit(file.path, (index,), file.row_groups[index], self.columns, (), read, file.size)
            for file, index in groups
        ]
        parts = [(split.rows, partial(table_of, [split])) for split in splits]
        drawn = drawn_from(parts, max_rows, random, enough)
        return pa.concat_tables(drawn) if drawn else self.schema.empty_table()

    def _agreed(self) -> pa.Schema:
        """The columns to read, in the files' order."""
        first, *others = self.files
        expected = only(first.schema, self.columns)
        for file in others:
            found = only(file.schema, self.columns)
            difference = first_difference(expected, found)
            if difference is not None:
                name, there, here = difference
                what = f"column {name!r} is {there} in {first.path} and {here} in {file.path}"
            elif found.names != expected.names:
                what = f"the columns come in different orders in {first.path} and {file.path}"
            else:
                continue
            raise TableError(f"{what}: all files of one input must have the same columns")
        return expected


def parquet_table(
    paths: Sequence[str],
    *,
    glob: str | None = None,
    recursive: bool = False,
    exclude: Sequence[str] = (),
) -> ParquetTable:
    """Find Parquet files and read their footers.

    Args:
        paths: files, directories and globs; relative ones start here. A file named twice counts once.
        glob, recursive, exclude: as in `dpa.sources.paths.data_files`.

    Raises:
        TableError: there is nothing at a path, or a file is not Parquet.
    """
    if not paths:
        raise TableError("no path of Parquet files was given")
    found = [file for path in paths for file in data_files(resolved(path, "."), glob, recursive, exclude)]
    locations = list({file.name: file for file in found}.values())
    with ThreadPoolExecutor(_FOOTERS_AT_A_TIME) as pool:
        return ParquetTable(tuple(pool.map(parquet_file, locations)))


def parquet_file(location: Location) -> ParquetFile:
    """Read the footer of a file. Raises TableError if it has none that can be read."""
    try:
        with location.filesystem.open_input_file(location.path) as source, pq.ParquetFile(source) as file:
            groups = tuple(file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups))
            return ParquetFile(location.name, file.schema_arrow, groups, source.size())
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise TableError(f"{location.name}: not a Parquet file that can be read: {reason}") from None


def _packed(row_groups: Sequence[int], split_rows: int) -> list[tuple[tuple[int, ...], int]]:
    """Pack consecutive row groups within `split_rows`: their indices and rows."""
    packs: list[tuple[tuple[int, ...], int]] = []
    for index, rows in enumerate(row_groups):
        if rows == 0:
            continue
        if packs and packs[-1][1] + rows <= split_rows:
            packs[-1] = ((*packs[-1][0], index), packs[-1][1] + rows)
        else:
            packs.append(((index,), rows))
    return packs


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
