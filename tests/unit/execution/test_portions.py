"""Rows that are handed out a portion at a time, and no further than to where they are closed."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dpa.errors import TableError
from dpa.execution.rows import OneBatch, Portions
from dpa.sources.event_time import SourceTime
from dpa.sources.splits import MemorySplit
from dpa.windows.times import EventTime

TABLE = pa.table({"n": range(10)})


def portions(at_once: int) -> tuple[Portions, Iterator[pa.RecordBatch]]:
    made = Portions(MemorySplit(TABLE))
    made.at_once = at_once
    return made, made.batches(4)


def test_portions_are_of_as_many_rows_as_is_said_at_the_time() -> None:
    made, batches = portions(3)
    assert next(batches).num_rows == 3
    made.at_once = 100
    assert [batch["n"].to_pylist() for batch in batches] == [[3], [4, 5, 6, 7], [8, 9]]


def test_nothing_is_handed_out_once_closed_neither_of_this_batch_nor_of_others() -> None:
    made, batches = portions(3)
    assert next(batches)["n"].to_pylist() == [0, 1, 2]
    made.close()
    assert list(batches) == []


def test_what_is_closed_before_it_begins_hands_out_nothing() -> None:
    made, batches = portions(3)
    made.close()
    assert list(batches) == []


def test_portions_have_the_time_at_which_they_are_read_and_the_greatest_is_noted() -> None:
    time = SourceTime(EventTime("read_at"), is_added=True)
    made = Portions(MemorySplit(TABLE), time)
    made.at_once, made.read_at = 3, 5_000_000
    batches = made.batches(4)
    first = next(batches)
    assert first.schema == pa.schema([("n", pa.int64()), ("read_at", pa.timestamp("us", "UTC"))])
    made.read_at = 6_000_000
    times = [batch["read_at"].cast(pa.int64()).to_pylist() for batch in (first, *batches)]
    assert times == [[5_000_000] * 3, [6_000_000], [6_000_000] * 3, [6_000_000], [6_000_000] * 2]
    assert made.greatest == 6_000_000
    [empty] = Portions(OneBatch(pa.record_batch(TABLE.schema.empty_table().to_pydict())), time).batches(4)
    assert empty.schema.names == ["n", "read_at"] and not empty.num_rows


def test_rows_without_columns_are_read_at_a_time_too() -> None:
    rows = pa.record_batch({"n": range(3)}).select([])
    found = SourceTime(EventTime("read_at"), is_added=True).stamped(rows, 1)
    assert found["read_at"].cast(pa.int64()).to_pylist() == [1, 1, 1]


def test_rows_that_have_a_column_of_that_name_are_refused_where_that_was_not_known_before() -> None:
    made = Portions(MemorySplit(TABLE), SourceTime(EventTime("n"), is_added=True))
    with pytest.raises(TableError, match="the input has a column 'n', and the time at which rows are read is added"):
        next(made.batches(4))
