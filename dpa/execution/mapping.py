"""A mapper task's user code: input batches in, blocks of records out, folded by a combiner if the job has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpa.errors import ConfigError, DpaError, ExecutorError, KeyTypeError, TableError
from dpa.execution.block import Block, Values
from dpa.execution.calls import columns, fold, zero
from dpa.execution.failures import USER_ERRORS, at, executor_error, shown
from dpa.execution.inference import array_of
from dpa.execution.keys import column_of, key_column
from dpa.execution.running import described
from dpa.executors import AnyMapper, AnyReducer, BatchMapper, BatchReducer, Groups, Mapper, Reducer, name_of
from dpa.routing.keys import KeyName, key_type, names_of, to_python
from dpa.splits import MemorySplit, ParquetSplit, Split

_ROWS_AT_ONCE = 4_096
"""Input rows that a per-record mapper turns into Python objects at a time."""


@dataclass(frozen=True)
class Mapped:
    """One step of a mapper: a block, or None at the end of the split, and what it was made of.

    Attributes:
        block: the records, at least one, or None.
        read: input rows read since the last step.
        mapped: records made of them, before any combiner.
    """

    block: Block | None
    read: int
    mapped: int


@dataclass(frozen=True)
class MapTask:
    """How a job maps.

    Attributes:
        mapper: the executor; None takes `key` and `values` from the input as they are.
        key: name of the key column, or the names of the columns of a composite key.
        values: without a mapper, the input columns that are the value; all but the key if None.
        reducer: what will reduce the records: tells whether values travel as columns, and combines them.
        combine: whether to fold equal keys of a block.
        seed: of the hash of keys.
        batch_records: most records in a block.
        step_seconds: about how long a per-record mapper may work before it hands over what it has.
    """

    mapper: AnyMapper | None
    key: KeyName
    values: tuple[str, ...] | None
    reducer: AnyReducer
    combine: bool
    seed: int
    batch_records: int
    step_seconds: float

    def blocks(self, split: Split, clock: Callable[[], float]) -> Iterator[Mapped]:
        """Map a split step by step; `clock` gives seconds.

        Raises:
            ExecutorError: the mapper raised or returned something else than records.
        """
        if isinstance(self.mapper, Mapper):
            steps = self._map_records(self.mapper, split, clock)
        else:
            steps = self._map_batches(split)
        for step in steps:
            yield self._combined(step) if self.combine else step

    def empty_block(self, schema: pa.Schema) -> Block | None:
        """A block without records, of the types that an input with these columns gives; None under a per-record
        mapper, which tells no types before it has yielded something.

        Raises:
            ExecutorError: the batch mapper raised or returned something else than records.
        """
        if isinstance(self.mapper, Mapper):
            return None
        records = self._records_of(pa.RecordBatch.from_pylist([], schema))
        return self._columns(pa.RecordBatch.from_pylist([], records.schema))

    @described(lambda local: at(local["mapper"], "map", f"record {shown(local['record'])}"))
    def _map_records(self, mapper: Mapper, split: Split, clock: Callable[[], float]) -> Iterator[Mapped]:
        keys: list[Any] = []
        values: list[Any] = []
        read, until = 0, clock() + self.step_seconds
        for batch in split.batches(_ROWS_AT_ONCE):
            for record in _rows(batch):
                read += 1
                try:
                    for pair in mapper.map(record):
                        if isinstance(pair, str):
                            raise TypeError(f"yield (key, value) pairs, not strings such as {pair!r}")
                        key, value = pair
                        keys.append(key)
                        values.append(value)
                        if len(keys) == self.batch_records:
                            yield Mapped(self._block(mapper, keys, values), read, len(keys))
                            keys, values, read, until = [], [], 0, clock() + self.step_seconds
                except DpaError:
                    raise
                except USER_ERRORS as error:
                    raise executor_error(mapper, "map", f"record {shown(record)}", error) from None
                if keys and clock() > until:
                    yield Mapped(self._block(mapper, keys, values), read, len(keys))
                    keys, values, read, until = [], [], 0, clock() + self.step_seconds
        yield Mapped(self._block(mapper, keys, values) if keys else None, read, len(keys))

    def _map_batches(self, split: Split) -> Iterator[Mapped]:
        for batch in split.batches(self.batch_records):
            records = self._records_of(batch)
            blocks = [self._columns(part) for part in records.to_batches(self.batch_records) if part.num_rows]
            if not blocks:
                yield Mapped(None, batch.num_rows, 0)
            for index, block in enumerate(blocks):
                yield Mapped(block, batch.num_rows if index == 0 else 0, block.rows)

    @described(lambda local: at(local["self"].mapper, "map_batch", f"a batch of {local['batch'].num_rows} rows"))
    def _records_of(self, batch: pa.RecordBatch) -> pa.Table:
        """The mapper's records for an input batch, or the input batch itself."""
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
        for name in names_of(self.key):
            if name not in records.column_names:
                has = f"its columns are {', '.join(records.column_names)}"
                raise ExecutorError(f"{name_of(self.mapper)}.map_batch returned no key column {name!r}; {has}")
        return records

    def _columns(self, records: pa.RecordBatch) -> Block:
        names = [name for name in records.schema.names if name not in names_of(self.key)]
        if self.mapper is None and self.values is not None:
            names = list(self.values)
        return Block.of(key_column(records, self.key), records.select(names) if names else None, self.seed)

    def _block(self, mapper: Mapper, keys: list[Any], values: list[Any]) -> Block:
        try:
            column = column_of(keys, self.key)
        except KeyTypeError as error:
            raise KeyTypeError(f"{name_of(mapper)}.map yields keys that do not do: {error}") from None
        return Block.of(column, self._values(mapper, values), self.seed)

    def _values(self, mapper: Mapper, values: list[Any]) -> Values:
        """Python objects as they are, or columns where the reducer works on columns."""
        if not isinstance(self.reducer, BatchReducer):
            return _object_array(values)
        try:
            if any(isinstance(value, dict) for value in values):
                names = dict.fromkeys(name for value in values for name in value)
                return pa.record_batch({name: array_of([value.get(name) for value in values]) for name in names})
            return pa.record_batch({"value": array_of(values)})
        except (pa.ArrowException, AttributeError, TypeError, UnicodeError, OverflowError) as error:
            needs = f"{name_of(self.reducer)} works on columns, so values must be of one Arrow type, or flat dicts"
            raise ExecutorError(f"{name_of(mapper)}.map: {needs}: {error}") from None

    def _combined(self, step: Mapped) -> Mapped:
        block = step.block
        if block is None:
            return step
        if isinstance(self.reducer, BatchReducer):
            assert not isinstance(block.values, np.ndarray)
            values = pa.record_batch({}) if block.values is None else block.values
            groups = Groups(block.keys, block.codes, values)
            states: Values = columns(self.reducer, "reduce", groups, len(groups))
        else:
            states = self._reduced(self.reducer, block)
        codes = np.arange(len(block.keys), dtype=np.int32)
        combined = Block(block.keys, block.hashes, codes, states, block.counts(), combined=True)
        return Mapped(combined, step.read, step.mapped)

    def _reduced(self, reducer: Reducer[Any, Any], block: Block) -> Values:
        keys = to_python(block.keys)
        states = [zero(reducer, key) for key in keys]
        fold(reducer, "reduce", states, block.codes.tolist(), block.objects(), keys)
        return _object_array(states)


for _batches in (ParquetSplit.batches, MemorySplit.batches):
    described(lambda local: "its input, which it reads")(_batches)


def check_columns(task: MapTask, schema: pa.Schema) -> None:
    """Check, before anything runs, the columns of the input that the task takes as they are: that they are there, and
    that they can be the key and the values.

    Raises:
        ConfigError: a column is missing, or cannot be what it should be. The message begins with the job file's key.
    """
    if task.mapper is not None:
        return
    present = list(schema.names)
    for name in (*names_of(task.key), *(task.values or ())):
        if name not in present:
            section = "key" if name in names_of(task.key) else "value"
            raise ConfigError(f"{section}: the input has no column {name!r}; it has {', '.join(present)}")
    for name in names_of(task.key):
        try:
            key_type(schema.types[present.index(name)])
        except KeyTypeError as error:
            raise ConfigError(f"key: the column {name!r}: {error}") from None
    if isinstance(task.reducer, BatchReducer):
        values = [name for name in present if name not in names_of(task.key)] if task.values is None else task.values
        try:
            task.reducer.check_values(pa.schema([schema.field(present.index(name)) for name in values]))
        except ConfigError as error:
            raise ConfigError(f"reducer: {name_of(task.reducer)} {error}") from None


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError as error:
        mend = "`make_valid_utf8(column) AS column` in `input.select` replaces such bytes"
        raise TableError(f"the input has text that is not UTF-8: {error}; {mend}") from None


def _object_array(objects: list[Any]) -> Values:
    return np.fromiter(objects, dtype=object, count=len(objects))
