"""Records - lines of JSON, CSV or text, values of Kafka - parsed as if each were alone: what one gives depends neither
on its neighbours nor on where a block begins, and no content of a record ends the process.

Arrow's parsers take a block at once, and find objects in it by their braces: two in one line, none in the next. So a
block is checked first, and halved where a record is no plain one or the block does not parse."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from dpa.sources.columns import only

T = TypeVar("T")

PIECE_BYTES = 2**20
"""Bytes to search for ends of lines at a time; they fit a processor's cache."""

NEWLINE, RETURN, QUOTE, OPEN, CLOSE = b'\n\r"{}'
BOM = b"\xef\xbb\xbf"
"""The mark of UTF-8. Arrow's parsers drop it from the start of what they parse, even in the middle of a file."""

SPACES = bytes(range(33))
"""What Spark takes for spaces when it looks for lines without content."""

TEXT = pa.schema([("value", pa.string())])
"""The columns of a text file."""

Wrong: TypeAlias = dict[int, str]
"""Why records cannot be read, by their place; empty for one without content."""


@dataclass(frozen=True)
class Unread:
    """A record that cannot be read: its bytes, if it has any; what else it takes to read it again, such as the key of a
    Kafka record, in plain values; and which record it is, and what is wrong with it."""

    data: bytes | None
    about: dict[str, Any]
    message: str


class Gaps:
    """Rows of a split that do not exist, such as a topic's offsets without a record. They count as read with the rows
    before them, so that `after` continues after both.

    Attributes:
        unread: the passed records that could not be read, and their places among the split's rows; whoever handles them
            takes them out.
    """

    def __init__(self) -> None:
        self.unread: list[tuple[int, Unread]] = []
        self._behind: list[int] = []
        self._missing = [0]
        self._records: deque[Unread | None] = deque()
        self._read = 0

    def note(self, rows: int, missing: int, unread: Unread | None = None) -> None:
        """After the first `rows` rows that exist, `missing` do not; `unread`: the record of one."""
        self._behind.append(rows)
        self._missing.append(self._missing[-1] + missing)
        self._records.append(unread)

    def before(self, row: int) -> int:
        """How many are missing before a row, by its number among those that exist."""
        return self._missing[bisect_right(self._behind, row)]

    def passed(self, rows: int) -> int:
        """How many are missing after the rows read so far, up to and with `rows` more."""
        self._read += rows
        first, stop = len(self._behind) - len(self._records), bisect_right(self._behind, self._read)
        for place in range(first, stop):
            record = self._records.popleft()
            if record is not None:
                self.unread.append((self._behind[place] + self._missing[place], record))
        return self._missing[stop] - self._missing[first]


@dataclass(frozen=True)
class LineBlock:
    """Some lines, as bytes. Line ends are found on demand."""

    data: pa.Buffer

    @cached_property
    def array(self) -> np.ndarray:
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each line that is not empty begins, and where its content ends."""
        starts, stops = contents(self.array, ends_of(self.data, is_whole=True))
        has = stops > starts
        return (starts, stops) if has.all() else (starts[has], stops[has])

    def __len__(self) -> int:
        return len(self.spans[0])

    def line(self, place: int) -> bytes:
        return self.array[self.spans[0][place] : self.spans[1][place]].tobytes()

    def lines(self) -> list[bytes]:
        whole = self.array.tobytes()
        return [whole[start:stop] for start, stop in zip(*map(np.ndarray.tolist, self.spans), strict=True)]

    @property
    def has_objects(self) -> bool:
        """Whether each line begins and ends as a JSON object, and is text. Between such lines a parser is at the top
        level, as no string spans lines: if it finds as many objects as lines, each line is one."""
        starts, stops = self.spans
        is_plain = (self.array[starts] == OPEN).all() and (self.array[stops - 1] == CLOSE).all()
        return bool(is_plain and self.array.min(initial=1)) and is_utf8(self.array)

    def is_quoted_well(self, separator: int) -> bool:
        """Whether CSV quotes enclose whole values or are doubled in them, and no line begins with a space. Then no
        value spans lines if a parser finds as many records as lines."""
        if not self.data.size or self.data[:3].to_pybytes() == BOM:
            return False
        is_space = self.array < len(SPACES)
        ends, of_spaces = np.append(np.flatnonzero(is_space[:-1] & is_space[1:]), -1), (NEWLINE, RETURN)
        after_end = ends[np.isin(self.array[ends], of_spaces) | (ends < 0)] + 1
        if (is_space[after_end] & ~np.isin(self.array[after_end], of_spaces)).any():
            return False
        quotes = np.flatnonzero(self.array == QUOTE)
        if len(quotes) % 2 or not len(quotes):
            return not len(quotes)
        is_border = np.zeros(256, bool)
        is_border[[separator, QUOTE, NEWLINE, RETURN]] = True
        opening, closing = quotes[::2], quotes[1::2]
        opening, closing = opening[opening > 0], closing[closing < len(self.array) - 1]
        return bool(is_border[self.array[opening - 1]].all() and is_border[self.array[closing + 1]].all())


def ends_of(data: pa.Buffer, *, is_whole: bool) -> np.ndarray:
    """The byte after each line's end: a newline, or a return without one, as for Spark. `is_whole`: nothing follows, so
    the last byte ends a line too."""
    array, found = np.frombuffer(data, np.uint8), [np.empty(0, np.int64)]
    for first in range(0, len(array), PIECE_BYTES):
        piece = array[first : first + PIECE_BYTES]
        is_end, is_return = piece == NEWLINE, piece == RETURN
        if is_return.any():
            following = array[first + 1 : first + 1 + len(piece)]
            is_return[: len(following)] &= following != NEWLINE
            is_return[len(following) :] &= is_whole
            is_end |= is_return
        found.append(np.flatnonzero(is_end) + (first + 1))
    ends = np.concatenate(found)
    return np.append(ends, len(array)) if is_whole and len(array) and len(array) not in ends[-1:] else ends


def contents(array: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where lines begin, and where their content ends: before a newline, a return, or both."""
    starts = np.concatenate([np.zeros(1, np.int64), ends])[: len(ends)]
    last = array[ends - 1]
    is_newline = last == NEWLINE
    stops = ends - (is_newline | (last == RETURN))
    has_return = is_newline & (stops > starts) & (array[stops - 1] == RETURN)
    return starts, stops - has_return


def is_utf8(array: np.ndarray) -> bool:
    """Whether bytes are UTF-8."""
    sizes = pa.py_buffer(np.array([0, len(array)]))
    try:
        pa.LargeStringArray.from_buffers(1, sizes, pa.py_buffer(array)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def parsed(
    values: Sequence[T], plain: Callable[[T], bytes], parse: Callable[[pa.Buffer], pa.Table]
) -> tuple[list[pa.Table], Wrong]:
    """Parse records; returns their rows in order, and which of them are wrong.

    Args:
        plain: makes a record a line that parses among others, empty if the record has no content; raises ValueError if
            it is no record.
        parse: parses lines, or raises `ArrowInvalid`.
    """
    wrong: Wrong = {}
    lines: dict[int, bytes] = {}
    for place, value in enumerate(values):
        try:
            lines[place] = plain(value)
        except ValueError as error:
            wrong[place] = _reason(error)
        else:
            if not lines[place]:
                wrong[place] = ""
                del lines[place]
    return list(_halved([*lines], lines, parse, wrong)), wrong


def _halved(
    places: list[int], lines: dict[int, bytes], parse: Callable[[pa.Buffer], pa.Table], wrong: Wrong
) -> Iterator[pa.Table]:
    if not places:
        return
    try:
        found = parse(pa.py_buffer(b"\n".join([b"", *(lines[place] for place in places), b""])))
        if found.num_rows != len(places):
            raise pa.ArrowInvalid(f"it is {found.num_rows} records")
        yield found
    except pa.ArrowInvalid as error:
        if len(places) == 1:
            wrong[places[0]] = _reason(error)
            return
        middle = len(places) // 2
        yield from _halved(places[:middle], lines, parse, wrong)
        yield from _halved(places[middle:], lines, parse, wrong)


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start:,} of it, {error.object[error.start]:#x}, is not UTF-8"
    return str(error).partition("\n")[0].removesuffix(" in row 0")


def plain_object(value: bytes) -> bytes:
    """A JSON record, if it may be an object. Raises ValueError if it is none."""
    text = value.strip(b" \t\r\n")
    if text and not (text.startswith(b"{") and text.endswith(b"}")):
        raise ValueError("it is no object of JSON")
    if b"\0" in text:
        raise ValueError("it has a byte that is 0")
    _ = text.decode()
    return text


def plain_values(line: bytes, separator: bytes, number: int) -> bytes:
    """A CSV record as a line of `number` values; missing ones are null, as for Spark. Raises ValueError if it has more,
    or its quotes are wrong."""
    if not line.strip(SPACES):
        return b""
    parts = line.split(b'"')
    if len(parts) % 2 == 0:
        raise ValueError("a quote is not closed in its line")
    outside = parts[::2]
    last = len(outside) - 1
    for place, part in enumerate(outside):
        begins, ends = place == 0 or part.startswith(separator), place == last or part.endswith(separator)
        if last and part and not (begins and ends):
            raise ValueError("quotes are around a part of a value, or are not doubled in it")
    missing = number - 1 - sum(part.count(separator) for part in outside)
    if missing < 0:
        raise ValueError(f"it has {number - missing:,} values, and there are {number:,} columns")
    return line + separator * missing


@dataclass(frozen=True)
class LineFormat:
    """How lines encode records.

    Attributes:
        name: `csv`, `json` or `text`.
        header: whether the first line of each CSV file names its columns.
        separator: of CSV values, one byte.
        tolerates: whether to leave out lines that cannot be read. Then all columns are read, so that the columns a job
            reads do not decide what is left out.
    """

    name: str
    header: bool = False
    separator: str = ","
    tolerates: bool = False

    def parsed(
        self,
        block: LineBlock,
        records: int,
        names: tuple[str, ...],
        schema: pa.Schema,
        columns: tuple[str, ...] | None = None,
    ) -> tuple[pa.Table, Wrong]:
        """The records of some lines, and which of them are wrong.

        Args:
            records: how many lines are not empty.
            names: of all CSV columns.
            schema: the possible columns.
            columns: those to read; None: all.
        """
        wanted = only(schema, columns)
        read = schema if self.tolerates else wanted
        parse = partial(self._parsed, names=names, schema=read)
        separator, plain = self.separator.encode(), plain_object
        is_plain = block.has_objects if self.name == "json" else block.is_quoted_well(separator[0])
        found: list[pa.Table] = []
        wrong: Wrong = {}
        if is_plain:
            with suppress(pa.ArrowInvalid):
                found = [parse(pa.py_buffer(block.array))]
        if sum(table.num_rows for table in found) != records:
            lines = block.lines()
            if self.name == "csv":
                plain = partial(plain_values, separator=separator, number=len(names))
                if pa.binary() not in read.types:
                    lines = [line.decode(errors="replace").encode() for line in lines]  # as Spark does
            found, wrong = parsed(lines, plain, parse)
        table = pa.concat_tables(found) if found else read.empty_table()
        return table.select(wanted.names), wrong

    def _parsed(self, data: pa.Buffer, names: tuple[str, ...], schema: pa.Schema) -> pa.Table:
        if self.name == "json":
            return parsed_objects(data, schema)
        from pyarrow import csv as arrow

        convert = arrow.ConvertOptions(
            column_types=schema, include_columns=schema.names, null_values=[""], strings_can_be_null=True
        )
        read = arrow.ReadOptions(column_names=names, use_threads=False, block_size=data.size + 1)
        return arrow.read_csv(pa.BufferReader(data), read, arrow.ParseOptions(delimiter=self.separator), convert)

    def columns_of(self, first: bytes) -> list[str]:
        """The columns that the first CSV line names, else Spark's `_c0`, `_c1`, ...; also for a column without a name.
        Columns that share a name get their number appended. Raises csv.Error if it is no line of CSV."""
        [found] = csv.reader([first.decode(errors="replace")], delimiter=self.separator, strict=True)
        times = Counter(name.lower() for name in found)
        shown = [f"{name}{place}" if times[name.lower()] > 1 else name for place, name in enumerate(found)]
        return [name if found[place] and self.header else f"_c{place}" for place, name in enumerate(shown)]

    def record(self, data: bytes, names: tuple[str, ...], declared: pa.Schema | None) -> dict[str, Any]:
        """Read one line; `names` and `declared` as for a file. Raises ValueError if it cannot be read."""
        schema = columns_shown(self, list(names), data) if declared is None else declared
        table, wrong = self.parsed(LineBlock(pa.py_buffer(data)), 1, names, schema)
        if wrong:
            raise ValueError(wrong[0])
        [row] = table.to_pylist()
        return dict(row)


def parsed_objects(data: pa.Buffer, schema: pa.Schema | None, *, spread: bool = False) -> pa.Table:
    """Parse JSON objects, or raise `pa.ArrowInvalid`.

    Args:
        schema: the fields to read; None: all.
        spread: whether an object may span lines, which takes longer.
    """
    from pyarrow import json

    block = json.ReadOptions(use_threads=False, block_size=data.size + 1)
    options = json.ParseOptions(explicit_schema=schema, newlines_in_values=spread)
    if schema is not None:
        options.unexpected_field_behavior = "ignore"
    return json.read_json(pa.BufferReader(data), block, options)


def columns_shown(kind: LineFormat, names: list[str], first: bytes) -> pa.Schema:
    """The columns of a file without declared ones, as its beginning shows them."""
    if kind.name == "json":
        ends = ends_of(pa.py_buffer(first), is_whole=False)
        lines = LineBlock(pa.py_buffer(first[: int(ends[-1])] if len(ends) else first)).lines()
        _, wrong = parsed(lines, plain_object, partial(parsed_objects, schema=pa.schema([])))
        good = b"\n".join(line for place, line in enumerate(lines) if place not in wrong)
        return parsed_objects(pa.py_buffer(good), None).schema if good else pa.schema([])
    return TEXT if kind.name == "text" else pa.schema([(name, pa.string()) for name in names])
