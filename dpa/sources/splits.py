"""Splits: the pieces of an input that source tasks read; and the first kinds, a range of Parquet row groups and an
Arrow table in memory. Feeds make splits, and backends read them, without Spark."""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from dpa.errors import TableError
from dpa.sources.columns import first_difference
from dpa.sources.paths import locate, prefix_of
from dpa.sources.records import Gaps

if TYPE_CHECKING:
    import polars as pl
    import pyarrow.parquet as pq

_DIVIDED = 4  # a part of a scan with this many times the rows wanted is read in several pieces
_UNREADABLE = (pa.ArrowException, OSError)  # what pyarrow raises for a file that is damaged, gone or out of reach

_INDEX = 4
"""Bytes of a value, at most, in a column chunk whose pages are dictionary-encoded, after a dictionary of a MiB."""

_NUMBERED = 100_000  # rows of a row group that make its dictionary worth putting together with others
_BUFFER_BYTES = 65_536  # bytes of a column that are fetched at once where not all of a row group is


@runtime_checkable
class Split(Protocol):
    """A piece of an input, which one task reads. Picklable and never changed.

    A reader's position is a number of rows: `after` continues there."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    def after(self, rows: int) -> Split:
        """What is left of the split after its first `rows` rows."""

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most `batch_rows` at a time: the same ones in the same order in each call. Raises
        TableError with what, where and why if they cannot be read."""


def channel_of(split: Split) -> str:
    """A split's channel: where rows come from in the order of their event time, or nearly, such as a partition. Splits
    that do not say share one. A channel is known from its first split on, which may be empty."""
    return getattr(split, "channel", "")


@dataclass(frozen=True)
class Scan:
    """The rows of a split as a query.

    Attributes:
        frame: all rows of the table that it is a part of; nothing is read before it is collected.
        schema: its columns.
        first: how many of them come before the split's.
        parts: the rows of each part of the split, in order: a query that begins or ends within one decodes it whole.
        dictionary: columns that the split's batches have as dictionaries.
    """

    frame: pl.LazyFrame
    schema: pa.Schema
    first: int
    parts: tuple[int, ...]
    dictionary: Sequence[str] = ()

    def begun(self, most: int) -> tuple[int, Scan]:
        """How many rows to read first, and the scan of those after them: whole parts as far as `most` rows reach, one
        at least, or `most` rows of a part with many more."""
        rows, *parts = self.parts
        if rows > _DIVIDED * most:
            parts.insert(0, rows - most)
            rows = most
        while parts and rows + parts[0] <= most:
            rows += parts.pop(0)
        return rows, replace(self, first=self.first + rows, parts=tuple(parts))


@cache
def is_split(kind: type) -> bool:
    """Whether a type has a split's methods."""
    return all(hasattr(kind, method) for method in ("after", "batches"))


def scan_of(split: object) -> Scan | None:
    """The rows of a split as a query; None if polars cannot read these. Raises TableError as `batches` does."""
    scan: Scan | None = getattr(split, "scan", lambda: None)()
    return scan


def joined(split: Split, following: Split) -> Split | None:
    """One split of the rows of both; None unless `following` starts where the other ends."""
    both: Split | None = getattr(split, "joined", lambda _: None)(following)
    return both


def on_demand(split: Split, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """A split's batches; if the split can, it fetches no more than is taken."""
    batches: Iterator[pa.RecordBatch] = getattr(split, "on_demand", split.batches)(batch_rows)
    return batches


@dataclass(frozen=True)
class GappedRows:
    """The rows of such a split that exist; `gaps` has the others, as far as it has been read."""

    split: Any
    gaps: Gaps

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        rows: Iterator[pa.RecordBatch] = self.split.batches(batch_rows, self.gaps)
        return rows


def gapped(rows: object) -> GappedRows | None:
    """The reader of a split that may have missing rows, as its attribute `has_gaps` says; None: it has none."""
    inner = rows.split if isinstance(rows, NumberedSplit) else rows
    return GappedRows(inner, Gaps()) if getattr(inner, "has_gaps", False) else None


def whole(split: Split) -> Split:
    """A split with all columns, for a query, and not only those that a job reads; at full speed."""
    if hasattr(split, "split"):
        return replace(split, split=whole(split.split))  # type: ignore[type-var]
    all_of: dict[str, Any] = {"columns": None, "dictionary": (), "pace": None}
    return replace(split, **{name: value for name, value in all_of.items() if hasattr(split, name)})  # type: ignore[type-var]


@contextmanager
def opened_again(path: str, size: int, what: str) -> Iterator[pa.NativeFile]:
    """The file of a split, open for this block. TableError if it has not the bytes that it had, is gone, or cannot be
    read; `what`: which part of it the split has."""
    try:
        location = locate(path)
        with location.filesystem.open_input_file(location.path) as file:
            if file.size() != size:
                raise changed(path, f"it has {file.size():,} bytes now, and had {size:,}")
            yield file
    except FileNotFoundError:
        why = "it was removed while the job was running, or the mapper's machine cannot see it"
        raise TableError(f"{prefix_of(path)}: no such file: {why}") from None
    except _UNREADABLE as error:
        raise unreadable(path, what, error) from None


def changed(path: str, how: str) -> TableError:
    """A file is not what it was when the split was made."""
    mend = "what is read in place must stay as it is"
    return TableError(f"{prefix_of(path)}: was changed while the job was running: {how}; {mend}")


def unreadable(path: str, what: str, error: Exception, form: str = "") -> TableError:
    """`what` of a file cannot be read, in some form."""
    reason = str(error).partition("\n")[0].rstrip(". ")
    return TableError(f"{prefix_of(path)}: {what} cannot be read{form}: {reason}")


SplitT = TypeVar("SplitT", bound="RestOfFile")


class RestOfFile:
    """What is left of a split of a file: `rows` to read, and the `skipped` ones before them."""

    rows: int
    skipped: int

    def after(self: SplitT, rows: int) -> SplitT:
        return replace(self, rows=self.rows - rows, skipped=self.skipped + rows)  # type: ignore[type-var]


@dataclass(frozen=True)
class RecordsSplit(RestOfFile):
    """Some records of one file, which a range of its bytes holds.

    Attributes:
        path: local path or URI; every mapper's machine must be able to open it.
        format: of the file.
        names: all columns of CSV, in its order.
        schema: the columns that may be read.
        columns: those that are; None: all.
        start, stop: the byte range, after decompression.
        size: the file's bytes when the split was made.
        rows, skipped: records to read, and those before them.
    """

    path: str
    format: Any
    names: tuple[str, ...]
    schema: pa.Schema
    columns: tuple[str, ...] | None
    start: int
    stop: int
    size: int
    rows: int
    skipped: int = 0

    @property
    def where(self) -> str:
        """For messages."""
        return f"bytes {self.start:,} to {self.stop:,}"


@dataclass(frozen=True)
class ParquetSplit(RestOfFile):
    """Row groups of one Parquet file, read in place.

    Attributes:
        path: local path or URI; every mapper's machine must be able to open it.
        row_groups: their indices, ascending.
        rows, skipped: how many rows of them to read, and how many come before those.
        columns: those to read; None: all.
        dictionary: string columns to decode as dictionaries: repeated keys are then hashed once a batch.
        schema, size: the columns to read and the file's bytes, as its footer was when the split was made.
    """

    path: str
    row_groups: tuple[int, ...]
    rows: int
    columns: tuple[str, ...] | None
    dictionary: tuple[str, ...]
    schema: pa.Schema
    size: int
    skipped: int = 0

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        with self._opened() as file:
            yield from self._left(file, batch_rows)

    def on_demand(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        with self._opened(ahead=False) as file:
            yield from self._left(file, batch_rows)

    def scan(self) -> Scan | None:
        """Of local files only: polars reaches object storage by settings of its own."""
        import polars as pl

        if "://" in self.path or not self.rows:
            return None
        with self._opened() as file:
            rows, skipped, groups = self._unskipped(file.metadata)
            dictionary = self._encoded(file.metadata) if max(rows) >= _NUMBERED else ()
        first, parts = sum(rows[: groups[0]]) + skipped, [rows[group] for group in groups]
        parts[0] -= skipped
        frame = pl.scan_parquet(self.path, glob=False).select(self.schema.names)
        return Scan(frame, self.schema, first, tuple(parts), dictionary)

    @contextmanager
    def _opened(self, *, ahead: bool = True) -> Iterator[pq.ParquetFile]:
        """The file, if it is still the one that was split; row groups are fetched whole if `ahead`, else only as far as
        rows are taken."""
        import pyarrow.parquet as pq

        with opened_again(self.path, self.size, "the file") as source:
            footer = pq.read_metadata(source)
            if (difference := self._difference(footer)) is not None:
                raise changed(self.path, difference)
            dictionary, buffer = self._encoded(footer), 0 if ahead else _BUFFER_BYTES
            file = pq.ParquetFile(
                source, metadata=footer, read_dictionary=dictionary, pre_buffer=ahead, buffer_size=buffer
            )
            try:
                yield file
            except _UNREADABLE as error:
                raise unreadable(self.path, self._unreadable_group(file), error) from None

    def _encoded(self, footer: pq.FileMetaData) -> list[str]:
        """The columns of `dictionary` that the file itself has as dictionaries. Where values are many, a writer gives
        dictionaries up, and to make one while reading takes several times as long as to read."""
        groups = [footer.row_group(group) for group in self.row_groups]
        chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
        plain = {one.path_in_schema for one in chunks if one.total_uncompressed_size > _INDEX * one.num_values + 2**20}
        return [name for name in self.dictionary if name not in plain]

    def _left(self, file: pq.ParquetFile, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows that are not skipped; row groups skipped as a whole are not read."""
        _, skipped, groups = self._unskipped(file.metadata)
        for batch in self._read(file, groups, batch_rows):
            if batch.num_rows > skipped:
                yield batch.slice(skipped)
            skipped = max(0, skipped - batch.num_rows)

    def _unskipped(self, footer: pq.FileMetaData) -> tuple[list[int], int, list[int]]:
        """The rows of the file's row groups, how many of the first unskipped group are skipped, and the groups that are
        not skipped as a whole."""
        rows = [footer.row_group(group).num_rows for group in range(self.row_groups[-1] + 1)]
        skipped, groups = self.skipped, list(self.row_groups)
        while groups and skipped >= rows[groups[0]]:
            skipped -= rows[groups.pop(0)]
        return rows, skipped, groups

    def _read(self, file: pq.ParquetFile, row_groups: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        columns = None if self.columns is None else list(self.columns)
        yield from file.iter_batches(batch_size=batch_rows, row_groups=list(row_groups), columns=columns)

    def _difference(self, footer: pq.FileMetaData) -> str | None:
        """How the file differs from the one that was split; None if its footer shows nothing."""
        known = [footer.row_group(group).num_rows for group in self.row_groups if group < footer.num_row_groups]
        if len(known) < len(self.row_groups) or sum(known) != self.skipped + self.rows:
            return "it has other row groups now"
        now = pa.schema([field for field in footer.schema.to_arrow_schema() if field.name in self.schema.names])
        found = first_difference(self.schema, now)
        return None if found is None else f"the column {found[0]!r} is {found[2]} now, and was {found[1]}"

    def _unreadable_group(self, file: pq.ParquetFile) -> str:
        """The row group that cannot be read, found by reading one at a time."""
        for group in self.row_groups:
            try:
                for _ in self._read(file, [group], 65_536):
                    pass
            except _UNREADABLE:
                return f"row group {group}"
        return "the file"


@dataclass(frozen=True)
class MemorySplit:
    """An Arrow table that travels with the split; its channel as in `channel_of`."""

    table: pa.Table
    channel: str = ""

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def after(self, rows: int) -> MemorySplit:
        return MemorySplit(_own(self.table.slice(rows)), self.channel)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=batch_rows)


@dataclass(frozen=True)
class NumberedSplit:
    """A split that knows its place in the input.

    Attributes:
        split: what is left of it.
        number: its number among the input's splits.
        skipped: rows that came before.
    """

    split: Split
    number: int
    skipped: int = 0

    @property
    def rows(self) -> int:
        return self.split.rows

    @property
    def file(self) -> str | None:
        """The file that it reads, if it is one."""
        return None if getattr(self.split, "more", ()) else getattr(self.split, "path", None)

    @property
    def channel(self) -> str:
        return channel_of(self.split)

    def after(self, rows: int) -> NumberedSplit:
        return NumberedSplit(self.split.after(rows), self.number, self.skipped + rows)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return self.split.batches(batch_rows)

    def scan(self) -> Scan | None:
        return scan_of(self.split)


@dataclass(frozen=True)
class FirstRows:
    """What was read of a split whose rest was given back.

    Attributes:
        split: the whole.
        rows: how many of its rows.
    """

    split: Split
    rows: int

    @property
    def channel(self) -> str:
        return channel_of(self.split)

    def after(self, rows: int) -> FirstRows:
        return FirstRows(self.split.after(rows), self.rows - rows)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return (batch for batch, _ in placed(self, batch_rows))


def placed(split: Split | FirstRows, batch_rows: int) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
    """A split's batches, with each row's place in the split, in which missing rows count."""
    if isinstance(split, FirstRows):
        for batch, places in placed(split.split, batch_rows):
            taken = bisect_left(places, split.rows)
            yield batch.slice(0, taken), places[:taken]
            if taken < batch.num_rows or split.rows - 1 in places[-1:]:
                return
        return
    found, read = gapped(split), 0
    for batch in (found or split).batches(batch_rows):
        rows = range(read, read + batch.num_rows)
        yield batch, rows if found is None else [row + found.gaps.before(row) for row in rows]
        read += batch.num_rows


def memory_splits(table: pa.Table, split_rows: int) -> list[MemorySplit]:
    """Cut a table into splits of `split_rows` rows, in order; the last may be shorter."""
    return [MemorySplit(_own(table.slice(start, split_rows))) for start in range(0, table.num_rows, split_rows)]


def _own(table: pa.Table) -> pa.Table:
    """A copy of its own rows: a slice would travel with the whole table that it was cut from."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def unpickled(packed: bytes, otherwise: str) -> Any:
    """Unpickle what a split carries. Raises TableError if this process cannot; `otherwise` begins the message."""
    try:
        return pickle.loads(packed)
    except Exception as error:
        raise TableError(f"{otherwise}: {error}") from None


def total_rows(splits: Iterable[Split]) -> int:
    """The number of rows in all splits."""
    return sum(split.rows for split in splits)
