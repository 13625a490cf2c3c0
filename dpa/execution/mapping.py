"""A mapper task's user code: input batches in, blocks of records out, folded by a combiner if the job has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dpa._util.inference import array_of, known, no_rows
from dpa._util.words import suggestion
from dpa.errors import ConfigError, DpaError, ExecutorError, KeyTypeError
from dpa.execution._held import Unheld, to_show, value_of
from dpa.execution.arrivals import Arrived, Input
from dpa.execution.block import Block, Values, object_array
from dpa.execution.combining import Combining
from dpa.execution.failures import USER_ERRORS, UserCodeError, at, bisected, described, executor_error, shown, tolerated
from dpa.execution.keys import column_of, key_column
from dpa.execution.receivers.base import Receiver
from dpa.execution.rows import Pace, Rows, origin_of, records_of
from dpa.execution.windowing import joined_block, session_block
from dpa.executors import AnyMapper, BatchMapper, FunctionMapper, Mapper, name_of
from dpa.operators import RowOperator
from dpa.routing.keys import KeyName, key_type, names_of
from dpa.tolerance import Origin, Tolerance

Made: TypeAlias = "Iterator[tuple[Block | None, int]]"
"""Blocks of records, at least one each, or None, and the rows read for each since the one before."""

_ROWS_AT_ONCE = 4_096  # input rows that a per-record mapper asks for at a time


@dataclass(frozen=True)
class Emitted:
    """What a task that reads rows emits in one step.

    Attributes:
        blocks: the records for each edge, with the position of the edge in `Emission.edges`; an edge may be missing,
            and comes once at most.
        read: input rows read since the step before.
        mapped: records made of them for all edges together, before any combiner.
    """

    blocks: tuple[tuple[int, Block], ...]
    read: int
    mapped: int


@dataclass(frozen=True)
class MapTask:
    """How rows become the records of an edge.

    Attributes:
        mapper: the executor; None takes `key` and `values` from the input as they are.
        key: name of the key column, or the names of the columns of a composite key; of no column: all records have the
            one key null.
        values: without a mapper, the input columns that are the value; all but the key if None.
        receiver: what will take the records: decides whether values travel as columns, and combines them.
        combine: whether to fold equal keys of a block, or what decides that from block to block.
        seed: of the hash of keys.
        batch_records: most records in a block.
        step_seconds: about how long functions of a record may work before what there is is handed over.
        key_function: without a mapper, what gives the key of each row in place of the columns that `key` names.
        side: of a join, the side that the records are of: 0 is the left one, 1 the right one.
        inputs: the inputs that the rows came from, where their columns must go with others' and are not known before.
        tolerance: how errors of the mapper or the key function are tolerated; None: they fail the job.
    """

    mapper: AnyMapper | None
    key: KeyName
    values: tuple[str, ...] | None
    receiver: Receiver
    combine: bool | Combining
    seed: int
    batch_records: int
    step_seconds: float
    key_function: RowOperator | None = None
    side: int = 0
    inputs: tuple[Input, ...] = ()
    tolerance: Tolerance | None = None

    @property
    def edges(self) -> tuple[MapTask, ...]:
        return (self,)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that it takes of rows, if only the key and the values; none where it does not say."""
        if self.mapper is not None or self.key_function is not None or self.inputs or self.values is None:
            return ()
        return (*dict.fromkeys((*names_of(self.key), *self.values)),)

    def steps(self, rows: Rows, clock: Callable[[], float], origin: Origin | None = None) -> Iterator[Emitted]:
        """Map rows, such as a split, step by step; `clock` gives seconds. The last step may have no block. `origin`: of
        which rows of a split they were made; None: they are those rows. Raises ExecutorError if the mapper raised, or
        did not return records; or, without one, if a column is missing."""
        if isinstance(self.mapper, Mapper):
            made = self._map_records(self.mapper, rows, clock, origin)
        elif self.key_function is not None:
            made = self._map_keyed(self.key_function, rows, clock, origin)
        else:
            made = self._map_batches(rows, origin)
        for block, read in made:
            sent = () if block is None else ((0, self.sent(block)),)
            yield Emitted(sent, read, 0 if block is None else block.rows)

    def sent(self, block: Block) -> Block:
        """Folded if there is a combiner, with its size, and the columns of its rows where these are noted."""
        sent = block
        if self.combines(block.rows):
            whole = joined_block(block) if self.receiver.takes_apart else block
            codes = np.arange(len(whole.keys), dtype=np.int32)
            try:
                states = self.receiver.combined(whole)
            except UserCodeError:  # who receives the records as they are finds those that are to blame
                if self.receiver.tolerance is None:
                    raise
            else:
                sent = Block(whole.keys, whole.hashes, codes, states, whole.counts(), combined=True)
        self.note(sent)
        if self.inputs:
            sent = replace(sent, arrived=self._arrived(block))
        return sent.weighed()

    def combines(self, rows: int) -> bool:
        return self.combine if isinstance(self.combine, bool) else self.combine.pays(rows)

    @property
    def has_folded(self) -> bool:
        return self.combine if isinstance(self.combine, bool) else self.combine.has_paid

    def note(self, sent: Block) -> None:
        if not isinstance(self.combine, bool) and sent.combined:
            self.combine.folded(int(sent.mapped().sum()), sent.rows)
        elif not isinstance(self.combine, bool):
            self.combine.sent(sent.rows)

    def _arrived(self, block: Block) -> Arrived:
        """The columns of the rows of a block, by the inputs that they came from."""
        types = list(block.keys.type) if pa.types.is_struct(block.keys.type) else [block.keys.type]
        names = names_of(self.key) if self.key_function is None else ()
        key = pa.schema([(name, getattr(kind, "type", kind)) for name, kind in zip(names, types, strict=False)])
        whole = pa.schema([*key, *(field for field in block.columns.schema if field.name not in names)])
        return {given: key if given.is_side else whole for given in self.inputs}

    def _batches(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """A column that this edge names is null where rows of a union lack it."""
        key = names_of(self.key) if self.key_function is None else ()
        names = (*key, *(self.values or ())) if any(given.fills for given in self.inputs) else ()
        if not names:
            yield from rows.batches(self.batch_records)
            return
        for batch in rows.batches(self.batch_records):
            missing = {name: pa.nulls(batch.num_rows) for name in names if name not in batch.schema.names}
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield pa.record_batch({**columns, **missing}) if missing else batch

    def empty_block(self, schema: pa.Schema) -> Block:
        """A block without records, of the types that rows with these columns give. A type is null where it is unknown:
        of what functions of a record return, and of a batch mapper that fails without rows."""
        values: Values = pa.record_batch({name: pa.nulls(0) for name in self.receiver.reads})
        try:
            if self.key_function is not None:
                values = self._selected(no_rows(schema), self._window)
            elif not isinstance(self.mapper, Mapper):
                records = self._records_of(no_rows(schema))
                return self.block_of(no_rows(records.schema))
        except (DpaError, *USER_ERRORS):
            pass
        keys = column_of([], self.key) if names_of(self.key) else pa.nulls(0)
        return Block.of(keys, values, self.seed, self.side)

    @described(lambda local: at(local["mapper"], "map", f"record {shown(local['record'])}"))
    def _map_records(self, mapper: Mapper, rows: Rows, clock: Callable[[], float], origin: Origin | None) -> Made:
        keys: list[Any] = []
        values: list[Any] = []
        whole = self.tolerance is not None  # a record's pairs are in one block, as they may have to be taken back
        make = mapper.function if type(mapper) is FunctionMapper else mapper.map  # one call less for each record
        most, read, told, kept = self.batch_records, 0, 0, 0
        pace = Pace(clock, self.step_seconds)
        for batch in rows.batches(_ROWS_AT_ONCE):
            records = records_of(batch)
            while some := [*islice(records, min(pace.records, most - len(keys)))]:
                for record in some:
                    read += 1
                    kept = len(keys)
                    try:
                        if isinstance(record, Unheld):
                            raise record.error
                        for pair in make(record):
                            if isinstance(pair, str):
                                raise TypeError(f"yield (key, value) pairs, not strings such as {pair!r}")
                            key, value = pair
                            keys.append(key)
                            values.append(value)
                            if len(keys) == most and not whole:
                                yield self._block(mapper, keys, values), read
                                told += read
                                keys, values, read = [], [], 0
                                pace.begin()
                    except DpaError:
                        raise
                    except USER_ERRORS as error:
                        bad, where = value_of(record), origin_of(rows, origin, told + read - 1, 1)
                        tolerated(self.tolerance, mapper, "map", f"record {shown(bad)}", error, bad, origin=where)
                        del keys[kept:], values[kept:]
                if keys and (pace.is_over() or len(keys) >= most):
                    yield self._block(mapper, keys, values), read
                    told += read
                    keys, values, read = [], [], 0
                    pace.begin()
        yield self._block(mapper, keys, values) if keys else None, read

    @described(lambda local: at(local["function"], "key_by", f"record {shown(local['record'])}"))
    def _map_keyed(self, function: RowOperator, rows: Rows, clock: Callable[[], float], origin: Origin | None) -> Made:
        before, pace = 0, Pace(clock, self.step_seconds)
        for batch in self._batches(rows):
            keys: list[Any] = []
            start, records = 0, records_of(batch)
            while some := [*islice(records, pace.records)]:
                for record in some:
                    try:
                        if isinstance(record, Unheld):
                            raise record.error
                        keys.append(function.function(record))
                    except USER_ERRORS as error:
                        bad, where = value_of(record), origin_of(rows, origin, before + start + len(keys), 1)
                        tolerated(self.tolerance, function, "key_by", f"record {shown(bad)}", error, bad, origin=where)
                        keys.append(_DEAD)
                if pace.is_over():
                    yield self._keyed(function, keys, batch.slice(start, len(keys))), len(keys)
                    keys, start = [], start + len(keys)
                    pace.begin()
            if keys:
                yield self._keyed(function, keys, batch.slice(start, len(keys))), len(keys)
            before += batch.num_rows

    def _keyed(self, function: RowOperator, keys: list[Any], batch: pa.RecordBatch) -> Block | None:
        if self.tolerance is not None:
            alive = [row for row, key in enumerate(keys) if key is not _DEAD]
            if not alive:
                return None
            if len(alive) < len(keys):
                keys, batch = [keys[row] for row in alive], batch.take(pa.array(alive))
        column = self._key_column(function, "key_by", keys)
        if self._window:
            _require(self._window, "in windows, which they have by", batch)
            parts = [column, *(batch.column(name) for name in self._window)]
            column = pa.StructArray.from_arrays(parts, names=list(self.key))
        return self._made(column, self._selected(batch, self._window))

    @property
    def _window(self) -> tuple[str, ...]:
        """The last columns of a key in windows."""
        return names_of(self.key)[-2:] if self.receiver.windowing else ()

    def _made(self, column: pa.Array, values: Values) -> Block:
        windowing = self.receiver.windowing
        if windowing is not None and windowing.windows.is_session:
            windowing.require_windows(column)
            return session_block(column, values, self.seed, join=not self.receiver.takes_apart)
        may_repeat = windowing is None and self.receiver.has_partials and not self.combines(len(column))
        block = Block.of(column, values, self.seed, self.side, may_repeat=may_repeat)
        if windowing is not None:
            windowing.require_windows(block.keys)
        return block

    def _selected(self, rows: pa.RecordBatch, key: tuple[str, ...] = ()) -> pa.RecordBatch | None:
        reads = self.receiver.reads if self.receiver.takes_objects else ()
        if not reads and (self.values is None or self.mapper is not None):
            names = [name for name in rows.schema.names if name not in key]
        else:
            names = list(reads or self.values or ())
            _require(names, "whose value is", rows)
        if reads:  # one column of structs: a value is then a dict, however many columns it has
            return pa.record_batch({"value": rows.select(names).to_struct_array()})
        return rows.select(names) if names else None

    def _map_batches(self, rows: Rows, origin: Origin | None) -> Made:
        before = 0
        for batch in self._batches(rows):
            found = self._all_records_of(batch, rows, origin, before)
            parts = (part for records in found for part in records.to_batches(self.batch_records))
            blocks = [self.block_of(part) for part in parts if part.num_rows]
            before += batch.num_rows
            if not blocks:
                yield None, batch.num_rows
            for index, block in enumerate(blocks):
                yield block, batch.num_rows if index == 0 else 0

    def _all_records_of(self, batch: pa.RecordBatch, rows: Rows, origin: Origin | None, before: int) -> list[pa.Table]:
        """In parts between the rows that the mapper fails on, which are left out."""
        if self.tolerance is None or self.mapper is None or not batch.num_rows:
            return [self._records_of(batch)]

        def dies(row: int, error: UserCodeError) -> None:
            [record] = to_show(batch.slice(row, 1))
            on, where = f"record {shown(record)}", origin_of(rows, origin, before + row, 1)
            tolerated(self.tolerance, self.mapper, "map_batch", on, error.error, record, origin=where)

        def work(start: int, stop: int) -> pa.Table:
            return self._records_of(batch.slice(start, stop - start))

        return [records for _, _, records in bisected(work, batch.num_rows, dies)]

    @described(lambda local: at(local["self"].mapper, "map_batch", f"a batch of {local['batch'].num_rows} rows"))
    def _records_of(self, batch: pa.RecordBatch) -> pa.Table:
        if self.mapper is None:
            return pa.Table.from_batches([batch])
        assert isinstance(self.mapper, BatchMapper)
        try:
            records = self.mapper.map_batch(batch)
        except USER_ERRORS as error:
            raise executor_error(self.mapper, "map_batch", f"a batch of {batch.num_rows} rows", error) from None
        if isinstance(records, pa.RecordBatch):
            records = pa.Table.from_batches([records])
        if not isinstance(records, pa.Table):
            wanted = "must return a pyarrow.RecordBatch or pyarrow.Table"
            raise ExecutorError(f"{name_of(self.mapper)}.map_batch {wanted}, not {type(records).__name__}")
        records = known(records)
        for name in names_of(self.key):
            if name not in records.column_names:
                has = f"its columns are {', '.join(records.column_names)}"
                raise ExecutorError(f"{name_of(self.mapper)}.map_batch returned no key column {name!r}; {has}")
        return records

    def block_of(self, records: pa.RecordBatch) -> Block:
        key = names_of(self.key)
        if self.mapper is None:
            _require(key, "that are keyed by", records)
        return self._made(key_column(records, self.key), self._selected(records, key))

    def _block(self, mapper: Mapper, keys: list[Any], values: list[Any]) -> Block:
        return Block.of(self._key_column(mapper, "map", keys), self._values(mapper, values), self.seed, self.side)

    def _key_column(self, maker: Mapper | RowOperator, method: str, keys: list[Any]) -> pa.Array:
        try:
            return column_of(keys, names_of(self.key)[0] if self._window else self.key)
        except KeyTypeError as error:
            raise KeyTypeError(f"{name_of(maker)}.{method} yields keys that do not do: {error}") from None

    def _values(self, mapper: Mapper, values: list[Any]) -> Values:
        """Python objects as they are, or columns where the receiver works on columns."""
        if self.receiver.takes_objects:
            return object_array(values)
        try:
            if any(isinstance(value, dict) for value in values):
                names = dict.fromkeys(name for value in values for name in value)
                return pa.record_batch({name: array_of([value.get(name) for value in values]) for name in names})
            return pa.record_batch({"value": array_of(values)})
        except (pa.ArrowException, AttributeError, TypeError, UnicodeError, OverflowError) as error:
            name = name_of(self.receiver.executor) if self.receiver.keeps_states else "the next stage"
            needs = f"{name} works on columns, so values must be of one Arrow type, or flat dicts"
            raise ExecutorError(f"{name_of(mapper)}.map: {needs}: {error}") from None


_DEAD = object()  # stands for the key of a record that is left out


def check_columns(task: MapTask, schema: pa.Schema, rows: str = "the input") -> None:
    """Check, before anything runs, the columns that the task takes as they are; `rows` names what has them. Raises
    ConfigError with the key `key`, `value` or `reducer`; the message of the last continues the executor's name."""
    if task.mapper is not None:
        return
    present = list(schema.names)
    key = () if task.key_function is not None else names_of(task.key)
    for name in (*key, *(task.values or ())):
        if name not in present:
            section = "key" if name in key else "value"
            hint = suggestion(name, present, before="; ")
            if not hint and present[:1] == ["_c0"] and rows == "the input":  # Spark's names of columns without any
                hint = "; if the first line of the CSV names them, give the input `options: {header: true}`"
            raise ConfigError(f"{rows} has no column {name!r}; it has {', '.join(present)}{hint}", section)
    for name in key:
        try:
            key_type(schema.types[present.index(name)])
        except KeyTypeError as error:
            raise ConfigError(f"the column {name!r}: {error}", "key") from None
    values = [name for name in present if name not in key] if task.values is None else task.values
    try:
        task.receiver.check_values(pa.schema([schema.field(present.index(name)) for name in values]))
    except ConfigError as error:
        raise ConfigError(error.message, "reducer") from None


def _require(names: Iterable[str], role: str, rows: pa.RecordBatch) -> None:
    present = rows.schema.names
    for name in names:
        if name not in present:
            has = f"they have {', '.join(present)}" if present else "they have no columns at all"
            raise ExecutorError(f"the rows {role} {name!r} have no such column; {has}")
