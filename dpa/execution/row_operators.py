"""Stateless operators on rows, fused into the task before them: a run of record functions turns each row into a dict
once, however many they are. A batch function sees each batch as it comes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpa._util.inference import known, no_rows
from dpa.errors import DpaError, ExecutorError
from dpa.execution._held import Unheld, to_show
from dpa.execution.failures import USER_ERRORS, UserCodeError, at, bisected, described, executor_error, shown, tolerated
from dpa.execution.rows import Rows, batch_of, origin_of, records_of, require_record
from dpa.executors import Record, called
from dpa.operators import RowKind, RowOperator
from dpa.tolerance import Origin

if TYPE_CHECKING:
    from dpa.columns.query import Query

Clock = Callable[[], float]


@dataclass(frozen=True)
class Chunk:
    """Some rows, and how many rows of the task's input were read for them since the chunk before; `origin`: of which
    they were made."""

    batch: pa.RecordBatch
    read: int
    origin: Origin

    def part(self, start: int, stop: int, read: int) -> Chunk:
        origin = self.origin.part(start, stop - start, self.batch.num_rows)
        return Chunk(self.batch.slice(start, stop - start), read, origin)


@dataclass(frozen=True, kw_only=True)
class Traced(Origin):
    """The origin of rows that a query made of others. That of a single row is found by halving what the query is given,
    as it makes the rows of each row in order.

    Attributes:
        query, batch: what made them, of which rows.
        given: the origin of these.
        start, made: which of all that were made they are.
    """

    query: Query
    batch: pa.RecordBatch
    given: Origin
    start: int
    made: int

    @staticmethod
    def of(operator: RowOperator, batch: pa.RecordBatch, given: Origin, made: int) -> Origin:
        """`given`, but for a query."""
        query = operator.query
        if query is None:
            return given
        return Traced(given.first, given.rows, False, query=query, batch=batch, given=given, start=0, made=made)

    def part(self, start: int, rows: int, number: int) -> Origin:
        whole = Origin(self.first, self.rows, aligned=False)
        return replace(self, start=self.start + start, made=rows) if number == self.made else whole

    def found(self) -> Origin:
        place, low, high = self.start, 0, self.batch.num_rows
        while self.made == 1 and high - low > 1:
            middle = (low + high) // 2
            before = self.query(self.batch.slice(low, middle - low)).num_rows
            low, high, place = (low, middle, place) if place < before else (middle, high, place - before)
        return self.given.part(low, high - low, self.batch.num_rows).found()


@dataclass(frozen=True)
class Limits:
    """When an operator hands over rows: at most `rows` in a chunk, on which record functions may work for about
    `seconds` of `clock`."""

    rows: int
    seconds: float
    clock: Clock


def chunks_of(rows: Rows, most: int, origin: Origin | None = None, first: int = 0) -> Iterator[Chunk]:
    """`origin`: that of rows which are all of one batch, None: they are a split's, from row `first` on."""
    for batch in rows.batches(most):
        yield Chunk(batch, batch.num_rows, origin_of(rows, origin, first, batch.num_rows))
        first += batch.num_rows


def apply(operators: Sequence[RowOperator], chunks: Iterator[Chunk], limits: Limits) -> Iterator[Chunk]:
    """At least one chunk for those that read rows. Raises ExecutorError where a function raises or returns what it must
    not."""
    by_way = groupby(operators, lambda each: (each.on_batches, each.query is not None, each.tolerance is not None))
    for (on_batches, is_query, _), run in by_way:
        if is_query:
            chunks = _on_columns(tuple(run), chunks, limits.rows)
        elif on_batches:
            for operator in run:
                chunks = _on_batches(operator, chunks, limits.rows)
        else:
            for part in _up_to_declared(run):
                chunks = _on_records(part, chunks, limits)
    return chunks


def _up_to_declared(run: Iterable[RowOperator]) -> Iterator[tuple[RowOperator, ...]]:
    """In parts that end with an operator whose columns are declared, or with the run: the columns are checked there,
    and what follows gets the declared types."""
    part: list[RowOperator] = []
    for operator in run:
        part.append(operator)
        if operator.declared is not None:
            yield tuple(part)
            part = []
    if part:
        yield tuple(part)


@functools.lru_cache(maxsize=256)
def fused(queries: tuple[Query, ...]) -> Query:
    """One query of several in a row, the same one each time, as it knows what it has found out of its columns."""
    return functools.reduce(lambda first, then: first.then(then), queries)


def _on_columns(operators: tuple[RowOperator, ...], chunks: Iterator[Chunk], most: int) -> Iterator[Chunk]:
    """All as one query. Where it fails they run one by one, which shows the one that fails."""
    if len(operators) == 1:
        yield from _on_batches(operators[0], chunks, most)
        return
    query = fused(tuple(filter(None, (operator.query for operator in operators))))
    whole = replace(operators[-1], function=query, tolerance=None)
    waiting: list[Chunk] = []
    for each in chunks:
        waiting.append(each)
        while waiting:
            chunk = waiting.pop()
            rows = chunk.batch.num_rows
            if not rows:
                yield chunk
                continue
            try:
                found = call_on_batch(whole, chunk.batch)
                origin = Traced.of(whole, chunk.batch, chunk.origin, found.num_rows)
                made = iter([Chunk(part, 0, of_part) for part, of_part in _cut(found, most, origin)])
            except UserCodeError:
                if rows > 1 and operators[0].tolerance is not None:
                    # Polars computes no column that nobody takes, so it depends on the row alone whether it fails.
                    waiting += [chunk.part(rows // 2, rows, read=0), chunk.part(0, rows // 2, read=chunk.read)]
                    continue
                made = iter([replace(chunk, read=0)])
                for operator in operators:
                    made = _on_batches(operator, made, most)
            read = chunk.read
            for part in made:
                yield replace(part, read=read)
                read = 0


def _on_batches(operator: RowOperator, chunks: Iterator[Chunk], most: int) -> Iterator[Chunk]:
    for chunk in chunks:
        if not chunk.batch.num_rows:
            yield chunk
            continue
        read = chunk.read
        for made, origin in _on_batch(operator, chunk):
            for batch, of_part in _cut(made, most, origin):
                declared = operator.declared
                rows = batch if declared is None else declared.conformed(batch, _method(operator))
                yield Chunk(rows, read, of_part)
                read = 0
        if read:  # user code raised on each row
            yield Chunk(chunk.batch.slice(0, 0), read, chunk.origin)


def _on_batch(operator: RowOperator, chunk: Chunk) -> Iterator[tuple[pa.RecordBatch | pa.Table, Origin]]:
    """With its origin; in parts, where rows that the function fails on are left out."""
    if operator.tolerance is None:
        whole = call_on_batch(operator, chunk.batch)
        yield whole, Traced.of(operator, chunk.batch, chunk.origin, whole.num_rows)
        return
    rows = chunk.batch.num_rows

    def dies(row: int, error: UserCodeError) -> None:
        [record] = to_show(chunk.batch.slice(row, 1))
        origin = chunk.origin.part(row, 1, rows)
        on = f"record {shown(record)}"
        tolerated(operator.tolerance, operator, error.method, on, error.error, record, origin=origin)

    def work(start: int, stop: int) -> pa.RecordBatch | pa.Table:
        return call_on_batch(operator, chunk.batch.slice(start, stop - start))

    for start, stop, made in bisected(work, rows, dies):
        given = chunk.origin.part(start, stop - start, rows)
        yield made, Traced.of(operator, chunk.batch.slice(start, stop - start), given, made.num_rows)


@described(lambda local: at(local["operator"], local["operator"].kind.value, f"a batch of {local['rows']} rows"))
def call_on_batch(operator: RowOperator, batch: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
    """Raises ExecutorError where the function raises, or returns neither rows nor, as a filter, a boolean for each
    row."""
    rows, method = batch.num_rows, operator.kind.value
    try:
        found = operator.function(batch)
        if operator.kind is RowKind.FILTER and operator.query is None:
            mask = found if isinstance(found, pa.Array | pa.ChunkedArray) else pa.array(found, pa.bool_())
            return pa.Table.from_batches([batch]).filter(mask)
    except ExecutorError:
        raise
    except USER_ERRORS as error:
        raise executor_error(operator, method, f"a batch of {rows} rows", error) from None
    if not isinstance(found, pa.RecordBatch | pa.Table):
        wanted = "must return a pyarrow.RecordBatch or pyarrow.Table"
        raise ExecutorError(f"{_method(operator)} {wanted}, not {type(found).__name__}")
    if found.num_rows and not found.num_columns:
        raise ExecutorError(f"{_method(operator)} must return columns: its {found.num_rows} rows have none")
    return known(found)


def _cut(rows: pa.RecordBatch | pa.Table, most: int, origin: Origin) -> Iterator[tuple[pa.RecordBatch, Origin]]:
    table, first = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows, 0
    for batch in table.to_batches(most) if rows.num_rows else [no_rows(table.schema)]:
        if batch.num_rows or not rows.num_rows:
            yield batch, origin.part(first, batch.num_rows, rows.num_rows)
            first += batch.num_rows


def _on_records(operators: tuple[RowOperator, ...], chunks: Iterator[Chunk], limits: Limits) -> Iterator[Chunk]:
    if all(operator.kind is RowKind.FILTER for operator in operators):  # columns keep the types that they have
        for chunk in chunks:
            source = _Source(iter((chunk,)), operators[0])
            for rows, read in _runs(operators, source, limits, positions=True):
                yield Chunk(chunk.batch.take(pa.array(rows, pa.int64())), read, source.taken())
        return
    source = _Source(chunks, operators[0], all(operator.kind is not RowKind.FLAT_MAP for operator in operators))
    for made, read in _runs(operators, source, limits):
        try:
            rows = batch_of(made, operators[-1].declared, _method(operators[-1]))
            yield Chunk(rows, read, source.taken())
        except pa.ArrowException as error:
            last = next(operator for operator in reversed(operators) if operator.kind is not RowKind.FILTER)
            needs = "must make records whose columns are each of one Arrow type"
            raise ExecutorError(f"{_method(last)} {needs}: {error}") from None


def _method(operator: RowOperator) -> str:
    return called(operator, operator.kind.value)


@dataclass
class _Source:
    """The rows of chunks as dicts, one by one.

    Attributes:
        taker: what takes them, and fails on one that Python has none for.
        aligned: whether at most one row is made of each.
        row: position of the last row in its chunk.
        read: rows of the task's input that were read for all rows so far; in parts, where one gave several rows.
        ended: whether there are no more rows.
    """

    chunks: Iterator[Chunk]
    taker: RowOperator
    aligned: bool = True
    row: int = -1
    read: int = 0
    ended: bool = False
    _chunk: Chunk | None = None
    _first: int | None = None
    _records: Iterator[Record] = field(init=False)

    def __post_init__(self) -> None:
        self._records = self._all()

    def until(self, due: Callable[[], bool]) -> Iterator[Record]:
        """The next rows. Ends when `due` says yes, which is asked once all that a row makes is taken."""
        for record in self._records:
            yield record
            if due():
                return
        self.ended = True

    @property
    def origin(self) -> Origin:
        assert self._chunk is not None
        return self._chunk.origin.part(self.row, 1, self._chunk.batch.num_rows)

    def taken(self) -> Origin:
        """The origin of all rows since the call before."""
        if self._chunk is None or self._first is None:
            return Origin(0, 0)
        last = self.origin
        found = Origin(self._first, last.first + last.rows - self._first, self.aligned and last.rows == 1)
        self._first = last.first
        return found

    def _all(self) -> Iterator[Record]:
        for chunk in self.chunks:
            before, self._chunk = self.read, chunk
            if self._first is None:
                self._first = chunk.origin.first
            for self.row, record in enumerate(records_of(chunk.batch)):
                self.read = before + chunk.read * (self.row + 1) // chunk.batch.num_rows
                if isinstance(record, Unheld):
                    taker, on = self.taker, f"record {shown(record.value)}"
                    method, origin = taker.kind.value, self.origin
                    tolerated(taker.tolerance, taker, method, on, record.error, record.value, origin=origin)
                else:
                    yield record
            self.read = before + chunk.read


def _runs(
    operators: tuple[RowOperator, ...], source: _Source, limits: Limits, *, positions: bool = False
) -> Iterator[tuple[list[Any], int]]:
    """The records after all operators, or the positions of the rows they were made of, in lists within the limits; and
    the rows read for each list."""
    made: list[Any] = []
    counted, until = 0, 0.0

    def due() -> bool:
        return bool(made) and limits.clock() > until

    while not source.ended:
        until = limits.clock() + limits.seconds
        records = source.until(due)
        for operator in operators:
            tolerates = operator.tolerance is not None
            records = _call_tolerating(operator, records, source) if tolerates else _call(operator, records)
        for record in records:
            made.append(source.row if positions else record)
            if len(made) == limits.rows:
                yield made, source.read - counted
                made, counted, until = [], source.read, limits.clock() + limits.seconds
        if made or (source.ended and source.read > counted):
            yield made, source.read - counted
            made, counted = [], source.read


@described(lambda local: at(local["operator"], local["operator"].kind.value, f"record {shown(local['record'])}"))
def _call(operator: RowOperator, records: Iterator[Record]) -> Iterator[Record]:
    function, kind, record = operator.function, operator.kind, None
    try:
        if kind is RowKind.FILTER:
            for record in records:
                if function(record):
                    yield record
        elif kind is RowKind.MAP:
            for record in records:
                yield require_record(function(record))
        else:
            for record in records:
                yield from map(require_record, function(record))
    except DpaError:
        raise
    except USER_ERRORS as error:
        raise executor_error(operator, kind.value, f"record {shown(record)}", error) from None


@described(lambda local: at(local["operator"], local["operator"].kind.value, f"record {shown(local['record'])}"))
def _call_tolerating(operator: RowOperator, records: Iterator[Record], source: _Source) -> Iterator[Record]:
    """The same, without the records on which the function raises."""
    function, kind = operator.function, operator.kind
    keeps, gives_many = kind is RowKind.FILTER, kind is RowKind.FLAT_MAP
    for record in records:
        try:
            found = function(record)
            if gives_many:
                found = list(map(require_record, found))
            else:
                found = require_record(found) if not keeps else record if found else None
        except USER_ERRORS as error:
            on = f"record {shown(record)}"
            tolerated(operator.tolerance, operator, kind.value, on, error, record, origin=source.origin)
            continue
        if gives_many:
            yield from found
        elif found is not None:
            yield found


def schema_after(operators: Sequence[RowOperator], schema: pa.Schema | None) -> pa.Schema | None:
    """None where a record function makes rows, whose columns are unknown before it is called. Raises ExecutorError
    where a batch function fails on no rows."""
    for operator in operators:
        if schema is None or (operator.kind is not RowKind.FILTER and not operator.on_batches):
            return None
        if operator.kind is not RowKind.FILTER:
            schema = call_on_batch(operator, no_rows(schema)).schema
    return schema
