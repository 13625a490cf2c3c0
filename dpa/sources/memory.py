"""Inputs in memory, as Arrow tables. `dpa.spark` adds Spark's DataFrames."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from dpa._util.inference import array_of, known, require_name
from dpa.errors import TableError
from dpa.sources.feed import Feed, Page, drawn_from, never
from dpa.sources.splits import memory_splits

_ACCEPTED = (
    "an Arrow table, a list of dicts or of scalars, a pandas, polars or Spark DataFrame, or another object with "
    "`__arrow_c_stream__`"
)


@dataclass(frozen=True)
class MemoryFeed(Feed):
    """A table in memory, whose splits hold their rows."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema | None:
        return columns_of(self.table)

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page(memory_splits(self.table, split_rows))

    def rows_now(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=batch_rows)

    def known_rows(self) -> int:
        return int(self.table.num_rows)

    def sample(self, max_rows: int, seed: int = 0, enough: Callable[[], bool] = never) -> pa.Table:
        whole = (self.table.num_rows, lambda: self.table)
        return pa.concat_tables(drawn_from([whole], max_rows, np.random.default_rng(seed)) or [self.table.slice(0, 0)])


def as_table(data: Any) -> pa.Table:
    """Make an Arrow table of an input in memory.

    Scalars become the column `value`. Dicts become rows, null where one lacks another's key. A named pandas index, as
    of `set_index`, becomes the first columns; an unnamed one is dropped. Raises TableError if it is none of these, two
    columns share a name, or a column mixes types.

    Args:
        data: an Arrow table, an iterable of dicts or of scalars, a pandas or polars DataFrame, or anything that exports
            an Arrow stream.
    """
    return known(_converted(data))


def columns_of(table: pa.Table) -> pa.Schema | None:
    """A table's columns; None for a table of an empty list, which shows none."""
    return None if table.schema == _of_records([]).schema and not table.num_rows else table.schema


def _converted(data: Any) -> pa.Table:
    data = data.collect() if type(data).__name__ == "LazyFrame" else data
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        for name in getattr(data, "columns", ()):
            require_name(name)
        if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
            return pa.Table.from_pandas(_with_its_index(data), preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TableError(f"the {type(data).__name__} cannot be converted to Arrow: {error}") from None
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _of_records(list(data))
    raise TableError(f"the input must be {_ACCEPTED}; not {type(data).__name__}")


def _with_its_index(frame: Any) -> Any:
    """A pandas DataFrame with its index's named levels as columns."""
    names = [name for name in frame.index.names if name is not None]
    for name in names:
        if name in frame.columns:
            raise TableError(f"the DataFrame's index and a column are both named {name!r}: rename or reset the index")
    return frame.reset_index(level=names) if names else frame


def _of_records(records: list[Any]) -> pa.Table:
    rows = [isinstance(record, Mapping) for record in records]
    if any(rows) and not all(rows):
        odd = rows.index(not rows[0])
        found = f"record 0 is {_kind(records[0])}, record {odd} {_kind(records[odd])}"
        raise TableError(f"records are either all mappings or all scalars; {found}")
    if not any(rows):
        return pa.table({"value": _column("value", records)})
    names = list(dict.fromkeys(name for record in records for name in record))
    odd_name = next((name for name in names if not isinstance(name, str)), None)
    if odd_name is not None:
        raise TableError(f"the keys of a record are column names and must be strings, not {odd_name!r}")
    return pa.table({name: _column(name, [record.get(name) for record in records]) for name in names})


def _column(name: str, values: list[Any]) -> pa.Array | pa.ChunkedArray:
    try:
        return array_of(values)
    except (pa.ArrowException, OverflowError) as error:
        kinds = list(islice(dict.fromkeys(_kind(value) for value in values if value is not None), 4))
        reason = f"mixes {' and '.join(kinds)}" if len(kinds) > 1 else f"cannot be converted to Arrow: {error}"
        raise TableError(f"the column {name!r} of the records {reason}") from None


def _kind(value: Any) -> str:
    return "a mapping" if isinstance(value, Mapping) else type(value).__name__
