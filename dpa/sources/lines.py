"""Files of lines - CSV, JSON, text - as splits: ranges of bytes that begin and end with a line, read without Spark.

A line is a record, as for Spark unless it is asked for `multiLine`; blank lines of CSV and JSON are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa.errors import TableError
from dpa.sources.columns import require_columns
from dpa.sources.paths import Location, locate, prefix_of
from dpa.sources.splits import Split

TEXT = pa.schema([("value", pa.string())])
"""The columns of a text file."""

_SPLIT_BYTES = 8 * 2**20
"""Most bytes of a split, unless a single line has more: where splits begin is found when the feed is polled."""

_PIECE_BYTES = 2**20
"""Bytes among which ends of lines are looked for at a time: they fit the cache of a processor."""

_FIRST_BYTES = 2**20
"""Of the bytes at the beginning of a file, how many may hold its header, or show its columns."""

_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = b"\n\r"


@dataclass(frozen=True)
class LineFormat:
    """How records are encoded as lines.

    Attributes:
        name: `csv`, `json` or `text`.
        header: whether the first line of each CSV file names its columns.
        separator: of the values of CSV.
    """

    name: str
    header: bool = False
    separator: str = ","

    def parsed(self, data: pa.Buffer, names: tuple[str, ...], schema: pa.Schema) -> pa.Table:
        """The records of some lines, with the columns of `schema`; `names`: of all columns of CSV.

        Raises:
            pa.ArrowInvalid: a line is not as it should be.
        """
        if self.name == "text":
            return pa.table([_lines_of(data)], TEXT)
        if self.name == "json":
            from pyarrow import json

            block = json.ReadOptions(use_threads=False, block_size=max(data.size, 1))
            options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
            return json.read_json(pa.BufferReader(data), block, options)
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types=schema, include_columns=schema.names, null_values=[""], strings_can_be_null=True
        )
        convert.quoted_strings_can_be_null = False
        read = csv.ReadOptions(column_names=names, use_threads=False, block_size=data.size + 1)
        return csv.read_csv(pa.BufferReader(data), read, csv.ParseOptions(delimiter=self.separator), convert)

    def columns_of(self, first: bytes) -> list[str]:
        """The names of the columns of CSV, by its first line: those that stand there, or Spark's `_c0`, `_c1`, ..."""
        from pyarrow import csv

        read = csv.ReadOptions(autogenerate_column_names=not self.header)
        found = csv.read_csv(pa.BufferReader(first), read, csv.ParseOptions(delimiter=self.separator)).column_names
        return list(found) if self.header else [f"_c{place}" for place in range(len(found))]


@dataclass(frozen=True)
class LinesSplit:
    """Some lines of one file.

    Attributes:
        path: local path or URI of the file.
        format: how they are encoded.
        names: all columns of the file, in its order, where it is CSV.
        schema: all that may be read.
        columns: those that are; all if None.
        start, stop: where the lines begin in the file, and where they end, in bytes.
        size: the file's, in bytes, when the split was made.
        rows: how many records are read.
        skipped: how many come before those.
    """

    path: str
    format: LineFormat
    names: tuple[str, ...]
    schema: pa.Schema
    columns: tuple[str, ...] | None
    start: int
    stop: int
    size: int
    rows: int
    skipped: int = 0

    def after(self, rows: int) -> LinesSplit:
        return replace(self, rows=self.rows - rows, skipped=self.skipped + rows)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        location, shown = locate(self.path), prefix_of(self.path)
        read = [field for field in self.schema if self.columns is None or field.name in self.columns]
        where = f"bytes {self.start:,} to {self.stop:,}"
        try:
            with location.filesystem.open_input_file(location.path) as file:
                if file.size() != self.size:
                    changed = f"it has {file.size():,} bytes now, and had {self.size:,}"
                    mend = "what is read in place must stay as it is"
                    raise TableError(f"{shown}: was changed while the job was running: {changed}; {mend}")
                lines = _read(file, self.start, self.stop - self.start, self.size)
            table = self.format.parsed(lines, self.names, pa.schema(read))
        except FileNotFoundError:
            why = "it was removed while the job was running, or the mapper's machine cannot see it"
            raise TableError(f"{shown}: no such file: {why}") from None
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"{shown}: {where} cannot be read as {self.format.name}: {error}") from None
        found = table.num_rows
        if found != self.skipped + self.rows:
            wrong = f"{where} have {self.skipped + self.rows:,} lines that are not empty, and {found:,} records"
            raise TableError(f"{shown}: {wrong}: each line must be a record")
        yield from table.slice(self.skipped).to_batches(max_chunksize=batch_rows)


@dataclass(frozen=True)
class LinesFile:
    """One file, of which splits are made. `begin` is the byte behind its header; the rest is as in `LinesSplit`."""

    location: Location
    format: LineFormat
    names: tuple[str, ...]
    schema: pa.Schema
    begin: int
    size: int

    def splits(
        self,
        split_rows: int,
        start: int,
        columns: tuple[str, ...] | None,
        dictionary: tuple[str, ...] = (),
    ) -> Iterator[tuple[Split, int]]:
        """The splits from the byte `start` on, each with the byte where it ends."""
        begin = max(start, self.begin)
        for end, rows in self._cuts_from(begin, split_rows):
            if rows:
                yield self.split(begin, end, rows, columns), end
            begin = end

    def _cuts_from(self, start: int, split_rows: int) -> Iterator[tuple[int, int]]:
        """Where splits end, and how many records each has."""
        if self.format.name == "text":
            for at in range(start, self.size, _SPLIT_BYTES):
                yield from self.cuts_within(at, min(at + _SPLIT_BYTES, self.size), split_rows)
            return
        try:
            with self.location.filesystem.open_input_file(self.location.path) as file:
                at = start
                while at < self.size:
                    ends, records = _lines_from(file, at, self.size)
                    yield from _cuts(ends, records, split_rows)
                    at = int(ends[-1])
        except OSError as error:
            raise TableError(f"{prefix_of(self.location.name)}: cannot be read: {error}") from None

    def split(self, start: int, stop: int, rows: int, columns: tuple[str, ...] | None) -> LinesSplit:
        """The split of these bytes, which are `rows` records."""
        path = self.location.name
        return LinesSplit(path, self.format, self.names, self.schema, columns, start, stop, self.size, rows)

    def cuts_within(self, start: int, stop: int, split_rows: int) -> list[tuple[int, int]]:
        """Where splits of a text end between two bytes, the last one with the last line that ends there; and how many
        lines of those that end there each has.

        Raises:
            TableError: it cannot be read.
        """
        cuts: list[tuple[int, int]] = []
        last = lines = 0  # where the last line ends, and how many there are behind the last cut
        step = _PIECE_BYTES - 1
        try:
            with self.location.filesystem.open_input_file(self.location.path) as file:
                for at in range(start, stop, step):
                    end = min(at + step, stop)
                    # A byte more: whether a return ends a line depends on what follows.
                    data = _read(file, at, min(end + 1, self.size) - at, self.size)
                    ends = at + _ends_of_text(data, is_whole=at + data.size == self.size)
                    ends = ends[: np.searchsorted(ends, end, side="right")]
                    cuts += [(int(cut), split_rows) for cut in ends[split_rows - lines - 1 :: split_rows]]
                    last, lines = int(ends[-1]) if len(ends) else last, (lines + len(ends)) % split_rows
        except OSError as error:
            raise TableError(f"{prefix_of(self.location.name)}: cannot be read: {error}") from None
        return [*cuts, (last, lines)] if lines else cuts

    def lines_within(self, start: int, most: int) -> pa.Table:
        """The records of a text that begin and end within `most` bytes from `start` on.

        Raises:
            TableError: it cannot be read.
        """
        try:
            with self.location.filesystem.open_input_file(self.location.path) as file:
                data = _read(file, start, min(most, self.size - start), self.size)
        except OSError as error:
            raise TableError(f"{prefix_of(self.location.name)}: cannot be read: {error}") from None
        ends = _ends_of_text(data, is_whole=start + data.size == self.size)
        first = 0 if start <= self.begin else int(ends[0]) if len(ends) else data.size
        return self.format.parsed(data[first : int(ends[-1]) if len(ends) else first], self.names, self.schema)


def lines_file(location: Location, kind: LineFormat, declared: pa.Schema | None) -> LinesFile:
    """Look at the beginning of a file; `declared`: its columns, if they are. Without, those of CSV are strings, and
    those of JSON are what its first records show.

    Raises:
        TableError: it cannot be read, or lacks a column.
    """
    try:
        with location.filesystem.open_input_file(location.path) as file:
            size = file.size()
            first = file.read_at(min(size, _FIRST_BYTES), 0)
        begin = len(_BOM) if first.startswith(_BOM) else 0
        names: list[str] = []
        content = first[begin:].lstrip(b"\r\n")
        if kind.name == "csv" and content:
            line = content[: content.find(b"\n") + 1 or None]
            names = kind.columns_of(line)
            begin = len(first) - len(content) + len(line) if kind.header else begin
            if declared is not None and kind.header:
                require_columns(names, declared.names, f"the header of {prefix_of(location.name)}")
            elif declared is not None:
                names = declared.names
        schema = declared or _shown(kind, names, first[begin:])
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise TableError(f"{prefix_of(location.name)}: cannot be read as {kind.name}: {error}") from None
    return LinesFile(location, kind, tuple(names), schema, begin, size)


def _lines_of(data: pa.Buffer) -> pa.StringArray:
    """Lines without their ends; what is not UTF-8 in them is replaced by U+FFFD."""
    whole = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, data.size])), data)
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        data = pa.py_buffer(data.to_pybytes().decode(errors="replace").encode())
    ends = _ends_of_text(data, is_whole=True)
    lines = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(np.concatenate([[0], ends])), data)
    return pc.ascii_rtrim(lines, "\r\n").cast(pa.string())


def _ends_of_text(data: pa.Buffer, *, is_whole: bool) -> np.ndarray:
    """Behind which bytes the lines of a text end: newlines, and returns before none, as for Spark. `is_whole`: nothing
    follows, so the last byte is such an end too."""
    array, found = np.frombuffer(data, np.uint8), [np.empty(0, np.int64)]
    for first in range(0, len(array), _PIECE_BYTES):
        piece = array[first : first + _PIECE_BYTES]
        is_end, is_return = piece == _NEWLINE, piece == _RETURN
        if is_return.any():
            following = array[first + 1 : first + 1 + len(piece)]
            is_return[: len(following)] &= following != _NEWLINE
            is_return[len(following) :] &= is_whole
            is_end |= is_return
        found.append(np.flatnonzero(is_end) + (first + 1))
    ends = np.concatenate(found)
    return _with_last(ends, len(array)) if is_whole else ends


def _with_last(ends: np.ndarray, size: int) -> np.ndarray:
    """The end of the last line with the others, where nothing ends it but its file."""
    return np.append(ends, size) if size and not (len(ends) and ends[-1] == size) else ends


def _shown(kind: LineFormat, names: list[str], first: bytes) -> pa.Schema:
    """The columns of a file whose columns are not declared."""
    if kind.name == "json":
        from pyarrow import json

        whole = first[: first.rfind(b"\n") + 1] or first
        return json.read_json(pa.BufferReader(whole)).schema if whole.strip() else pa.schema([])
    return TEXT if kind.name == "text" else pa.schema([(name, pa.string()) for name in names])


def _lines_from(file: pa.NativeFile, start: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the lines of CSV or JSON end that begin at the byte `start` of a file: of about as many bytes as a split
    has, and one line at least. Behind each, how many records there are."""
    wanted = _SPLIT_BYTES
    while True:
        data = np.frombuffer(_read(file, start, min(wanted, size - start), size), np.uint8)
        ends = np.flatnonzero(data == _NEWLINE) + 1
        if start + len(data) == size:
            ends = _with_last(ends, len(data))
        if len(ends):
            return start + ends, np.cumsum(_are_records(data, ends))
        wanted *= 2


def _cuts(ends: np.ndarray, records: np.ndarray, split_rows: int) -> list[tuple[int, int]]:
    """Where splits of these lines end, and how many records each has."""
    total = int(records[-1])
    counts = [*range(split_rows, total, split_rows), total]
    lines = np.searchsorted(records, counts, side="right")
    parts = pairwise([0, *counts])
    return [(int(ends[line - 1]), count - before) for line, (before, count) in zip(lines, parts, strict=True)]


def _read(file: pa.NativeFile, start: int, wanted: int, size: int) -> pa.Buffer:
    """As many bytes as are wanted of a file that had `size`, and no more, in Arrow's memory, which is used again:
    `read_at` has the system give it anew each time.

    Raises:
        OSError: it has become shorter.
    """
    data = file.get_stream(start, wanted).read_buffer(wanted)
    if data.size < wanted:
        raise OSError(f"it ends at byte {start + data.size:,}, and had {size:,}")
    return data


def _are_records(data: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whether each line has more than its end."""
    last = ends - 1 - (data[ends - 1] == _NEWLINE)  # byte of each line, that of the line before if it is empty
    content = last + 1 - np.concatenate([[0], ends[:-1]])
    found: np.ndarray = (content > 1) | ((content == 1) & (data[last] != _RETURN))
    return found
