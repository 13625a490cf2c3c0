"""Tables that lie in files, whose pieces are known before the job runs: splits read the files themselves, in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.errors import TableError
from dpa.sources.columns import only, require_columns
from dpa.sources.feed import Feed, Page, drawn_from, never, table_of
from dpa.sources.paths import Location, data_files, resolved
from dpa.sources.splits import Split, on_demand
from dpa.sources.united import United, UnitedSplit, united

_SAMPLED_GROUPS = 64  # most groups of rows that a sample is drawn from

_ROWS_AT_A_TIME = 1_000_000

_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())

_FILES_AT_A_TIME = 16  # on object storage each costs a round trip or two


@dataclass(frozen=True)
class DataFile:
    """A file's path or URI, columns, rows of each group that is read as a whole, such as a row group of Parquet, and
    size in bytes."""

    path: str
    schema: pa.Schema
    groups: tuple[int, ...]
    size: int

    def split(self, groups: tuple[int, ...], rows: int, reading: Reading) -> Split:
        """The split of the groups of these numbers; `rows`: of all of them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Reading:
    """What splits read of a file.

    Attributes:
        columns: those to read; None: all.
        dictionary: those to decode as dictionaries.
        schema: the columns to read, as the file has them.
    """

    columns: tuple[str, ...] | None
    dictionary: tuple[str, ...]
    schema: pa.Schema


@dataclass(frozen=True)
class FileTable(Feed):
    """Files that hold one table, whose columns go together as in `united`.

    Attributes:
        files: at least one, which may be empty.
        columns: those to read; None: all.
        dictionary: columns to decode as dictionaries, if they are strings or bytes in all files.
        allow_missing: whether a file may lack columns, which are null there.
    """

    files: tuple[DataFile, ...]
    columns: tuple[str, ...] | None = None
    dictionary: tuple[str, ...] = ()
    allow_missing: bool = False

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self.united.schema

    @property
    def paths(self) -> list[str]:
        """The files' paths or URIs, in the order of their rows, for Spark to see the same table."""
        return [file.path for file in self.files]

    @property
    def rows(self) -> int:
        return sum(sum(file.groups) for file in self.files)

    @cached_property
    def united(self) -> United:
        """The columns of the files that have rows; of the first file if none has any."""
        filled = [file for file in self.files if sum(file.groups)] or self.files[:1]
        return united(((file.path, file.schema) for file in filled), allow_missing=self.allow_missing)

    @property
    def widened(self) -> tuple[str, ...]:
        """What is read as another type than some files have."""
        widened = self.united.widened
        return tuple(text for name, text in widened.items() if self.columns is None or name in self.columns)

    def read(self) -> pa.Table:
        """All rows, of all columns that can be read."""
        known = self.united.known
        whole = replace(self, columns=tuple(known.names), dictionary=())
        parts = [known.empty_table(), *(table_of([split]) for split in whole.splits(_ROWS_AT_A_TIME))]
        return pa.concat_tables(parts, promote_options="default")

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page(self.splits(split_rows))

    def splits(self, split_rows: int) -> list[Split]:
        """Pack the groups into splits, in order. A split never spans two files, and a group is never divided: a single
        large one gives a split more than `split_rows` rows.

        Raises TableError if a column is missing, or the files differ in a column that is read."""
        require_columns(self.schema.names, [*(self.columns or ()), *self.dictionary], f"the input {self.files[0].path}")
        read = self.united.read(self.columns)
        encoded = tuple(name for name in self.dictionary if name in read.names and read.field(name).type in _TEXTS)
        encoded = tuple(name for name in encoded if name not in self.united.widened)
        return [
            split
            for file in self.files
            for split in self._splits(file, _packed(file.groups, split_rows), encoded, read)
        ]

    def _splits(
        self, file: DataFile, packs: Sequence[tuple[tuple[int, ...], int]], dictionary: tuple[str, ...], read: pa.Schema
    ) -> Iterator[Split]:
        reading = Reading(self.columns, dictionary, only(file.schema, self.columns))
        is_alike = not self.united.refused and reading.schema == read
        for groups, rows in packs:
            split = file.split(groups, rows, reading)
            yield split if is_alike else UnitedSplit(split, self.united.known)

    def rows_now(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for split in self.splits(_ROWS_AT_A_TIME):
            yield from on_demand(split, batch_rows)

    def known_rows(self) -> int:
        return self.rows

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        """Draw rows from `_SAMPLED_GROUPS` groups at most: if equal rows lie side by side, such a sample of a large
        table says less than one of all its groups."""
        random = np.random.default_rng(seed)
        groups = [(file, index) for file in self.files for index, rows in enumerate(file.groups) if rows]
        if len(groups) > _SAMPLED_GROUPS:
            groups = [groups[place] for place in np.sort(random.permutation(len(groups))[:_SAMPLED_GROUPS])]
        read = self.united.read(self.columns)
        splits = [
            split for file, index in groups for split in self._splits(file, [((index,), file.groups[index])], (), read)
        ]
        parts = [(split.rows, partial(table_of, [split])) for split in splits]
        drawn = drawn_from(parts, max_rows, random, enough)
        return pa.concat_tables(drawn, promote_options="default") if drawn else self.schema.empty_table()


def file_table(
    of: Callable[[Location], DataFile],
    paths: Sequence[str],
    *,
    glob: str | None = None,
    recursive: bool = False,
    exclude: Sequence[str] = (),
    allow_missing: bool = False,
    at_a_time: int = _FILES_AT_A_TIME,
) -> FileTable:
    """Find files and look at each. Raises TableError if there is nothing at a path, or a file cannot be read.

    Args:
        of: looks at one, such as `parquet_file`.
        paths: files, directories and globs; relative ones start here. A file named twice counts once.
        glob, recursive, exclude: as in `dpa.sources.paths.data_files`.
        allow_missing: as in `FileTable`.
        at_a_time: how many files to look at at once.
    """
    if not paths:
        raise TableError("no path of files was given")
    found = [file for path in paths for file in data_files(resolved(path, "."), glob, recursive, exclude)]
    locations = list({file.name: file for file in found}.values())
    with ThreadPoolExecutor(at_a_time) as pool:
        return FileTable(tuple(pool.map(of, locations)), allow_missing=allow_missing)


def _packed(groups: Sequence[int], split_rows: int) -> list[tuple[tuple[int, ...], int]]:
    """Pack consecutive groups within `split_rows`: their indices and rows."""
    packs: list[tuple[tuple[int, ...], int]] = []
    for index, rows in enumerate(groups):
        if rows == 0:
            continue
        if packs and packs[-1][1] + rows <= split_rows:
            packs[-1] = ((*packs[-1][0], index), packs[-1][1] + rows)
        else:
            packs.append(((index,), rows))
    return packs
