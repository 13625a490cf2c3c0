"""Files of CSV and JSON lines as splits that polars parses, in place without Spark: ranges of bytes that begin and end
with a record.

All files are read once before the job runs, to count records and to infer types over all of them. docs/job-files.md
says what is read otherwise than by Spark ("Read in place")."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpa._util.inference import as_type, promoted
from dpa.errors import TableError
from dpa.sources.columns import only, require_columns
from dpa.sources.files import DataFile, FileTable, Reading
from dpa.sources.formats import COMPRESSED
from dpa.sources.paths import Location, prefix_of
from dpa.sources.records import BOM, NEWLINE, LineFormat
from dpa.sources.splits import RecordsSplit, Scan, opened_again, unreadable

if TYPE_CHECKING:
    import polars as pl

_BLOCK_BYTES = 32 * 2**20  # about how much is parsed at a time; a single record may have more
_HEADER_BYTES = 2**20  # how far into a file its header may reach

_KNOWN = {
    "header": "header",
    "sep": "separator",
    "delimiter": "separator",
    "quote": "quote",
    "comment": "comment",
    "nullValue": "null",
    "inferSchema": "infer",
}
_OPTIONS = {option.lower(): key for option, key in _KNOWN.items()}
"""Options of Spark's reader of CSV that hold here too."""

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True)
class ScanFormat:
    """How files encode records.

    Attributes:
        name: `csv` or `json`.
        header: whether the first record of each CSV file names its columns.
        separator, quote, comment: of CSV; an empty one: there is none.
        null: what stands for null in CSV, beside nothing.
        infer: whether columns have types; else those of CSV are strings.
    """

    name: str
    header: bool = True
    separator: str = ","
    quote: str = '"'
    comment: str = ""
    null: str = ""
    infer: bool = True

    @classmethod
    def of(cls, name: str, options: Mapping[str, str]) -> ScanFormat:
        """The format by options named as Spark's. Raises ValueError if one is unknown, or is not what polars takes."""
        given: dict[str, Any] = {}
        for option, value in options.items():
            if name != "csv" or option.lower() not in _OPTIONS:
                known = ", ".join(_KNOWN) if name == "csv" else "none"
                mend = "or leave `in_place` out, and Spark reads it"
                raise ValueError(f"{name} that is read in place has no option {option!r}: give one of {known}, {mend}")
            given[_OPTIONS[option.lower()]] = value
        for key in ("header", "infer"):
            given |= {key: given[key].lower() == "true"} if key in given else {}
        for key, least in (("separator", 1), ("quote", 0), ("comment", 0)):
            if not least <= len(given.get(key, ",").encode()) <= 1:
                raise ValueError(f"`{key}` of CSV that is read in place is one character of ASCII")
        return cls(name, **given)

    def parsed(self, data: bytes, names: Sequence[str], columns: pa.Schema | None) -> pl.LazyFrame:
        """A query over records.

        Args:
            names: all columns of CSV, in order.
            columns: the types of some; other columns of CSV are strings. None: types are inferred from all records.
        """
        import polars as pl

        kinds = None if columns is None else pl.DataFrame(columns.empty_table()).schema
        if self.name == "json":
            return pl.scan_ndjson(io.BytesIO(data), schema=kinds, infer_schema_length=None)
        # A line of their own counts the columns, or polars would count those of the first record.
        places = {f"_{place}": name for place, name in enumerate(names)}
        rows = pl.scan_csv(
            io.BytesIO(f"{self.separator.join(places)}\n".encode() + data),
            schema=kinds and {place: kinds.get(name, pl.String()) for place, name in places.items()},
            infer_schema_length=None if self.infer and kinds is None else 0,
            separator=self.separator,
            quote_char=self.quote or None,
            comment_prefix=self.comment or None,
            null_values=[self.null] if self.null else None,
            encoding="utf8-lossy",
        )
        return rows.rename(places)

    def end_of(self, data: bytes) -> int:
        """Where the last record ends that ends in some bytes, at whose start one begins; 0 if none does."""
        if self.name == "json" or not self.quote or self.quote.encode() not in data:
            return data.rfind(b"\n") + 1
        ends = self._ends(data)
        return int(ends[-1]) if len(ends) else 0

    def _ends(self, data: bytes) -> np.ndarray:
        array = np.frombuffer(data, np.uint8)
        ends, quotes = np.flatnonzero(array == NEWLINE), np.flatnonzero(array == ord(self.quote or "\0"))
        outside: np.ndarray = ends[np.searchsorted(quotes, ends) % 2 == 0] + 1
        return outside

    def header_of(self, data: bytes) -> tuple[list[str], int]:
        """The columns of a CSV file that begins so, and where its records begin. Raises csv.Error if it shows none."""
        head = data[:_HEADER_BYTES]
        start = 0
        for end in [*self._ends(head).tolist(), len(head)]:
            line, begin, start = head[start:end], start, end
            if line.strip() and not (self.comment and line.startswith(self.comment.encode())):
                names = LineFormat("csv", self.header, self.separator).columns_of(line.rstrip(b"\r\n"))
                return names, end if self.header else begin
        return [], len(data)

    def blocks(self, stream: pa.NativeFile, left: int | None) -> Iterator[bytes]:
        """Bytes of a stream, up to `left` of them, None: all, cut where records end."""
        kept = b""
        while piece := stream.read(_BLOCK_BYTES if left is None else min(_BLOCK_BYTES, left)):
            left = None if left is None else left - len(piece)
            kept += piece
            if end := self.end_of(kept):
                yield kept[:end]
                kept = kept[end:]
        if kept:
            yield kept


@dataclass(frozen=True)
class ScanSplit(RecordsSplit):
    """Some records of one file, all of which are read."""

    format: ScanFormat

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        skipped, wanted = self.skipped, only(self.schema, self.columns)
        for block in self._blocks():
            with _blaming(self.path, self.format, self.where):
                rows = _rows(self.format.parsed(block, self.names, self.schema), wanted or self.schema)
            yield from rows.select(wanted.names).slice(skipped).to_batches(max_chunksize=batch_rows)
            skipped = max(0, skipped - rows.num_rows)

    def scan(self) -> Scan | None:
        """Compressed files are only read block by block, and a split without columns only counted."""
        wanted = only(self.schema, self.columns)
        if not self.rows or not len(wanted) or PurePosixPath(prefix_of(self.path)).suffix.lower() in COMPRESSED:
            return None
        rows = self.format.parsed(b"".join(self._blocks()), self.names, self.schema)
        return Scan(rows.select(wanted.names), wanted, self.skipped, (self.rows,))

    def _blocks(self) -> Iterator[bytes]:
        with opened_again(self.path, self.size, self.where) as file:
            stream = _unpacked(self.path, file)
            stream.seek(self.start) if stream is file else stream.read(self.start)
            yield from self.format.blocks(stream, self.stop - self.start)


@dataclass(frozen=True)
class ScanFile(DataFile):
    """`ends`: of each block; `begin`: of the first. The rest is as in `ScanSplit`."""

    format: ScanFormat
    names: tuple[str, ...]
    ends: tuple[int, ...]
    begin: int

    def split(self, groups: tuple[int, ...], rows: int, reading: Reading) -> ScanSplit:
        start = self.ends[groups[0] - 1] if groups[0] else self.begin
        stop = self.ends[groups[-1]]
        return ScanSplit(self.path, self.format, self.names, self.schema, reading.columns, start, stop, self.size, rows)


def scanned(table: FileTable) -> FileTable:
    """The table of files that were looked at by `scan_file`, with the types that hold the values of all of them: a
    string where nothing else does. In CSV a file has the columns of its header, in JSON those of all files."""
    files = [file for file in table.files if isinstance(file, ScanFile)]
    kinds: dict[str, pa.DataType] = {}
    for file in files:
        _widen(kinds, dict(zip(file.schema.names, file.schema.types, strict=True)), file.path)
    whole = pa.schema([(name, pa.large_string() if pa.types.is_null(kind) else kind) for name, kind in kinds.items()])
    return replace(table, files=tuple(replace(file, schema=only(whole, file.names or None)) for file in files))


def scan_file(location: Location, form: ScanFormat, declared: pa.Schema | None) -> ScanFile:
    """Read a file once, for its records, and for their types if none are `declared`. Raises TableError if it cannot be
    read, or lacks a declared column."""
    shown, path = prefix_of(location.name), location.name
    with location.filesystem.open_input_file(location.path) as opened, opened_again(path, opened.size(), "it") as file:
        begin = at = 0
        names: list[str] = []
        kinds: dict[str, pa.DataType] = {}
        groups: list[int] = []
        ends: list[int] = []
        stream = _unpacked(path, file)
        for block in form.blocks(stream, None):
            with _blaming(path, form, f"bytes {at:,} to {at + len(block):,}"):
                data, at = block, at + len(block)
                if not ends:
                    begin = len(BOM) if data.startswith(BOM) else 0
                    if form.name == "csv":
                        names, head = form.header_of(data[begin:])
                        names = declared.names if declared is not None and not form.header else names
                        begin += head
                    data = data[begin:]
                rows, found = _counted(form, data, names, declared)
            _widen(kinds, found, path)
            groups.append(rows)
            ends.append(at)
        if declared is not None and names:
            require_columns(names, declared.names, f"the header of {shown}")
        if stream is not file:  # only a whole one can be read from its beginning
            groups, ends = [sum(groups)], ends[-1:]
        if declared is not None:
            kinds = dict(zip(declared.names, declared.types, strict=True))
        schema = pa.schema([*kinds.items()])
        return ScanFile(path, schema, tuple(groups), opened.size(), form, tuple(names), tuple(ends), begin)


def _counted(
    form: ScanFormat, data: bytes, names: Sequence[str], declared: pa.Schema | None
) -> tuple[int, dict[str, pa.DataType]]:
    """The number of records, and the types of columns, null where nothing is."""
    import polars as pl

    if declared is not None:
        return int(form.parsed(data, names, declared).select(pl.len()).collect().item()), {}
    if form.name == "json" and not data.strip():
        return 0, {}
    frame = form.parsed(data, names, None).collect()
    large = [name for name, kind in frame.schema.items() if kind in (pl.Int128, pl.UInt128)]
    kinds = frame.head(0).with_columns(pl.col(large).cast(pl.Decimal(38, 0))).to_arrow(compat_level=_oldest()).schema
    is_null = frame.null_count().row(0) if frame.height else [True] * frame.width
    return frame.height, {
        field.name: pa.null() if none == frame.height or not frame.height else field.type
        for field, none in zip(kinds, is_null, strict=True)
    }


def _widen(kinds: dict[str, pa.DataType], more: Mapping[str, pa.DataType], path: str) -> None:
    """Have types hold the values of some more, which the file at a path has: a text where nothing else does."""
    for name, kind in more.items():
        before = kinds.get(name, pa.null())
        both = promoted(before, kind)
        if both is None and (pa.types.is_nested(before) or pa.types.is_nested(kind)):
            what = f"column {name!r} has values of types {before} and {kind}"
            raise TableError(f"{prefix_of(path)}: {what}: declare it in `columns`, such as a string")
        if both is None:
            are_numbers = all(pa.types.is_floating(each) or pa.types.is_decimal(each) for each in (before, kind))
            both = pa.float64() if are_numbers else pa.large_string()
        kinds[name] = both


def _rows(records: pl.LazyFrame, wanted: pa.Schema) -> pa.Table:
    found = records.select(wanted.names).collect().to_arrow(compat_level=_oldest())
    return pa.table([as_type(found[field.name], field.type) for field in wanted], schema=wanted)


def _oldest() -> pl.CompatLevel:
    """Without views, which many functions of Arrow lack."""
    import polars as pl

    return pl.CompatLevel.oldest()


def _unpacked(path: str, file: pa.NativeFile) -> pa.NativeFile:
    """What a file holds behind its compression, if its ending says so; else the file itself."""
    suffix = PurePosixPath(prefix_of(path)).suffix.lower()
    if suffix not in COMPRESSED:
        return file
    if suffix not in _CODECS:
        raise TableError(f"{prefix_of(path)}: in place files are read that end with {', '.join(_CODECS)}, not {suffix}")
    return pa.CompressedInputStream(file, _CODECS[suffix])


@contextmanager
def _blaming(path: str, form: ScanFormat, where: str) -> Iterator[None]:
    """A block whose exceptions of polars are TableErrors of a file."""
    from polars.exceptions import PolarsError

    try:
        yield
    except (PolarsError, csv.Error, UnicodeDecodeError) as error:
        raise unreadable(path, where, error, f" as {form.name}") from None
