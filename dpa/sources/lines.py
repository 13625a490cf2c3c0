"""Files of lines - CSV, JSON, text - as splits: ranges of bytes that begin and end with a line, read without Spark.

A line is a record, as for Spark without `multiLine`; blank lines of CSV and JSON are none. docs/job-files.md says what
each line gives ("Lines that are read"). Large text files are a table, whose splits are made by reading everything once,
to count lines."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from posixpath import basename, splitext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpa.errors import TableError
from dpa.sources.columns import require_columns
from dpa.sources.feed import Feed, Page, never
from dpa.sources.formats import COMPRESSED
from dpa.sources.paths import Location, data_files, is_hidden, is_surely_local, prefix_of
from dpa.sources.records import (
    BOM,
    PIECE_BYTES,
    SPACES,
    TEXT,
    Gaps,
    LineBlock,
    LineFormat,
    Unread,
    Wrong,
    columns_shown,
    contents,
    ends_of,
    is_utf8,
)
from dpa.sources.splits import RecordsSplit, Split, changed, opened_again, total_rows

_SPLIT_BYTES = 8 * 2**20
"""Most bytes of a split, unless a single line has more. Polling the feed finds where splits begin."""

_FIRST_BYTES = 2**20  # how far into a file its header may reach, or columns are looked for
_LARGE_BYTES = 8 * 2**20  # size from which a text is read in place, all files together

_TEXT_SPLIT_BYTES = 32 * 2**20
"""About the most bytes of a split, unless a single line has more. In a larger one keys repeat more often, and each is
sent once."""

_LEAST_PACKS = 16  # small files share splits of at most this part of a text, so that all mappers get some
_PARTS_AT_A_TIME = 4  # parts whose lines are counted at once
_SAMPLED, _SAMPLED_BYTES = 256, 2**18  # from how many places of a large text a sample is drawn, and the most of each

_NO_LINES = {b"\x1f\x8b": "is compressed", b"\xff\xfe": "is UTF-16", b"\xfe\xff": "is UTF-16"}
"""Beginnings of files that are not lines of UTF-8."""


@dataclass(frozen=True)
class LinesSplit(RecordsSplit):
    """Some lines of one file; of a text also those of small files after it.

    Attributes:
        more: the whole files that follow. Their lines count in `rows`.
    """

    format: LineFormat
    more: tuple[LinesSplit, ...] = ()

    @property
    def has_gaps(self) -> bool:
        """Whether some lines may give no row."""
        return self.format.name != "text"

    def batches(self, batch_rows: int, gaps: Gaps | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records; `gaps` notes the lines without one."""
        if self.more:
            first = self.rows + self.skipped - total_rows(self.more)
            parts = replace(self, rows=first, skipped=0, more=()), *self.more
            # With all columns: a table made of batches without any has no rows.
            tables = [pa.Table.from_batches(replace(part, columns=None).batches(part.rows)) for part in parts]
            table = pa.concat_tables(tables).slice(self.skipped).combine_chunks()
            table = table if self.columns is None else table.select(self.columns)
            yield from table.to_batches(max_chunksize=batch_rows)
            return
        with opened_again(self.path, self.size, self.where) as file:
            lines = _read(file, self.start, self.stop - self.start, self.size)
            table = self._table(lines, file, gaps)
        yield from table.to_batches(max_chunksize=batch_rows)

    def _table(self, lines: pa.Buffer, file: pa.NativeFile, gaps: Gaps | None) -> pa.Table:
        """The rows that are left."""
        block, records = LineBlock(lines), self.skipped + self.rows
        if self.format.name == "text":
            table, wrong = _text(lines, self.columns), Wrong()
        else:
            table, wrong = self.format.parsed(block, records, self.names, self.schema, self.columns)
        if table.num_rows + len(wrong) != records:
            raise changed(self.path, f"it has other lines at {self.where}")
        before = sum(place < self.skipped for place in wrong)
        for passed, place in enumerate(sorted(wrong)):
            start = self.start + int(block.spans[0][place])
            if wrong[place] and not self.format.tolerates:
                where = f"line {_lines_before(file, start) + 1:,}"
                raise TableError(self._unread(block.line(place), where, wrong[place]).message)
            unread = self._unread(block.line(place), f"byte {start:,}", wrong[place]) if wrong[place] else None
            if gaps is not None and place >= self.skipped:
                gaps.note(place - self.skipped - (passed - before), 1, unread)
        return table.slice(self.skipped - before)

    def _unread(self, line: bytes, where: str, why: str) -> Unread:
        wrong = f"cannot be read as {self.format.name}: {why}; it begins {line[:80]!r}"
        return Unread(line, {"columns": [*self.names]}, f"{prefix_of(self.path)}, {where}: {wrong}")


@dataclass(frozen=True)
class LinesFile:
    """One file to split, from the byte `begin` after its header, and how many lines a small text has; the rest is as in
    `LinesSplit`."""

    location: Location
    format: LineFormat
    names: tuple[str, ...]
    schema: pa.Schema
    begin: int
    size: int
    lines: int | None = None

    def splits(
        self, split_rows: int, start: int, columns: tuple[str, ...] | None, dictionary: tuple[str, ...] = ()
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
        with self._opened() as file:
            at = start
            while at < self.size:
                ends, records = _lines_from(file, at, self.size)
                yield from _cuts(ends, records, split_rows)
                at = int(ends[-1])

    def _opened(self) -> AbstractContextManager[pa.NativeFile]:
        return opened_again(self.location.name, self.size, "it")

    def split(self, start: int, stop: int, rows: int, columns: tuple[str, ...] | None) -> LinesSplit:
        """The split of these bytes, which hold `rows` records."""
        path = self.location.name
        return LinesSplit(path, self.format, self.names, self.schema, columns, start, stop, self.size, rows)

    def cuts_within(self, start: int, stop: int, split_rows: int) -> list[tuple[int, int]]:
        """Where splits of a text end between two bytes, the last one with the last line that ends there; and how many
        of the lines that end there each has. Raises TableError if the file cannot be read."""
        if self.lines is not None and self.lines <= split_rows and (start, stop) == (self.begin, self.size):
            return [(stop, self.lines)]
        cuts: list[tuple[int, int]] = []
        last = lines = 0  # where the last line ends, and how many there are behind the last cut
        step = PIECE_BYTES - 1
        with self._opened() as file:
            for at in range(start, stop, step):
                end = min(at + step, stop)
                # A byte more: whether a return ends a line depends on what follows.
                data = _read(file, at, min(end + 1, self.size) - at, self.size)
                ends = at + ends_of(data, is_whole=at + data.size == self.size)
                ends = ends[: np.searchsorted(ends, end, side="right")]
                cuts += [(int(cut), split_rows) for cut in ends[split_rows - lines - 1 :: split_rows]]
                last, lines = int(ends[-1]) if len(ends) else last, (lines + len(ends)) % split_rows
        return [*cuts, (last, lines)] if lines else cuts

    def lines_within(self, start: int, most: int) -> pa.Table:
        """The records of a text that begin and end within `most` bytes from `start` on. Raises TableError if it cannot
        be read."""
        with self._opened() as file:
            data = _read(file, start, min(most, self.size - start), self.size)
        ends = ends_of(data, is_whole=start + data.size == self.size)
        first = 0 if start <= self.begin else int(ends[0]) if len(ends) else data.size
        return _text(data[first : int(ends[-1]) if len(ends) else first])


def lines_file(location: Location, kind: LineFormat, declared: pa.Schema | None) -> LinesFile:
    """Look at the beginning of a file. Without `declared` columns, those of CSV are strings, and those of JSON are what
    its first records show. Raises TableError if it cannot be read, is compressed, or lacks a column."""
    shown = prefix_of(location.name)
    try:
        with location.filesystem.open_input_file(location.path) as file:
            size = file.size()
            first = file.read_at(min(size, _FIRST_BYTES), 0)
        is_packed = splitext(location.path)[1].lower() in COMPRESSED
        if is_packed or first[:2] in _NO_LINES:
            is_what = "is compressed" if is_packed else _NO_LINES[first[:2]]
            raise TableError(
                f"{shown}: {is_what}, and is read as lines of UTF-8: make it such, or leave it out by `glob`"
            )
        begin = len(BOM) if first.startswith(BOM) else 0
        names: list[str] = []
        if kind.name == "csv":
            ends = begin + ends_of(pa.py_buffer(first[begin:]), is_whole=True)
            lines = ((first[start:stop], stop) for start, stop in pairwise([begin, *ends.tolist()]))
            line, end = next(((line, end) for line, end in lines if line.strip(SPACES)), (b"", size))
            if declared is not None and not (kind.header and line):
                names = declared.names
            elif line:
                names = kind.columns_of(line.rstrip(b"\r\n"))
            if declared is not None:
                require_columns(names, declared.names, f"the header of {shown}")
            begin = end if kind.header else begin
        schema = declared or columns_shown(kind, names, first[begin:])
    except csv.Error as error:
        raise TableError(f"{shown}: its first line is none of CSV: {error}") from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise TableError(f"{shown}: cannot be read as {kind.name}: {error}") from None
    is_counted = kind.name == "text" and begin < size <= len(first)
    counted = len(ends_of(pa.py_buffer(first[begin:]), is_whole=True)) if is_counted else None
    return LinesFile(location, kind, tuple(names), schema, begin, size, counted)


def _text(data: pa.Buffer, columns: tuple[str, ...] | None = None) -> pa.Table:
    return pa.table([_lines_of(data)], TEXT).select(TEXT.names if columns is None else columns)


def _lines_of(data: pa.Buffer) -> pa.StringArray:
    """Lines without their ends; U+FFFD replaces what is not UTF-8."""
    if not is_utf8(np.frombuffer(data, np.uint8)):
        data = pa.py_buffer(data.to_pybytes().decode(errors="replace").encode())
    ends = ends_of(data, is_whole=True)
    lines = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(np.concatenate([[0], ends])), data)
    return pc.ascii_rtrim(lines, "\r\n").cast(pa.string())


def _lines_from(file: pa.NativeFile, start: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of CSV or JSON lines from the byte `start` on, and the number of records up to each: about a split's
    bytes, and one line at least."""
    wanted = _SPLIT_BYTES
    while True:
        data = _read(file, start, min(wanted, size - start), size)
        ends = ends_of(data, is_whole=start + data.size == size)
        if len(ends):
            starts, stops = contents(np.frombuffer(data, np.uint8), ends)
            return start + ends, np.cumsum(stops > starts)
        wanted *= 2


def _cuts(ends: np.ndarray, records: np.ndarray, split_rows: int) -> list[tuple[int, int]]:
    total = int(records[-1])
    counts = [*range(split_rows, total, split_rows), total]
    lines = np.searchsorted(records, counts, side="right")
    parts = pairwise([0, *counts])
    return [(int(ends[line - 1]), count - before) for line, (before, count) in zip(lines, parts, strict=True)]


def _read(file: pa.NativeFile, start: int, wanted: int, size: int) -> pa.Buffer:
    """Read `wanted` bytes of a file that had `size` into Arrow's memory, which is reused; `read_at` allocates anew each
    time."""
    data = file.get_stream(start, wanted).read_buffer(wanted)
    if data.size < wanted:
        raise OSError(f"it ends at byte {start + data.size:,}, and had {size:,}")
    return data


def _lines_before(file: pa.NativeFile, stop: int) -> int:
    """How many lines end before a byte at which one begins."""
    lines, last = 0, b""
    for at in range(0, stop, PIECE_BYTES):
        piece = file.read_at(min(PIECE_BYTES, stop - at), at)
        lines += piece.count(b"\n") + piece.count(b"\r") - (last + piece).count(b"\r\n")
        last = piece[-1:]
    return lines


@dataclass(frozen=True)
class TextTable(Feed):
    """Text files, each line of which is a record, as for Spark."""

    files: tuple[LinesFile, ...]
    columns: tuple[str, ...] | None = None

    @property
    def schema(self) -> pa.Schema:
        return TEXT

    @property
    def paths(self) -> list[str]:
        """The files' paths, in the order of their lines."""
        return [file.location.name for file in self.files]

    def poll(self, split_rows: int, position: Any = None) -> Page:
        require_columns(TEXT.names, self.columns or (), f"the input {self.paths[0]}")
        parts = [(file, at) for file in self.files for at in range(file.begin, file.size, _TEXT_SPLIT_BYTES)]
        is_over = threading.Event()

        def look_through(part: tuple[LinesFile, int]) -> list[tuple[int, int]]:
            file, start = part
            stop = min(start + _TEXT_SPLIT_BYTES, file.size)
            return [] if is_over.is_set() else file.cuts_within(start, stop, split_rows)

        splits: list[LinesSplit] = []
        with ThreadPoolExecutor(_PARTS_AT_A_TIME) as pool:
            try:
                found = pool.map(look_through, parts)
                for file in self.files:
                    begin = file.begin
                    for _ in range(file.begin, file.size, _TEXT_SPLIT_BYTES):
                        for end, rows in next(found):
                            splits.append(file.split(begin, end, rows, self.columns))
                            begin = end  # a line may begin in one part, and end in another
            finally:
                is_over.set()
        return Page(_packed(splits, split_rows))

    def rows_now(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            for split, _ in file.splits(batch_rows, 0, self.columns):
                yield from split.batches(batch_rows)

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        """Draw lines from some places of the text. They are only counted if it is small, or none fits there."""
        random, sizes = np.random.default_rng(seed), np.cumsum([file.size - file.begin for file in self.files])
        if (size := int(sizes[-1])) < max(_LARGE_BYTES, _SAMPLED):
            return super().sample(max_rows, seed, enough)
        most = min(_SAMPLED_BYTES, size // _SAMPLED)
        drawn = np.sort(random.choice(size // most, _SAMPLED, replace=False)) * most
        found: dict[int, pa.Table] = {}
        for place in random.permutation(_SAMPLED).tolist():
            number = int(np.searchsorted(sizes, drawn[place], side="right"))
            file, before = self.files[number], int(sizes[number - 1]) if number else 0
            lines = file.lines_within(file.begin + int(drawn[place]) - before, most)
            if lines.num_rows:
                found[place] = lines
            if found and enough():
                break
        if not found:
            return super().sample(max_rows, seed, enough)
        table = pa.concat_tables(found[place] for place in sorted(found))
        rows = random.choice(table.num_rows, min(max_rows, table.num_rows), replace=False, shuffle=False)
        return table.take(pa.array(np.sort(rows)))


def _packed(splits: Sequence[LinesSplit], split_rows: int) -> list[Split]:
    """The splits of a text, those of neighbouring small files as one: to begin a split takes a task as long as to read
    thousands of lines."""
    packed: list[list[LinesSplit]] = []
    most = min(_TEXT_SPLIT_BYTES, sum(split.stop - split.start for split in splits) // _LEAST_PACKS)
    rows = size = 0
    for split in splits:
        rows, size = rows + split.rows, size + split.stop - split.start
        if packed and rows <= split_rows and size <= most:
            packed[-1].append(split)
        else:
            packed.append([split])
            rows, size = split.rows, split.stop - split.start
    return [replace(first, rows=first.rows + total_rows(more), more=tuple(more)) for first, *more in packed]


def text_table(files: Sequence[Location]) -> TextTable:
    """Look at text files. Raises TableError if one cannot be read."""
    try:
        return TextTable(tuple(lines_file(file, LineFormat("text"), None) for file in files))
    except FileNotFoundError as error:
        raise TableError(f"the input was removed while it was looked at: {error}") from None


def large_text(
    paths: Sequence[str], *, glob: str | None = None, recursive: bool = False, exclude: Sequence[str] = ()
) -> list[Location]:
    """The text files that paths name, as `dpa.sources.paths.data_files` finds them, if reading in place is worthwhile,
    and all are local, not compressed, and visible to Spark; else none."""
    if not all(is_surely_local(path) for path in [*paths, glob or ""]):
        return []
    try:
        files = [file for path in paths for file in data_files(path, glob, recursive, exclude)]
    except (TableError, OSError, UnicodeDecodeError):
        return []  # Spark says what is wrong, or makes an empty table of nothing
    if not files or not all(map(_is_plain, files)) or len({file.name for file in files}) < len(files):
        return []
    sizes = (file.filesystem.get_file_info(file.path).size or 0 for file in files)
    return files if sum(sizes) >= _LARGE_BYTES else []


def _is_plain(file: Location) -> bool:
    """Whether Spark reads a file, and reads it as it is."""
    name = basename(file.path)
    return not (is_hidden(name) or name.endswith("._COPYING_") or splitext(name)[1].lower() in COMPRESSED)
