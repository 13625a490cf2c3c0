"""A directory, or a prefix of object storage, in which files appear while a job runs: an open feed, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from dpa.errors import TableError
from dpa.sources.columns import only, require_columns
from dpa.sources.feed import PAGE_SPLITS, Feed, Page
from dpa.sources.lines import LinesFile, lines_file
from dpa.sources.parquet import ParquetFile, parquet_file
from dpa.sources.paths import Location, is_below, is_hidden, locate, prefix_of
from dpa.sources.records import LineFormat
from dpa.sources.splits import Split
from dpa.sources.united import UnitedSplit, widest

_REMEMBERED = 4_096  # files that a position names; of older ones it has the newest time

_OPENED_AT_A_TIME = 16
_PATIENCE_SECONDS = 60.0  # how long a file may not be Parquet yet, as it is being written
_OBJECTS = ("s3", "gcs", "abfs")  # file systems on which a file appears when it is complete


@dataclass(frozen=True)
class Seen:
    """Which files have been given: a position.

    Attributes:
        until: files up to this time were, in nanoseconds since 1970; an older one that appears later is ignored.
        times: the times of newer ones that were, by path below the watched place.
        part: the file that was given in part, its time, and where its next split begins.
    """

    until: int = -(2**63)
    times: dict[str, int] = field(default_factory=dict)
    part: tuple[str, int, int] | None = None

    def and_(self, files: Sequence[_File]) -> Seen:
        """These files too, as a whole."""
        times = self.times | {file.path: file.time for file in files}
        until = max([self.until, *sorted(times.values())[:-_REMEMBERED][-1:]])
        return Seen(until, {path: time for path, time in times.items() if time > until})


class _File(NamedTuple):
    """When a file was written, and its path below the watched place."""

    time: int
    path: str


def line_format(name: str, options: Mapping[str, str], *, tolerates: bool = False) -> LineFormat | None:
    """The line format of files, by options named as Spark's; None: they are Parquet. `tolerates` as in the format."""
    header, separator = options.get("header", "false").lower() == "true", options.get("sep", ",")
    return None if name == "parquet" else LineFormat(name, header, separator, tolerates)


@dataclass
class WatchedFiles(Feed):
    """The files in a directory, by the time at which they were written, and those that appear there.

    Attributes:
        place: the directory or prefix: an absolute path or a URI.
        format: of files of lines; None: they are Parquet files.
        declared: the columns; None: those of the first file, which must be there before the job begins.
        columns: those to read; None: all.
        dictionary: columns of Parquet files to decode as dictionaries.
        glob: only files whose name matches. Names that start with `_` or `.` never count.
        recursive: whether to look into sub-directories, except for those whose name, or a glob of it, is in `exclude`.
        poll_seconds: how often to look.
        settle_seconds: a file of lines is complete when it has not been written to for that time. Objects of object
            storage always are, and a Parquet file is once it has its footer.
        clock: gives seconds since 1970.
    """

    place: str
    format: LineFormat | None = None
    declared: pa.Schema | None = None
    columns: tuple[str, ...] | None = None
    dictionary: tuple[str, ...] = ()
    glob: str | None = None
    recursive: bool = False
    exclude: Sequence[str] = ()
    poll_seconds: float = 1.0
    settle_seconds: float = 1.0
    clock: Callable[[], float] = time.time
    _given_files: int = field(default=0, init=False, compare=False)
    _given_rows: int = field(default=0, init=False, compare=False)
    _ahead: tuple[Seen, list[_File]] | None = field(default=None, init=False, compare=False)
    """The found files that follow the page given last."""

    is_open = True

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns: those declared, or those of the first readable file."""
        schema = self._known_schema
        if schema is None:
            mend = "declare them in `columns`, or have a file there before the job begins"
            raise TableError(f"{self._shown}: holds no file that is complete, so its columns are not known: {mend}")
        return schema

    @property
    def _known_schema(self) -> pa.Schema | None:
        if "schema" in self.__dict__ or self.declared is not None:
            return self.__dict__.get("schema", self.declared)
        opened = (self._open(file, None) for file in self._found())
        return next((file.schema for file in opened if file is not None and file.schema.names), None)

    def poll(self, split_rows: int, position: Any = None) -> Page:
        seen = Seen() if position is None else position
        files = self._ahead[1] if self._ahead is not None and self._ahead[0] == seen else self._new(seen)
        splits: list[Split] = []
        given: list[_File] = []
        self._ahead = None
        if not files or self._known_schema is None:
            return Page((), seen)
        looked_at = files[:PAGE_SPLITS]
        look = partial(self._open, schema=self.schema)
        with ThreadPoolExecutor(_OPENED_AT_A_TIME) as pool:
            for file, opened in zip(looked_at, pool.map(look, looked_at), strict=True):
                start = seen.part[2] if seen.part is not None and seen.part[0] == file.path else 0
                if opened is None and start:
                    return Page((), seen)  # it has just been removed, which the next poll finds
                if opened is None:
                    continue
                self._require_columns(file, opened)
                is_alike = only(opened.schema, self.columns) == only(self.schema, self.columns)
                for split, following in opened.splits(split_rows, start, self.columns, self.dictionary):
                    splits.append(split if is_alike else UnitedSplit(split, self.schema))
                    self._given_rows += split.rows
                    if len(splits) == PAGE_SPLITS:
                        part = file.path, file.time, following
                        return self._page(splits, replace(seen.and_(given), part=part), files, given)
                given.append(file)
                self._given_files += 1
        return self._page(splits, seen.and_(given), files[len(looked_at) :])

    def lag(self, position: Any) -> Mapping[str, int] | None:
        """Files that were not looked at count as many rows as those before, on average; unknown before the first."""
        files = self._new(Seen() if position is None else position)
        if files and not self._given_rows:
            return None
        return {"": len(files) * self._given_rows // max(self._given_files, 1)}

    def _page(self, splits: list[Split], seen: Seen, files: list[_File], given: Sequence[_File] = ()) -> Page:
        left = files[len(given) :] if list(given) == files[: len(given)] else []
        self._ahead = (seen, left) if left else None
        return Page(splits, seen)

    def _new(self, seen: Seen) -> list[_File]:
        """The files that were not given as a whole, in order, first the one given in part."""
        new = []
        for file in self._found():
            if file.time > seen.until and file.path not in seen.times:
                new.append(file)
            elif file.time > seen.until and seen.times[file.path] != file.time:
                mend = "write each file once; renamed, it is read as a new one"
                raise TableError(f"{self._shown}: {file.path} was changed after it had been read: {mend}")
        if seen.part is not None:
            part = _File(seen.part[1], seen.part[0])
            if part not in new:
                raise TableError(f"{self._shown}: {part.path} was removed, or changed, before all of it had been read")
            new.sort(key=lambda file: file != part)
        return new

    @cached_property
    def _root(self) -> Location:
        """The watched place."""
        root = locate(self.place.rstrip("/") or "/")
        if root.kind == fs.FileType.File:
            raise TableError(f"{self._shown}: is a file; what is watched is a directory")
        if not root.exists and root.filesystem.type_name not in _OBJECTS:
            raise TableError(f"{self._shown}: no such directory: make it, empty as it may be")
        return root

    @property
    def _shown(self) -> str:
        return prefix_of(self.place)

    def _found(self) -> list[_File]:
        """The files there, in the order in which they were written."""
        root = self._root
        selector = fs.FileSelector(root.path, allow_not_found=True, recursive=self.recursive)
        try:
            infos = root.filesystem.get_file_info(selector)
        except OSError as error:
            raise TableError(f"{self._shown}: cannot be listed: {error}") from None
        files = (
            _File(-1 if info.mtime_ns is None else info.mtime_ns, info.path[len(root.path) :].lstrip("/"))
            for info in infos
            if info.is_file
        )
        shown = (file for file in files if not (is_hidden(file.path) or is_below(file.path, self.exclude)))
        glob = "*" if self.glob is None else self.glob
        return sorted(file for file in shown if fnmatchcase(file.path.rpartition("/")[2], glob))

    def _open(self, file: _File, schema: pa.Schema | None) -> LinesFile | ParquetFile | None:
        """Look at a file; None if it is not complete, or gone."""
        location = self._root.below(file.path)
        age = self.clock() - file.time / 1e9
        try:
            if self.format is not None:
                if age < self.settle_seconds and location.filesystem.type_name not in _OBJECTS:
                    return None
                return lines_file(location, self.format, schema)
            return parquet_file(location)
        except FileNotFoundError:
            return None
        except TableError:
            # A Parquet file has its footer last: without one it may still be being written.
            if self.format is not None or (age > _PATIENCE_SECONDS and location.kind == fs.FileType.File):
                raise
            return None

    def _require_columns(self, file: _File, opened: LinesFile | ParquetFile) -> None:
        """Check that a file has the feed's columns that are read."""
        require_columns(self.schema.names, [*(self.columns or ()), *self.dictionary], f"the input {self._shown}")
        found = dict(zip(opened.schema.names, opened.schema.types, strict=True))
        for column in only(self.schema, self.columns):
            kind = found.get(column.name)
            if kind is None or widest([column.type, kind]) != column.type:
                here = f"{'missing' if kind is None else kind} in {file.path}, and {column.type} in the input"
                raise TableError(f"{self._shown}: column {column.name!r} is {here}")
