"""Rows on their way between operators: as Arrow batches, and as dicts for functions of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from dpa._util.declared import Declared
from dpa._util.inference import array_of, as_type, known, no_rows, one_type
from dpa._util.outages import HERE, may_pass
from dpa.errors import DpaError, ExecutorError
from dpa.execution._held import Unheld, objects_of
from dpa.execution.failures import described
from dpa.executors import Record
from dpa.sources.event_time import SourceTime
from dpa.sources.splits import FirstRows, Scan, Split, scan_of
from dpa.tolerance import Origin

if TYPE_CHECKING:
    import polars as pl

_AT_ONCE = 4_096  # rows that are turned into Python objects at a time
_LOOKS = 64  # most records between two looks at the clock, and the part of the time for which these may take

_TOGETHER = 65_536
"""Rows up to which small parts of a scan are put together to be read by batches: for each piece the file is opened."""


class Pace:
    """When functions of a record hand over what they have made: after `seconds` of `clock`, at which they look the less
    often the faster they are.

    Attributes:
        records: how many to take until the next look.
    """

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock, self._seconds, self.records = clock, seconds, 1
        self.begin()

    def begin(self) -> None:
        self._began = self._looked = self._clock()

    def is_over(self) -> bool:
        """Whether to hand over now; called after each `records` records."""
        before, self._looked = self._looked, self._clock()
        fast = self._looked - before < self._seconds / _LOOKS
        self.records = min(2 * self.records, _LOOKS) if fast else 1
        return self._looked - self._began > self._seconds


class Rows(Protocol):
    """What a task reads: a split, or rows in memory."""

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, at most `batch_rows` of them at a time."""
        ...


@dataclass(frozen=True)
class OneBatch:
    """The rows of one batch."""

    batch: pa.RecordBatch

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, max(self.batch.num_rows, 1), batch_rows):
            yield self.batch.slice(start, batch_rows)


def origin_of(rows: Rows, whole: Origin | None, start: int, number: int) -> Origin:
    """Of which rows of a split some of `rows` were made; `whole`: of all, which are one batch; None: they are the
    split's own."""
    if whole is None:
        return Origin(start, number)
    assert isinstance(rows, OneBatch)
    return whole.part(start, number, rows.batch.num_rows)


@dataclass(frozen=True)
class ScannedRows:
    """Rows of a split that polars can read.

    Attributes:
        frame: is read when a query of it is collected; None: they are to be read by batches.
        schema: its columns.
        dictionary: those that a reader has as dictionaries.
        split: gives the same rows.
        origin: which rows of the split they are.
        batches: gives them by batches, as `Portions.batches` does.
    """

    frame: pl.LazyFrame | None
    schema: pa.Schema
    dictionary: Sequence[str]
    split: FirstRows
    origin: Origin
    batches: Callable[[int], Iterator[pa.RecordBatch]]


class Portions:
    """Rows that are handed out as many at a time as `at_once` says, which may change from one portion to the next.

    Attributes:
        read_at: when those that are handed out are taken to be read, in microseconds since 1970.
        greatest: the greatest time of those handed out, in microseconds; None: there is none.
    """

    def __init__(self, rows: Rows, time: SourceTime | None = None) -> None:
        self.at_once = 1
        self.read_at = 0
        self.greatest: int | None = None
        self._time = time
        self._rows = rows
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """At most `batch_rows` and `at_once` rows at a time; an empty batch as it is."""
        return self._portions(self._rows, batch_rows)

    def scanned(self, wanted: Callable[[int, int], int]) -> Iterator[ScannedRows] | None:
        """The same rows, if polars would read the same ones and their time need not be noted; else None.

        Args:
            wanted: of `at_once` and the number of rows that are left, returns how many a query is to read next; 0:
                some are to be read by batches.
        """
        try:
            if self._time is not None or not isinstance(self._rows, Split) or (scan := scan_of(self._rows)) is None:
                return None
            from dpa.columns.arrow import held

            is_same = scan.frame.collect_schema() == held(scan.schema)
        except Exception:  # what is wrong is named where the rows are read by batches
            return None
        return self._scanned(self._rows, scan, wanted) if is_same else None

    def _scanned(self, split: Split, scan: Scan, wanted: Callable[[int, int], int]) -> Iterator[ScannedRows]:
        start = scan.first
        while scan.parts and not self._is_closed:
            most, first = wanted(self.at_once, sum(scan.parts)), scan.first
            rows, scan = scan.begun(most or max(scan.parts[0], _TOGETHER))
            origin = Origin(first - start, rows)
            frame = scan.frame.slice(first, rows) if most else None
            these = FirstRows(split.after(origin.first), rows)
            yield ScannedRows(frame, scan.schema, scan.dictionary, these, origin, partial(self._portions, these))

    @described(lambda local: "its input, which it reads")
    def _portions(self, rows: Rows, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for batch in map(known, _read(rows, batch_rows)):
            start = 0
            while not self._is_closed and (start == 0 or start < batch.num_rows):
                portion = self._timed(batch.slice(start, self.at_once))
                yield portion
                start += max(portion.num_rows, 1)
            if self._is_closed:
                return

    def _timed(self, portion: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, with the time column if it is to be added. Notes the greatest time."""
        if self._time is None:
            return portion
        if self._time.is_added:
            portion = self._time.stamped(portion, self.read_at)
        found = self._time.greatest(portion) if portion.num_rows else None
        if found is not None:
            self.greatest = found if self.greatest is None else max(found, self.greatest)
        return portion


def _read(rows: Rows, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """After an outage of its place, reading continues at the row where it stopped."""
    outage = HERE.outage()
    while True:
        given = 0
        try:
            for batch in rows.batches(batch_rows):
                outage.ends()
                given += batch.num_rows
                yield batch
        except DpaError as error:
            after = getattr(rows, "after", None)
            if after is None or not may_pass(error, full=False) or not outage.lasts(error):
                raise
            rows = after(given)
        else:
            return


def records_of(batch: pa.RecordBatch) -> Iterator[Record | Unheld]:
    """The rows of a batch as dicts, as `objects_of` gives them."""
    parts = (objects_of(batch.slice(start, _AT_ONCE)) for start in range(0, batch.num_rows, _AT_ONCE))
    return chain.from_iterable(map(list.__iter__, parts))


def require_record(made: Record) -> Record:
    """The same; TypeError for no dict, and for a dict without columns: rows without columns could not be counted."""
    if not isinstance(made, Mapping):
        raise TypeError(f"a record is a dict by column name, not {made!r}")
    if not made:
        raise TypeError("a record needs a column at least, and {} has none")
    return made


def batch_of(records: Sequence[Mapping[str, Any]], declared: Declared | None = None, giver: str = "") -> pa.RecordBatch:
    """Rows that the method `giver` gave, null where one lacks a column that another has or that is declared.

    Raises:
        pa.ArrowException, OverflowError, TypeError, UnicodeError: the values of a column are not of one Arrow type; the
            message begins with the column.
        ExecutorError: they have other columns than those declared, or a value would change in the declared type.
    """
    columns, names = {}, () if declared is None else declared.schema.names
    for name in dict.fromkeys((*names, *(name for record in records for name in record))):
        try:
            columns[str(name)] = array_of([record.get(name) for record in records])
        except (pa.ArrowException, OverflowError, TypeError, UnicodeError) as error:
            raise pa.ArrowInvalid(f"column {name!r}: {error}") from None
    batch = pa.record_batch(columns)
    return batch if declared is None else declared.conformed(batch, giver)


def concatenated(parts: Sequence[tuple[pa.RecordBatch | None, int]]) -> dict[str, pa.ChunkedArray]:
    """The columns of batches, one below the other: null where a batch lacks one; None is a batch without columns.
    `parts` have the number of rows. Raises pa.ArrowInvalid, with the column, where types cannot be promoted to one."""
    names = dict.fromkeys(name for batch, _ in parts if batch is not None for name in batch.schema.names)
    columns = {}
    for name in names:
        found = [
            (None if batch is None or name not in batch.schema.names else batch.column(name)) for batch, _ in parts
        ]
        try:
            kinds = {column.type for column in found if column is not None}
            kind = kinds.pop() if len(kinds) == 1 else one_type(map(_decoded, kinds))
            chunks = [
                pa.nulls(rows, kind) if column is None else as_type(column, kind)
                for column, (_, rows) in zip(found, parts, strict=True)
            ]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise pa.ArrowInvalid(f"column {name!r}: {error}") from None
        columns[name] = pa.chunked_array(chunks, kind)
    return columns


def one_batch(parts: Sequence[tuple[pa.RecordBatch | None, int]]) -> pa.RecordBatch:
    """Raises as `concatenated` and `whole_of`."""
    return whole_of(pa.table(concatenated(parts)))


def whole_of(table: pa.Table) -> pa.RecordBatch:
    """As one batch. Raises ExecutorError where the rows are too many for one: Arrow has up to 2 GiB in an array of
    text."""
    batches, reason = None, "it is too long"
    try:
        batches = table.combine_chunks().to_batches()
    except pa.ArrowInvalid as error:  # of a list or a struct with so much, or a dictionary that has null
        reason = str(error)
    if batches is not None and len(batches) <= 1:
        return batches[0] if batches else no_rows(table.schema)
    large = max(table.column_names, key=lambda name: table[name].nbytes)
    kind, size = table.schema.field(large).type, table[large].nbytes / 2**30
    if size < 1:
        raise ExecutorError(f"the column {large!r}, {kind}, cannot be in one piece: {reason}")
    remedy = "use more tasks for the step, or a type such as `large_string`"
    raise ExecutorError(f"the column {large!r}, {kind}, has {size:.1f} GiB in one task, and may have 2: {remedy}")


def plain(table: pa.Table) -> pa.Table:
    """Without dictionaries, which only a reader makes, and in types that Spark knows."""
    names = table.column_names
    return pa.table({name: as_type(table[name], _decoded(table[name].type)) for name in names})


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
